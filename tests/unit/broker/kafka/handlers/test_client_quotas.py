"""DescribeClientQuotas and AlterClientQuotas: quotas in the store, on every broker."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qbus.errors import ErrorCode
from qbus.metadata.client_quotas import QuotaEntity
from qbus.metadata.feed import announce
from qbus.metadata.store import Create, Set
from qbus.metadata.znodes import ChangeNode, ConfigNode
from qbus.wire import ApiKey
from qbus.wire.messages import alter_client_quotas as alter
from qbus.wire.messages import describe_client_quotas as describe
from tests.support.metadata_plane import MetadataPlane, metadata_plane

VERSIONS = (0, 1)
Named = tuple[tuple[str, str | None], ...]
ALICE: Named = (("user", "alice"),)


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[MetadataPlane]:
    async with metadata_plane(tmp_path) as plane:
        yield plane


def entry(named: Named, *ops: tuple[str, float | None]) -> alter.EntryData:
    return alter.EntryData(
        entity=[alter.EntityData(entity_type=kind, entity_name=name) for kind, name in named],
        ops=[alter.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )


async def change(
    plane: MetadataPlane, *entries: alter.EntryData, version: int = 1, validate_only: bool = False
) -> list[ErrorCode]:
    request = alter.AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    response = await plane.ask(ApiKey.ALTER_CLIENT_QUOTAS, version, request)
    assert [one.entity for one in response.entries] == [one.entity for one in entries]
    return [ErrorCode(one.error_code) for one in response.entries]


async def told(
    plane: MetadataPlane, *filters: tuple[str, int, str | None], version: int = 1
) -> dict[Named, dict[str, float]]:
    components = [
        describe.ComponentData(entity_type=kind, match_type=how, match=name)
        for kind, how, name in filters
    ]
    request = describe.DescribeClientQuotasRequest(components=components, strict=False)
    response = await plane.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, request)
    assert response.error_code == 0
    return {
        tuple((one.entity_type, one.entity_name) for one in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries
    }


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_is_set_is_told_and_in_force(plane: MetadataPlane, version: int) -> None:
    codes = await change(
        plane,
        entry(ALICE, ("producer_byte_rate", 1024.0), ("request_percentage", 12.5)),
        entry((("user", None), ("client-id", "app")), ("consumer_byte_rate", 10.0)),
        entry((("ip", "10.0.0.1"),), ("connection_creation_rate", 5.0)),
        version=version,
    )
    assert codes == [ErrorCode.NONE] * 3
    assert await told(plane, version=version) == {
        ALICE: {"producer_byte_rate": 1024.0, "request_percentage": 12.5},
        (("user", None), ("client-id", "app")): {"consumer_byte_rate": 10.0},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 5.0},
    }
    assert plane.metadata.client_quotas[QuotaEntity("alice")]["producer_byte_rate"] == 1024.0


async def test_what_is_removed_is_gone(plane: MetadataPlane) -> None:
    await change(plane, entry(ALICE, ("producer_byte_rate", 1.0), ("consumer_byte_rate", 2.0)))
    await change(plane, entry(ALICE, ("producer_byte_rate", None)))
    assert await told(plane) == {ALICE: {"consumer_byte_rate": 2.0}}
    await change(plane, entry(ALICE, ("consumer_byte_rate", None)))
    assert await told(plane) == {}


async def test_the_node_is_kafkas_and_keeps_credentials(plane: MetadataPlane) -> None:
    path = ConfigNode.user_path("alice")
    await plane.store.transaction([Create(path, ConfigNode({"SCRAM-SHA-256": "salt=s"}).encode())])
    assert await change(plane, entry(ALICE, ("producer_byte_rate", 1024.0))) == [ErrorCode.NONE]
    node = await plane.store.get(path)
    assert node is not None
    assert node.data == (
        b'{"version":1,"config":{"SCRAM-SHA-256":"salt=s","producer_byte_rate":"1024"}}'
    )
    assert plane.metadata.users["alice"]["SCRAM-SHA-256"] == "salt=s"


async def test_validating_alters_nothing(plane: MetadataPlane) -> None:
    good, bad = ("producer_byte_rate", 1.0), ("producer_byte_rate", -1.0)
    codes = await change(
        plane, entry(ALICE, good), entry((("user", "bob"),), bad), validate_only=True
    )
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert await told(plane) == {}


async def test_each_entity_stands_for_itself(plane: MetadataPlane) -> None:
    codes = await change(
        plane,
        entry(ALICE, ("producer_byte_rate", 1.0)),
        entry((("group", "g"),), ("producer_byte_rate", 1.0)),
        entry((("user", "bob"),), ("unknown_rate", 1.0)),
    )
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]
    assert [*await told(plane)] == [ALICE]


async def test_an_entity_that_comes_twice_is_not_altered(plane: MetadataPlane) -> None:
    twice = entry(ALICE, ("producer_byte_rate", 1.0)), entry(ALICE, ("producer_byte_rate", 2.0))
    assert await change(plane, *twice) == [ErrorCode.INVALID_REQUEST] * 2
    assert await told(plane) == {}


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_filter_that_means_nothing_is_answered_with_why(
    plane: MetadataPlane, version: int
) -> None:
    request = describe.DescribeClientQuotasRequest(
        components=[describe.ComponentData(entity_type="team", match_type=0, match="a")]
    )
    response = await plane.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, request)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "team" in response.error_message
    assert response.entries is None


async def test_a_node_that_cannot_be_read_leaves_the_quotas_as_they_were(
    plane: MetadataPlane, caplog: pytest.LogCaptureFixture
) -> None:
    await change(plane, entry((("client-id", "app"),), ("producer_byte_rate", 7.0)))
    entity = QuotaEntity(None, "app")
    broken = ConfigNode({"producer_byte_rate": "very much"}).encode()
    results = await plane.store.transaction(
        [Set(entity.path, broken), announce(ChangeNode(quotas=(entity.place,)).encode())]
    )
    await plane.metadata.catch_up()
    assert results
    assert plane.metadata.client_quotas[entity] == {"producer_byte_rate": 7.0}
    assert any("stay as they were" in line for line in caplog.messages)
