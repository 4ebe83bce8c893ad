"""What groups with members tell of topics that one may not describe, and sessions of rights lost.

``--target kafka`` asks Apache Kafka the same.
"""

import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from perf.peers import kafka
from qbus.errors import ErrorCode
from qbus.wire import API, ApiKey
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

from .matrix.answers import build
from .matrix.principals import THIS_HOST, VAULT, User
from .matrix.row import Check, Row
from .matrix.rules import Kind, Operation, Permission, Rule
from .matrix.table import G, T, whole
from .matrix.world import Admin, KafkaWorld, QbusWorld, World
from .sasl_client import SaslClient

pytestmark = pytest.mark.security

_VAULT: Final = VAULT[Kind.TOPIC]
_MEMBER: Final = "AAAAAAAAAAAAAAAAAAAAAw"


def _may(kind: Kind, name: str, *operations: Operation) -> tuple[Rule, ...]:
    return tuple(Rule(Permission.ALLOW, one, kind, name) for one in operations)


_GROUPS: Final = tuple(
    rule for name in ("live", "shared", "regex") for rule in _may(Kind.GROUP, name, Operation.READ)
)
HALF: Final = User("half", (*_GROUPS, *_may(Kind.TOPIC, "lobby", Operation.READ)))
FULL: Final = User("full", (*HALF.rules, *_may(Kind.TOPIC, _VAULT, Operation.READ)))

DESCRIPTIONS: Final = (
    Row(
        *("CONSUMER_GROUP_DESCRIBE", 1, "of a group whose member reads the vault"),
        {"group_ids": ["live"]},
        (
            Check("DESCRIBE group live", f"groups[live] {G}"),
            Check("DESCRIBE topic vault", f"groups[live] {T}"),
        ),
        shows={"vault": "DESCRIBE topic vault"},
    ),
    Row(
        *("SHARE_GROUP_DESCRIBE", 1, "of a group whose member reads the vault"),
        {"group_ids": ["shared"]},
        (
            Check("DESCRIBE group shared", f"groups[shared] {G}"),
            Check("DESCRIBE topic vault", f"groups[shared] {T}"),
        ),
        shows={"vault": "DESCRIBE topic vault"},
    ),
    Row(
        *("DESCRIBE_SHARE_GROUP_OFFSETS", 0, "of a topic of a group"),
        {
            "groups": [
                {"group_id": "shared", "topics": [{"topic_name": "vault", "partitions": [0]}]}
            ]
        },
        (
            Check("DESCRIBE group shared", f"groups[shared] {G}"),
            Check("DESCRIBE topic vault", f"groups[shared].topics[vault].partitions {T}"),
        ),
    ),
    Row(
        *("ALTER_SHARE_GROUP_OFFSETS", 0, "of a topic of a group with members"),
        {
            "group_id": "shared",
            "topics": [
                {"topic_name": "vault", "partitions": [{"partition_index": 0, "start_offset": 0}]}
            ],
        },
        (Check("READ group shared", whole(G)),),
        (whole("NON_EMPTY_GROUP"),),
    ),
)


class Asking:
    """A connection that asks with plain dictionaries."""

    def __init__(self, client: SaslClient) -> None:
        self.client = client

    def __call__(self, api: str, version: int, **request: Any) -> Any:
        key = ApiKey[api]
        return self.client.ask(key, version, build(API[key].request, request, {}))


@pytest.fixture(scope="module")
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """A broker with members of groups that read the vault."""
    directory, users = tmp_path_factory.mktemp("live"), (HALF, FULL)
    made: World
    if request.config.getoption("--target") == "kafka":
        skip_because_of(kafka.missing())
        made = KafkaWorld(directory, users)
    else:
        made = QbusWorld(directory, users)
    with made as running, running.admin() as client:
        ask = Asking(client)
        _join(ask, "CONSUMER_GROUP_HEARTBEAT", "live", rebalance_timeout_ms=60_000)
        _join(ask, "SHARE_GROUP_HEARTBEAT", "shared")
        yield running


def _join(ask: Asking, api: str, group: str, **more: Any) -> None:
    names = {"group_id": group, "member_id": _MEMBER, "subscribed_topic_names": [_VAULT], **more}
    if api == "CONSUMER_GROUP_HEARTBEAT":
        names["topic_partitions"] = []
    epoch = 0

    def is_assigned() -> bool:
        nonlocal epoch
        answer = ask(api, 1, member_epoch=epoch, **names)
        if answer.error_code:
            assert ErrorCode(answer.error_code).retriable, ErrorCode(answer.error_code).name
            return False
        epoch = answer.member_epoch
        return answer.assignment is not None and bool(answer.assignment.topic_partitions)

    wait_until(is_assigned, f"the assignment of {group}")


