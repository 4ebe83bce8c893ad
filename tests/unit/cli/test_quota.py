"""`qbus quota`: limits of users, clients and addresses, by Kafka's names."""

import json

import pytest

from .security_fakes import FakeSecurity, failure, put_in_place, run


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeSecurity:
    return put_in_place(monkeypatch)


def test_limits_are_set_shown_and_removed(cluster: FakeSecurity) -> None:
    assert run("quota", "show").stderr.startswith("No limits: set one with")
    said = run("quota", "set", "--user", "alice", "producer_byte_rate=1e6", "request_percentage=50")
    assert said.stdout == (
        "Limits of user alice: producer_byte_rate=1,000,000, request_percentage=50.\n"
    )
    assert cluster.quotas == {
        (("user", "alice"),): {"producer_byte_rate": 1e6, "request_percentage": 50.0}
    }
    assert "1,000,000" in run("quota", "show").stdout
    run("quota", "remove", "--user", "alice", "request_percentage")
    assert cluster.quotas == {(("user", "alice"),): {"producer_byte_rate": 1e6}}
    assert run("quota", "remove", "--user", "alice").stdout == (
        "Removed producer_byte_rate of user alice.\n"
    )
    assert run("quota", "remove", "--user", "alice").stdout == (
        "There were no limits of user alice.\n"
    )
    assert not cluster.quotas


@pytest.mark.parametrize(
    ("options", "entity"),
    [
        (["--user-defaults"], (("user", None),)),
        (["--client", "app"], (("client-id", "app"),)),
        (["--user", "a", "--client-defaults"], (("user", "a"), ("client-id", None))),
        (["--client", "app", "--user", "a"], (("user", "a"), ("client-id", "app"))),
    ],
)
def test_whom_limits_are_for(
    cluster: FakeSecurity, options: list[str], entity: tuple[tuple[str, str | None], ...]
) -> None:
    result = run("quota", "set", *options, "consumer_byte_rate=1000")
    assert result.exit_code == 0, result.output
    assert list(cluster.quotas) == [entity]


def test_addresses_have_limits_of_their_own(cluster: FakeSecurity) -> None:
    run("quota", "set", "--ip", "10.0.0.1", "connection_creation_rate=5")
    (shown,) = json.loads(run("quota", "show", "--ip", "10.0.0.1", "--json").stdout)
    assert shown == {"entity": {"ip": "10.0.0.1"}, "limits": {"connection_creation_rate": 5.0}}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["set", "producer_byte_rate=1"], "Name whom the limit is for"),
        (["set", "--user", "a", "speed=1"], "'speed' is no limit; there are: producer_byte_rate"),
        (["set", "--user", "a", "producer_byte_rate=fast"], "fast is not a number"),
        (["set", "--user", "a", "producer_byte_rate=0"], "a limit is more than 0"),
        (["set", "--user", "a", "--user-defaults", "producer_byte_rate=1"], "Name either --user"),
        (["set", "--user", "a", "--ip", "b", "producer_byte_rate=1"], "--ip goes with no other"),
        (["set", "--ip", "b", "producer_byte_rate=1"], "is no limit of address b, which has"),
        (["set", "--user", "a", "connection_creation_rate=1"], "is no limit of user a"),
        (["set", "--user", "", "producer_byte_rate=1"], "--user is empty"),
        (["set", "--user", "a"], "Missing argument"),
    ],
)
def test_what_is_not_understood(cluster: FakeSecurity, arguments: list[str], said: str) -> None:
    assert said in failure(["quota", *arguments], 2)
    assert not cluster.quotas
