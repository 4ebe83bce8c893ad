"""Every client shares a topic in a group, and the group goes on where it stopped."""

from collections.abc import Iterator

import pytest

from tests.support.waiting import wait_until

from .clients import Client
from .members import Member
from .records import Record, numbered
from .selection import clients_with

pytestmark = pytest.mark.compat

PARTITIONS = 4


class Crew:
    """Members of one group; those that are left at the end are killed."""

    def __init__(self, client: Client, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._members: list[Member] = []

    def join(self) -> Member:
        """Start another member."""
        member = self._client.member(self._topic, self._topic)
        self._members.append(member)
        return member

    def consumed(self) -> list[tuple[int, int]]:
        """Return the places of all records that any member has consumed and committed."""
        return [place for member in self._members for place in member.consumed]

    def disband(self) -> None:
        """Kill the members that still run."""
        for member in self._members:
            if member.alive:
                member.kill()


@pytest.fixture
def crew(client: Client, name: str, reference: Client) -> Iterator[Crew]:
    """Return a crew over a topic of four partitions."""
    reference.create_topic(name, PARTITIONS)
    crew = Crew(client, name)
    yield crew
    crew.disband()


def produce_everywhere(reference: Client, topic: str, count: int) -> None:
    """Add records to each partition."""
    for partition in range(PARTITIONS):
        reference.produce(topic, numbered(count), partition=partition)


def wait_shared(first: Member, second: Member) -> None:
    """Wait until two members own two partitions each, and between them all four."""
    wait_until(
        lambda: (
            len(first.assigned) == len(second.assigned) == 2
            and not first.assigned & second.assigned
        ),
        f"two members to share\n{first.output()}\n{second.output()}",
    )


@clients_with("member")
def test_rebalances_when_members_join_leave_and_die(
    client: Client, crew: Crew, name: str, reference: Client
) -> None:
    everything = {(partition, offset) for partition in range(PARTITIONS) for offset in range(15)}

    first = crew.join()
    first.wait_assigned(PARTITIONS)
    produce_everywhere(reference, name, 5)
    wait_until(lambda: len(crew.consumed()) >= 20, "the first records")

    second = crew.join()
    wait_shared(first, second)
    produce_everywhere(reference, name, 5)
    wait_until(lambda: len(crew.consumed()) >= 40, "the second records")

    second.leave()
    first.wait_assigned(PARTITIONS)

    third = crew.join()
    wait_shared(first, third)
    third.kill()
    produce_everywhere(reference, name, 5)
    first.wait_assigned(PARTITIONS)
    wait_until(lambda: len(set(crew.consumed())) >= len(everything), "the last records")

    # Nothing is consumed twice: members commit what they consume before they tell of it.
    assert sorted(crew.consumed()) == sorted(everything)
    first.leave()
    wait_until(lambda: reference.describe_group(name) == ("EMPTY", ()), "the group to be empty")


@clients_with("consume_group")
def test_resumes_where_it_committed(client: Client, topic: str, reference: Client) -> None:
    reference.produce(topic, numbered(10))
    first = client.consume_group(topic, topic, 4)
    assert [one.offset for one in first] == [0, 1, 2, 3]
    assert reference.committed(topic, 0, topic) == 4
    second = client.consume_group(topic, topic, 6)
    assert [one.offset for one in second] == [4, 5, 6, 7, 8, 9]


@clients_with("consume_group")
def test_groups_do_not_share_offsets(client: Client, topic: str, reference: Client) -> None:
    reference.produce(topic, [Record(None, b"for all")])
    for group in (f"{topic}-a", f"{topic}-b"):
        (found,) = client.consume_group(topic, group, 1)
        assert found.offset == 0


@clients_with("consume_group")
def test_a_group_name_may_hold_anything(client: Client, topic: str, reference: Client) -> None:
    group = f"{topic}/../ü %2F"
    reference.produce(topic, numbered(2))
    client.consume_group(topic, group, 1)
    (found,) = client.consume_group(topic, group, 1)
    assert found.offset == 1
    assert group in reference.groups()


@clients_with("committed")
def test_reads_committed_offsets(client: Client, topic: str, reference: Client) -> None:
    reference.produce(topic, numbered(3))
    assert client.committed(topic, 0, topic) == -1
    reference.consume_group(topic, topic, 2)
    assert client.committed(topic, 0, topic) == 2


@clients_with("commit")
def test_moves_an_empty_group(client: Client, topic: str, reference: Client) -> None:
    reference.produce(topic, numbered(5))
    reference.consume_group(topic, topic, 5)
    client.commit(topic, 0, topic, 3)
    assert reference.committed(topic, 0, topic) == 3
    (found,) = reference.consume_group(topic, topic, 1)
    assert found.offset == 3
