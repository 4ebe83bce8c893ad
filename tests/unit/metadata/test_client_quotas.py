"""Quotas in the store: Kafka's paths and JSON."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.metadata.client_quotas import DEFAULT, QuotaEntity, quotas_of
from qbus.metadata.errors import MalformedNode


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        (QuotaEntity("alice"), "/config/users/alice"),
        (QuotaEntity(DEFAULT), "/config/users/<default>"),
        (QuotaEntity("<default>"), "/config/users/%3Cdefault%3E"),
        (QuotaEntity("CN=a b,O=*"), "/config/users/CN%3Da%20b%2CO%3D%2A"),
        (QuotaEntity(None, "app"), "/config/clients/app"),
        (QuotaEntity("alice", "app"), "/config/users/alice/clients/app"),
        (QuotaEntity(DEFAULT, DEFAULT), "/config/users/<default>/clients/<default>"),
        (QuotaEntity(ip="10.0.0.1"), "/config/ips/10.0.0.1"),
        (QuotaEntity(ip="::1"), "/config/ips/%3A%3A1"),
        (QuotaEntity(ip=DEFAULT), "/config/ips/<default>"),
    ],
)
def test_paths_are_kafkas(entity: QuotaEntity, path: str) -> None:
    assert entity.path == path
    assert QuotaEntity.at(entity.place) == entity


@given(user=st.text(min_size=1), client_id=st.text(min_size=1))
def test_any_name_has_a_path_of_its_own(user: str, client_id: str) -> None:
    entity = QuotaEntity(user, client_id)
    assert QuotaEntity.at(entity.place) == entity
    assert entity.place.count("/") == 3


@pytest.mark.parametrize("place", ["", "users", "topics/t", "users/a/b/c", "users/a/clients"])
def test_other_nodes_are_nobodys(place: str) -> None:
    assert QuotaEntity.at(place) is None


def test_values_are_read_beside_what_else_a_user_has() -> None:
    data = b'{"version":1,"config":{"producer_byte_rate":"1024","SCRAM-SHA-256":"salt=s"}}'
    assert quotas_of(data) == {"producer_byte_rate": 1024.0}
    assert quotas_of(b"") == {}


@pytest.mark.parametrize("value", ["much", "-1", "0", "nan", "inf"])
def test_a_value_that_no_quota_can_have_is_malformed(value: str) -> None:
    data = f'{{"version":1,"config":{{"producer_byte_rate":"{value}"}}}}'.encode()
    with pytest.raises(MalformedNode):
        quotas_of(data)


def test_what_cannot_be_read_is_not_shown() -> None:
    with pytest.raises(MalformedNode) as malformed:
        quotas_of(b'{"config": "salt=secret')
    assert "secret" not in str(malformed.value)
