"""The group protocol of KIP-848, whose assignments the broker makes: Java and librdkafka."""

import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perf.peers import java, kafka
from tests.support.server_process import ServerProcess
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

from . import targets
from .clients.confluent import Confluent
from .members import Member, Partitions
from .records import numbered
from .test_java_tools import Tools, table

pytestmark = pytest.mark.compat

PARTITIONS = 4
_MEMBER = Path(__file__).parent / "java" / "Member.java"
# What clients cannot set with this protocol: a dead member is noticed soon.
_SETTINGS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}
NEW = "group.protocol=consumer"
CLASSIC = "group.protocol=classic"

Join = Callable[..., Member]


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """Return a broker of the suite's target where sessions are short."""
    target = request.config.getoption("--target")
    with targets.server(target, tmp_path_factory.mktemp("server"), _SETTINGS) as started:
        yield started


@pytest.fixture(scope="module")
def bootstrap(server: ServerProcess) -> str:
    """Return its address."""
    return server.bootstrap


@pytest.fixture(scope="module")
def reference(bootstrap: str) -> Confluent:
    """Return what sets up tests."""
    return Confluent(bootstrap)


@pytest.fixture
def tools(bootstrap: str) -> Tools:
    """Return Kafka's tools."""
    skip_because_of(kafka.missing())
    return Tools(bootstrap)


def java_member(bootstrap: str, topic: str, group: str, *settings: str) -> Member:
    """A member by ``KafkaConsumer``."""
    skip_because_of(kafka.missing())
    arguments = [str(_MEMBER), bootstrap, topic, group, *settings]
    return Member(java.command(*arguments, options=java.SHORT_RUN_OPTIONS))


def confluent_member(bootstrap: str, topic: str, group: str, *settings: str) -> Member:
    """A member by librdkafka."""
    command = [sys.executable, "-m", "tests.compat.members.confluent"]
    return Member([*command, bootstrap, topic, group, *settings])


KINDS = {"java": java_member, "confluent-kafka": confluent_member}
with_each = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def join(bootstrap: str, name: str, reference: Confluent) -> Iterator[Join]:
    """Return a function that adds a member to the test's group, over its topic."""
    reference.create_topic(name, PARTITIONS)
    members: list[Member] = []

    def join_group(kind: str, *settings: str, topic: str = name) -> Member:
        members.append(KINDS[kind](bootstrap, topic, name, *settings))
        return members[-1]

    yield join_group
    for member in members:
        member.kill()


def wait_shared(*members: Member, partitions: int = PARTITIONS) -> None:
    """Wait until all partitions have one owner among members, and each member has its share."""

    def is_shared() -> bool:
        owned = [one for member in members for one in member.assigned]
        shares = {len(member.assigned) for member in members}
        is_whole = len(owned) == len(set(owned)) == partitions
        return is_whole and max(shares) - min(shares) <= 1

    try:
        wait_until(is_shared, "a shared assignment", 60.0)
    except AssertionError as error:
        raise AssertionError("\n".join([str(error), *(one.output() for one in members)])) from None


def produce(reference: Confluent, topic: str, count: int) -> None:
    """Add records to each partition."""
    for partition in range(PARTITIONS):
        reference.produce(topic, numbered(count), partition=partition)


def consumed(*members: Member) -> list[tuple[int, int]]:
    """The places of what members have consumed and committed."""
    return sorted(place for member in members for place in member.consumed)


def everything(count: int) -> list[tuple[int, int]]:
    """The places of so many records in each partition."""
    return sorted((partition, offset) for partition in range(PARTITIONS) for offset in range(count))


@with_each
def test_members_join_leave_and_die(kind: str, join: Join, name: str, reference: Confluent) -> None:
    first = join(kind, NEW)
    wait_shared(first)
    produce(reference, name, 5)
    wait_until(lambda: consumed(first) == everything(5), "the first records")
    second = join(kind, NEW)
    wait_shared(first, second)
    third = join(kind, NEW)
    wait_shared(first, second, third)
    produce(reference, name, 5)
    wait_until(lambda: consumed(first, second, third) == everything(10), "the second records")
    second.leave()
    wait_shared(first, third)
    third.kill()
    wait_shared(first)
    produce(reference, name, 5)
    wait_until(lambda: consumed(first, second, third) == everything(15), "the last records")
    for partition in range(PARTITIONS):
        assert reference.committed(name, partition, name) == 15


def test_clients_of_both_makes_share_a_group(join: Join, name: str, reference: Confluent) -> None:
    members = [join("java", NEW), join("confluent-kafka", NEW)]
    wait_shared(*members)
    produce(reference, name, 5)
    wait_until(lambda: consumed(*members) == everything(5), "the records")


