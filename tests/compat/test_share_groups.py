"""Share groups with clients that no one here wrote: each record to one member at a time."""

import time
from collections.abc import Callable, Iterator

import pytest

from perf.peers import java, kafka
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

from .clients import Client
from .records import numbered
from .share_members import ConfluentShare, JavaMember, ShareDriver, Taken, values

pytestmark = pytest.mark.compat

ClientOfShares = ShareDriver | ConfluentShare
JOIN_S = 20.0


@pytest.fixture(scope="module")
def driver(bootstrap: str) -> Iterator[ShareDriver]:
    """Return the program that also configures groups, for all clients."""
    skip_because_of(ShareDriver.missing())
    driver = ShareDriver(bootstrap)
    yield driver
    driver.close()


@pytest.fixture(params=[ShareDriver, ConfluentShare], ids=lambda kind: kind.name)
def client(
    request: pytest.FixtureRequest, bootstrap: str, driver: ShareDriver
) -> Iterator[ClientOfShares]:
    """Return what makes members of share groups."""
    skip_because_of(request.param.missing())
    if request.param is ShareDriver:
        yield driver
    else:
        yield ConfluentShare(bootstrap)


@pytest.fixture
def group(name: str, driver: ShareDriver) -> str:
    """Return the name of a group that begins at the earliest record."""
    driver.configure(name, {"share.auto.offset.reset": "earliest"})
    return name


def collect(
    poll: Callable[[float], list[Taken]], count: int, seconds: float = JOIN_S
) -> list[Taken]:
    """What a member is given until there are so many."""
    found: list[Taken] = []
    end = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < end:
        found += poll(0.5)
    return found


def expected(first: int, last: int) -> list[str]:
    return [f"{number:010}" for number in range(first, last)]


def test_each_record_is_given_once(
    client: ClientOfShares, topic: str, group: str, reference: Client
) -> None:
    reference.produce(topic, numbered(100))
    member = client.join(topic, group)
    taken = collect(member.poll, 100)
    assert values(taken) == expected(0, 100)
    assert {one.deliveries for one in taken} == {1}
    assert member.commit() == {0: "NONE"}
    member.leave()
    again = client.join(topic, group)
    assert collect(again.poll, 1, 3.0) == []
    reference.produce(topic, numbered(3))
    assert values(collect(again.poll, 3)) == expected(0, 3)
    again.leave()


def test_what_was_not_acknowledged_when_a_member_leaves_comes_again(
    client: ClientOfShares, topic: str, group: str, reference: Client
) -> None:
    reference.produce(topic, numbered(5))
    member = client.join(topic, group)
    assert len(collect(member.poll, 5)) == 5
    member.leave()
    other = client.join(topic, group)
    assert {(one.offset, one.deliveries) for one in collect(other.poll, 5)} == {
        (offset, 2) for offset in range(5)
    }
    other.leave()


def test_a_new_group_begins_at_the_end(
    client: ClientOfShares, topic: str, name: str, reference: Client
) -> None:
    reference.produce(topic, numbered(10))
    member = client.join(topic, name + "-latest")
    assert collect(member.poll, 1, 5.0) == []
    taken: list[Taken] = []
    for _ in range(10):  # when it has begun only the server knows
        reference.produce(topic, numbered(2))
        if taken := collect(member.poll, 1, 5.0):
            break
    assert taken
    assert all(one.offset >= 10 for one in taken)
    member.leave()


def test_members_share_a_partition(
    client: ClientOfShares, topic: str, group: str, reference: Client
) -> None:
    first, second = client.join(topic, group), client.join(topic, group)
    given: dict[str, list[int]] = {"first": [], "second": []}
    sent = 0
    for _ in range(60):
        reference.produce(topic, numbered(10))
        sent += 10
        given["first"] += [one.offset for one in first.poll(0.2)]
        given["second"] += [one.offset for one in second.poll(0.2)]
        if all(given.values()):
            break
    first_left = [one.offset for one in collect(first.poll, 1, 2.0)]
    second_left = [one.offset for one in collect(second.poll, 1, 2.0)]
    offsets = given["first"] + given["second"] + first_left + second_left
    assert all(given.values())
    assert len(offsets) == len(set(offsets)) == sent
    first.leave()
    second.leave()


def test_what_is_released_comes_again_and_what_is_rejected_does_not(
    client: ClientOfShares, topic: str, group: str, reference: Client
) -> None:
    reference.produce(topic, numbered(4))
    member = client.join(topic, group, explicit=True)
    assert len(collect(member.poll, 4)) == 4
    member.acknowledge("ACCEPT", 0, 1)
    member.acknowledge("REJECT", 2)
    member.acknowledge("RELEASE", 3)
    assert member.commit() == {0: "NONE"}
    again = collect(member.poll, 1)
    assert [(one.offset, one.deliveries) for one in again] == [(3, 2)]
    member.acknowledge("ACCEPT", 3)
    assert member.commit() == {0: "NONE"}
    member.leave()
    other = client.join(topic, group)
    assert collect(other.poll, 1, 3.0) == []
    other.leave()