@pytest.mark.parametrize("user", [HALF, FULL], ids=lambda user: user.name)
@pytest.mark.parametrize("row", DESCRIPTIONS, ids=lambda row: row.label)
def test_what_is_told_of_a_group(row: Row, user: User, world: World) -> None:
    expected = row.expected(user.all_rules, THIS_HOST, world.name)
    answers = world.answers(user, [row])
    assert answers[row.label] == expected


def test_a_pattern_finds_only_what_its_member_may_describe(world: World) -> None:
    ids = {value: name for name, value in world.ids.items()}
    for user, wanted in ((HALF, {"lobby"}), (FULL, {"lobby", "vault"})):
        with SaslClient(world.sasl_port, user.name, user.password) as client:
            ask = Asking(client)
            member = f"{_MEMBER[:-1]}{user.name[0]}"
            found = wait_until(
                lambda: _assigned(ask, member, ids, wanted),  # noqa: B023 - called at once
                f"the assignment of {user.name}",
            )
            assert found == wanted
            ask(
                "CONSUMER_GROUP_HEARTBEAT",
                1,
                group_id="regex",
                member_id=member,
                member_epoch=-1,
            )


def _assigned(ask: Asking, member: str, ids: dict[bytes, str], wanted: set[str]) -> set[str]:
    """The topics that a member of a pattern is given; empty while it is given none."""
    response = ask(
        "CONSUMER_GROUP_HEARTBEAT",
        1,
        group_id="regex",
        member_id=member,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_regex=".*",
        topic_partitions=[],
    )
    assert response.error_code in {0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    parts = response.assignment.topic_partitions if response.assignment else []
    found = {ids.get(one.topic_id, one.topic_id.hex()) for one in parts}
    assert found <= wanted
    return found


def test_a_session_of_fetches_ends_for_topics_that_one_may_not_read_any_more(world: World) -> None:
    """Rights are asked for with every fetch, also of a session that names no topic again."""
    lost = Rule(Permission.ALLOW, Operation.READ, Kind.TOPIC, _VAULT)
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1024}
    limits = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1024}
    with SaslClient(world.sasl_port, FULL.name, FULL.password) as client, world.admin() as other:
        ask, admin = Asking(client), Admin(other)
        topics = [{"topic": _VAULT, "partitions": [partition]}]
        opened = ask("FETCH", 12, session_id=0, session_epoch=0, topics=topics, **limits)
        assert opened.error_code == 0
        if opened.session_id == 0:
            pytest.skip("no sessions of fetches are kept for consumers")
        admin.remove([(FULL.principal, lost)])
        try:
            time.sleep(0.5)
            answer = ask(
                "FETCH", 12, session_id=opened.session_id, session_epoch=1, topics=[], **limits
            )
            errors = {p.error_code for one in answer.responses for p in one.partitions}
            assert errors == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        finally:
            admin.allow([(FULL.principal, lost)])


def test_a_session_of_a_share_group_ends_likewise(world: World) -> None:
    lost = Rule(Permission.ALLOW, Operation.READ, Kind.TOPIC, _VAULT)
    limits = {"max_wait_ms": 0, "max_bytes": 1024, "max_records": 1, "batch_size": 1}
    who = {"group_id": "shared", "member_id": _MEMBER}
    with SaslClient(world.sasl_port, FULL.name, FULL.password) as client, world.admin() as other:
        ask, admin = Asking(client), Admin(other)
        topics = [{"topic_id": world.ids[_VAULT], "partitions": [{"partition_index": 0}]}]
        opened = ask("SHARE_FETCH", 1, share_session_epoch=0, topics=topics, **who, **limits)
        assert opened.error_code == 0
        admin.remove([(FULL.principal, lost)])
        try:
            time.sleep(0.5)
            answer = ask("SHARE_FETCH", 1, share_session_epoch=1, topics=[], **who, **limits)
            errors = {p.error_code for one in answer.responses for p in one.partitions}
            assert errors == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        finally:
            admin.allow([(FULL.principal, lost)])