@pytest.mark.parametrize(
    "kind", [pytest.param("java", marks=pytest.mark.nightly), "confluent-kafka"]
)
def test_a_group_moves_to_the_new_protocol_and_back(
    kind: str, join: Join, name: str, reference: Confluent
) -> None:
    classic = [join(kind, CLASSIC), join(kind, CLASSIC)]
    wait_shared(*classic)
    produce(reference, name, 5)
    wait_until(lambda: consumed(*classic) == everything(5), "the first records")
    new = [join(kind, NEW)]
    wait_shared(*classic, *new)
    classic[0].leave()
    new.append(join(kind, NEW))
    classic[1].leave()
    wait_shared(*new)
    produce(reference, name, 5)
    wait_until(lambda: consumed(*classic, *new) == everything(10), "the second records")
    back = [join(kind, CLASSIC), join(kind, CLASSIC)]
    wait_shared(*new, *back)
    for one in new:
        one.leave()
    wait_shared(*back)
    produce(reference, name, 5)
    wait_until(lambda: consumed(*classic, *new, *back) == everything(15), "the last records")


@with_each
def test_a_static_member_comes_back_to_its_partitions(kind: str, join: Join) -> None:
    other = join(kind, NEW)
    static = join(kind, NEW, "group.instance.id=static")
    wait_shared(other, static)
    before, others = static.assigned, other.assigned
    static.leave()
    again = join(kind, NEW, "group.instance.id=static")
    wait_until(lambda: again.assigned == before, "the same partitions")
    assert other.assigned == others


@with_each
def test_a_member_that_was_silent_for_too_long_is_fenced_and_joins_again(
    kind: str, join: Join, name: str, reference: Confluent
) -> None:
    silent, other = join(kind, NEW), join(kind, NEW)
    wait_shared(silent, other)
    silent.send_signal(signal.SIGSTOP)
    wait_shared(other)
    produce(reference, name, 5)
    wait_until(lambda: consumed(other) == everything(5), "the records")
    silent.send_signal(signal.SIGCONT)
    wait_shared(silent, other)
    produce(reference, name, 5)
    wait_until(lambda: consumed(silent, other) == everything(10), "the last records")


def test_a_pattern_is_matched_by_the_broker(
    join: Join, name: str, reference: Confluent, tools: Tools
) -> None:
    member = join("java", NEW, topic=f"^{name}(-more)?$")

    def topics(assigned: Partitions) -> set[str]:
        return {topic for topic, _ in assigned}

    wait_until(lambda: topics(member.assigned) == {name} or not member.alive, "the first topic")
    assert member.alive, member.output()
    reference.create_topic(f"{name}-more", 2)
    reference.create_topic(f"{name}-other", 2)
    wait_until(lambda: topics(member.assigned) == {name, f"{name}-more"}, "both topics", 60)
    assert len(member.assigned) == PARTITIONS + 2


def test_a_pattern_that_is_none_is_refused(join: Join, name: str) -> None:
    member = join("java", NEW, topic=f"^{name}(")
    wait_until(lambda: not member.alive, "the end of the member")
    assert "InvalidRegularExpression" in member.output()


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_assignors_of_the_broker(assignor: str, join: Join, name: str) -> None:
    setting = f"group.remote.assignor={assignor}"
    members = [join("java", NEW, setting) for _ in range(2)]
    wait_shared(*members)
    if assignor == "range":
        owned = {frozenset(index for _, index in member.assigned) for member in members}
        assert owned == {frozenset({0, 1}), frozenset({2, 3})}


def test_an_unknown_assignor_is_refused(join: Join) -> None:
    member = join("java", NEW, "group.remote.assignor=mine")
    wait_until(lambda: not member.alive, "the end of the member")
    assert "UnsupportedAssignor" in member.output()


def test_the_tools_describe_reset_and_delete_a_group(
    join: Join, name: str, reference: Confluent, tools: Tools
) -> None:
    produce(reference, name, 5)
    members = [join("java", NEW), join("java", NEW)]
    wait_shared(*members)
    wait_until(lambda: consumed(*members) == everything(5), "the records")
    (listed,) = [
        row for row in table(tools.group("--list", "--state", "--type")) if row["GROUP"] == name
    ]
    assert (listed["TYPE"], listed["STATE"]) == ("Consumer", "Stable")
    described = table(tools.group("--describe", "--group", name))
    assert [(row["CURRENT-OFFSET"], row["LAG"]) for row in described] == [("5", "0")] * PARTITIONS
    shown = tools.group("--describe", "--group", name, "--members", "--verbose")
    assert len([line for line in shown.splitlines() if line.startswith(name)]) == 2
    (state,) = [
        line
        for line in tools.group("--describe", "--group", name, "--state").splitlines()
        if line.startswith(name)
    ]
    assert "Stable" in state
    assert "uniform" in state
    for member in members:
        member.leave()
    tools.group(
        *("--reset-offsets", "--group", name, "--topic", name, "--to-offset", "2", "--execute")
    )
    assert reference.committed(name, 3, name) == 2
    again = join("java", NEW)
    wait_until(lambda: len(again.consumed) == 3 * PARTITIONS, "the records behind it")
    again.leave()
    assert "was successful" in tools.group("--delete", "--group", name)
    assert name not in json.dumps(sorted(reference.groups()))