def test_a_little_of_a_large_batch_comes_again(
    client: ClientOfShares, topic: str, group: str, reference: Client
) -> None:
    """The broker sends that part of the batch alone."""
    reference.produce(topic, numbered(1_000, size=100))
    member = client.join(topic, group, explicit=True)
    first = collect(member.poll, 1_000)
    released = {500, 502, 503}
    member.acknowledge("ACCEPT", *({*range(1_000)} - released))
    member.acknowledge("RELEASE", *released)
    assert member.commit() == {0: "NONE"}
    again = collect(member.poll, 3)
    assert [(one.offset, one.value, one.deliveries) for one in again] == [
        (one.offset, one.value, 2) for one in first if one.offset in released
    ]
    member.acknowledge("ACCEPT", *released)
    assert member.commit() == {0: "NONE"}
    member.leave()


def test_what_a_member_leaves_behind_is_given_to_others(
    client: ClientOfShares, topic: str, group: str, reference: Client
) -> None:
    reference.produce(topic, numbered(3))
    member = client.join(topic, group, explicit=True)
    assert len(collect(member.poll, 3)) == 3
    member.acknowledge("ACCEPT", 0)
    member.acknowledge("RELEASE", 1, 2)
    member.leave()
    other = client.join(topic, group)
    assert [(one.offset, one.deliveries) for one in collect(other.poll, 2)] == [(1, 2), (2, 2)]
    other.leave()


def test_a_record_is_given_up_after_so_many_deliveries(
    client: ClientOfShares, topic: str, group: str, reference: Client, driver: ShareDriver
) -> None:
    driver.configure(group, {"share.delivery.count.limit": "2"})
    reference.produce(topic, numbered(1))
    member = client.join(topic, group, explicit=True)
    for deliveries in (1, 2):
        (taken,) = collect(member.poll, 1)
        assert taken.deliveries == deliveries
        member.acknowledge("RELEASE", 0)
        assert member.commit() == {0: "NONE"}
    assert collect(member.poll, 1, 3.0) == []
    member.leave()


# What Kafka's own client and tools alone can do


def test_a_lock_is_renewed(driver: ShareDriver, topic: str, group: str, reference: Client) -> None:
    driver.configure(group, {"share.record.lock.duration.ms": "15000"})
    reference.produce(topic, numbered(1))
    member: JavaMember = driver.join(topic, group, explicit=True)
    assert len(collect(member.poll, 1)) == 1
    assert member.lock_ms() == 15_000
    member.acknowledge("RENEW", 0)
    assert member.commit() == {0: "NONE"}
    assert [one.offset for one in collect(member.poll, 1)] == [0]  # as before, once more
    member.acknowledge("ACCEPT", 0)
    assert member.commit() == {0: "NONE"}
    member.leave()


def test_no_more_records_than_a_member_wants(
    driver: ShareDriver, topic: str, group: str, reference: Client
) -> None:
    reference.produce(topic, numbered(50))
    member = driver.join(topic, group, share_acquire_mode="record_limit", max_poll_records="7")
    polls = []
    for _ in range(40):
        if found := member.poll(0.5):
            polls.append(len(found))
        if sum(polls) == 50:
            break
    assert sum(polls) == 50
    assert max(polls) <= 7
    member.leave()


def test_administration(
    driver: ShareDriver, topic: str, group: str, reference: Client, request: pytest.FixtureRequest
) -> None:
    reference.produce(topic, numbered(10))
    member = driver.join(topic, group, explicit=True)
    assert len(collect(member.poll, 10)) == 10
    member.acknowledge("ACCEPT", *range(4))
    member.acknowledge("RELEASE", *range(4, 10))
    assert member.commit() == {0: "NONE"}
    assert driver.ask("describe", group=group) == {"state": "Stable", "members": [[0]]}
    if request.config.getoption("--target") == "qbus":  # Kafka tells some time later, and no lag
        offsets = {f"{topic}-0": [4, 6]}
        wait_until(lambda: driver.ask("offsets", group=group) == offsets, "the offsets")
    member.leave()
    assert driver.ask("describe", group=group) == {"state": "Empty", "members": []}
    driver.ask("deleteGroup", group=group)


def test_tools(topic: str, group: str, reference: Client, bootstrap: str) -> None:
    skip_because_of(kafka.missing())

    def run(tool: str, *arguments: str) -> str:
        result = java.run(
            f"org.apache.kafka.tools.{tool}",
            *("--bootstrap-server", bootstrap, *arguments),
            timeout=90,
            options=java.SHORT_RUN_OPTIONS,
        )
        output = result.stdout.decode()
        assert result.returncode == 0, output + result.stderr.decode()
        return output

    groups = "consumer.group.ShareGroupCommand"
    reference.produce(topic, numbered(10))
    reading = ("--topic", topic, "--group", group, "--max-messages", "10", "--timeout-ms", "30000")
    consumed = run("consumer.ConsoleShareConsumer", *reading)
    assert consumed.split() == expected(0, 10)
    assert group in run(groups, "--list").split()
    described = run(groups, "--describe", "--group", group).split()
    assert topic in described
    assert "Empty" in run(groups, "--describe", "--group", group, "--state")
    run(
        groups,
        *("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"),
    )
    assert run("consumer.ConsoleShareConsumer", *reading).split() == expected(0, 10)
    run(groups, "--delete-offsets", "--group", group, "--topic", topic)
    assert "successful" in run(groups, "--delete", "--group", group)
    assert group not in run(groups, "--list").split()


def test_the_tool_for_configurations(group: str, bootstrap: str) -> None:
    skip_because_of(kafka.missing())
    result = java.run(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", bootstrap, "--entity-type", "groups", "--entity-name", group),
        "--describe",
        timeout=60,
        options=java.SHORT_RUN_OPTIONS,
    )
    assert "share.auto.offset.reset=earliest" in result.stdout.decode()
