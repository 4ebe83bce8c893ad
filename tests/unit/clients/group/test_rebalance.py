"""What members of a group see of it: partitions that come, go and are lost, told at the right time.

In virtual time, against the model of a coordinator.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from qbus.clients.types import TopicPartition
from qbus.errors import ApiError, ErrorCode
from tests.unit.clients.group.world import MAX_POLL, Reader, World, run

COOPERATIVE = ("cooperative-sticky",)


def t(*indexes: int) -> list[TopicPartition]:
    return [TopicPartition("t", index) for index in indexes]


def in_a_world(
    play: Callable[[World], Coroutine[Any, Any, None]],
) -> Callable[[], None]:
    """A test in a world of one topic with four partitions, in which nobody does wrong."""

    def test() -> None:
        world = World(7, {"t": 4})

        async def main() -> None:
            await play(world)
            for reader in world.readers:
                await reader.close()

        run(main())
        assert world.wrong == []
        assert world.coordinator.wrong == []

    test.__name__ = play.__name__
    return test


def kinds(reader: Reader) -> list[str]:
    return [kind for kind, _ in reader.told]


@in_a_world
async def test_eager_members_give_up_everything_in_each_rebalance(world: World) -> None:
    first = world.reader()
    await world.until_stable()
    world.reader()
    await world.until_stable()
    assert first.told == [
        ("assigned", t(0, 1, 2, 3)),
        ("revoked", t(0, 1, 2, 3)),
        ("assigned", t(0, 1)),
    ]


@in_a_world
async def test_cooperative_members_give_up_only_what_moves(world: World) -> None:
    first = world.reader(assignors=COOPERATIVE)
    await world.until_stable()
    before = {one: first.assignment.states[one] for one in t(0, 1)}
    second = world.reader(assignors=COOPERATIVE)
    await world.until_stable()
    assert first.told == [
        ("assigned", t(0, 1, 2, 3)),
        ("revoked", t(2, 3)),
        ("assigned", []),
        ("assigned", []),
    ]
    assert second.told == [("assigned", []), ("assigned", t(2, 3))]
    after = {one: first.assignment.states[one] for one in t(0, 1)}
    assert all(after[one] is before[one] for one in after), "they were read all the time"


@in_a_world
async def test_with_an_eager_assignor_in_the_list_everything_stops(world: World) -> None:
    first = world.reader(assignors=("cooperative-sticky", "range"))
    await world.until_stable()
    world.reader(assignors=COOPERATIVE)
    await world.until_stable()
    assert world.coordinator.protocol == "cooperative-sticky"
    assert first.told[1] == ("revoked", t(0, 1, 2, 3))


@in_a_world
async def test_a_group_takes_the_assignor_that_all_have(world: World) -> None:
    world.reader(assignors=("range", "sticky"))
    world.reader(assignors=("roundrobin", "sticky"))
    await world.until_stable()
    assert world.coordinator.protocol == "sticky"


@in_a_world
async def test_sticky_members_get_back_what_they_had(world: World) -> None:
    first = world.reader(assignors=("sticky",))
    second = world.reader(assignors=("sticky",))
    await world.until_stable()
    before = set(first.owned)
    world.reader(assignors=("sticky",))
    await world.until_stable()
    assert first.owned <= before
    assert len(first.owned | second.owned) == 3


@in_a_world
async def test_who_is_idle_for_too_long_leaves(world: World) -> None:
    reader = world.reader()
    await world.until_stable()
    reader.is_slow = True
    await asyncio.sleep(MAX_POLL / 2)
    assert list(world.coordinator.members) == ["m001"], "heartbeats need no polls"
    await asyncio.sleep(MAX_POLL / 2 + 2)
    assert world.coordinator.members == {}
    await world.until_stable()
    assert kinds(reader) == ["assigned", "lost", "assigned"]


@in_a_world
async def test_others_do_not_wait_for_the_idle(world: World) -> None:
    idle = world.reader()
    await world.until_stable()
    idle.is_slow = True
    other = world.reader()
    await asyncio.sleep(MAX_POLL + 3)
    assert other.owned == set(t(0, 1, 2, 3))
    await world.until_stable()
    assert kinds(idle)[:2] == ["assigned", "lost"]
    assert idle.owned


@in_a_world
async def test_an_expelled_member_loses_its_partitions_and_joins_again(world: World) -> None:
    reader = world.reader()
    await world.until_stable()
    world.coordinator._drop("m001", ErrorCode.UNKNOWN_MEMBER_ID)
    await asyncio.sleep(2)
    await world.until_stable()
    assert kinds(reader) == ["assigned", "lost", "assigned"]
    assert list(world.coordinator.members) == ["m002"]


@in_a_world
async def test_a_static_member_returns_and_another_replaces_it(world: World) -> None:
    reader = world.reader(instance="i")
    await world.until_stable()
    world.readers.clear()
    await reader.close()
    assert len(world.coordinator.members) == 1, "it did not leave"
    world.reader(instance="i")
    await world.until_stable()


def test_a_fenced_instance_has_lost_everything_for_good() -> None:
    world = World(7, {"t": 4})

    async def main() -> None:
        first = world.reader(instance="i")
        await world.until_stable()
        world.readers.clear()
        second = world.reader(instance="i")
        await asyncio.sleep(5)
        assert first.failure is not None
        assert first.failure.code is ErrorCode.FENCED_INSTANCE_ID
        assert not first.failure.retriable
        assert kinds(first) == ["assigned", "lost"]
        with pytest.raises(ApiError):
            await first.rebalance.poll()
        await first.close()
        assert second.failure is None
        await second.close()

    run(main())


@in_a_world
async def test_topics_that_match_a_pattern_come_and_go(world: World) -> None:
    reader = world.reader(re.compile("t|news-.*"))
    world.reader(re.compile("t|news-.*"))
    await world.until_stable()
    world.topics["news-1"] = 2
    world.topics["unwanted-news-1"] = 2
    await asyncio.sleep(6)
    owned = {one.topic for one in world.owned()}
    assert owned == {"t", "news-1"}
    del world.topics["news-1"], world.topics["unwanted-news-1"]
    await world.until_stable()
    assert {one.topic for one in reader.owned} == {"t"}


@in_a_world
async def test_another_pattern_revokes_no_matching_topic(world: World) -> None:
    reader = world.reader(re.compile("t"), assignors=COOPERATIVE)
    await world.until_stable()
    world.topics["u"] = 1
    reader.subscribe(re.compile("[tu]"))
    await asyncio.sleep(3)
    await world.until_stable()
    assert kinds(reader) == ["assigned", "assigned"]
    world.topics = {"u": 1}
    reader.subscribe(["u"])
    await asyncio.sleep(3)
    assert reader.told[2:] == [("revoked", t(0, 1, 2, 3)), ("assigned", [])]


@in_a_world
async def test_partitions_that_are_added_are_shared_out(world: World) -> None:
    world.reader(assignors=COOPERATIVE)
    world.reader(assignors=COOPERATIVE)
    await world.until_stable()
    world.topics["t"] = 6
    await asyncio.sleep(4)
    await world.until_stable()
    assert sorted(len(reader.owned) for reader in world.readers) == [3, 3]


@in_a_world
async def test_the_leader_watches_what_others_want(world: World) -> None:
    world.topics["u"] = 1
    world.reader(("t",))
    world.reader(("u",))
    await world.until_stable()
    generation = world.coordinator.generation
    await asyncio.sleep(10)
    assert world.coordinator.generation == generation, "nothing has changed"
    world.topics["u"] = 3
    await asyncio.sleep(4)
    await world.until_stable()


@in_a_world
async def test_closing_commits_tells_and_leaves(world: World) -> None:
    reader = world.reader()
    await world.until_stable()
    world.readers.clear()
    await reader.close()
    assert reader.told[-1] == ("revoked", t(0, 1, 2, 3))
    assert world.coordinator.members == {}
    assert min(world.coordinator.committed.values()) > 0


def test_a_poll_raises_callback_errors_after_the_change() -> None:
    world = World(7, {"t": 4})

    async def main() -> None:
        reader = world.reader()
        reader.task.cancel()
        await asyncio.gather(reader.task, return_exceptions=True)

        def fails(partitions: list[TopicPartition]) -> None:
            raise ValueError(len(partitions))

        options = reader.rebalance._options.callbacks
        object.__setattr__(options, "on_assigned", fails)
        raised: list[Exception] = []
        for _ in range(40):
            try:
                await reader.rebalance.poll()
            except ValueError as error:
                raised.append(error)
            await asyncio.sleep(0.1)
        assert [str(error) for error in raised] == ["4"]
        assert sorted(reader.assignment) == t(0, 1, 2, 3)
        object.__setattr__(options, "on_revoked", fails)
        with pytest.raises(ValueError, match="4"):
            await reader.rebalance.close(may_commit=True)
        assert world.coordinator.members == {}, "it left all the same"

    run(main())
