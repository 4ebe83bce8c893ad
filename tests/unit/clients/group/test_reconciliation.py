"""Members of the consumer protocol through joins, leaves, deaths, idleness and lost answers.

In virtual time, against the broker's own state machine. Every partition has one owner at a time, no
commit goes back or is of somebody else's partition, users are told in time, and in the end
everything is read. A failure names its seed.
"""

import asyncio
import os
import re
from typing import Any

import pytest

from qbus.clients.errors import ConnectionFailed
from qbus.clients.group.epochs import EpochState
from qbus.clients.group.state import Phase
from qbus.clients.types import OffsetAndMetadata, TopicPartition
from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from qbus.wire.messages.offset_commit import OffsetCommitRequest
from tests.support.waiting import eventually
from tests.unit.clients.group.consumer_world import Coordinator, Reader, World
from tests.unit.clients.group.test_simulation import storm
from tests.unit.clients.group.world import run

SEED = int(os.environ.get("QBUS_SEED", "0"))
T0 = TopicPartition("t", 0)


@pytest.mark.parametrize("seed", range(SEED, SEED + 12))
def test_one_owner_and_no_step_back(seed: int) -> None:
    world = World(seed, {"t": 4, "u": 2}, loss=0.02 * (seed % 4))

    async def main() -> None:
        world.reader(("t", "u"))
        await storm(world, [()], rounds=25)
        world.loss = 0.0
        world.reader(("t", "u"))
        await world.until_stable()
        assert [r.failure for r in world.readers if r.failure] == []
        for reader in world.readers:
            read = {p: reader.assignment.position(p) or 0 for p in reader.owned}
            may_commit = not reader.rebalance.state.is_lost
            await reader.close()
            for partition, position in read.items():
                assert not may_commit or world.coordinator.committed.get(partition, 0) >= position

    run(main())
    assert world.wrong == []
    assert world.coordinator.wrong == []
    assert world.coordinator.group.epoch > 4
    assert world.coordinator.refused["NONE"] > 20


def test_those_who_stay_keep_reading_what_does_not_move() -> None:
    world = World(1, {"t": 6})

    async def main() -> None:
        first = world.reader()
        await world.until_stable()
        had = set(first.owned)
        second = world.reader()
        least = len(had)
        for _ in range(100):
            await asyncio.sleep(0.05)
            least = min(least, len(first.owned))
        assert (least, len(second.owned)) == (3, 3)
        assert first.owned < had
        told = [what for what, partitions in first.told if partitions]
        assert told == ["assigned", "revoked"]

    run(main())


def test_a_pattern_takes_in_topics_that_come_later() -> None:
    world = World(2, {"t-a": 1})

    async def main() -> None:
        world.reader(re.compile("t-.*"))
        await world.until_stable()
        world.topics["t-b"] = 2
        await world.until_stable()

    run(main())


def test_a_member_that_closes_leaves_at_once_and_a_static_one_for_a_while() -> None:
    world = World(3, {"t": 2})

    async def main() -> None:
        first, second = world.reader(), world.reader(("t",), None, "i")
        await world.until_stable()
        await second.close()
        assert len(world.coordinator.group.members) == 2
        await first.close()
        (left,) = world.coordinator.group.members
        assert left.member_id == second.rebalance.state.membership.member_id
        assert world.coordinator.committed.keys() == {T0, TopicPartition("t", 1)}

    run(main())


def test_a_commit_in_an_epoch_that_is_over_is_sent_again_in_the_new_one() -> None:
    world = World(4, {"t": 2})

    async def main() -> None:
        first = world.reader()
        await world.until_stable()
        first.task.cancel()
        world.coordinator.group.topics_changed(["t"], asyncio.get_running_loop().time())
        world.topics["t"] = 3
        await asyncio.sleep(0.1)
        done = first.rebalance.commits.submit({T0: OffsetAndMetadata(10**6)})
        # The coordinator has a new epoch; the next heartbeat, which the refusal hurries, brings it.
        world.coordinator.pass_time(asyncio.get_running_loop().time())
        await done
        assert world.coordinator.committed[T0] == 10**6

    run(main())


def test_a_member_that_lost_its_place_commits_nothing_of_before() -> None:
    world = World(5, {"t": 2})

    async def main() -> None:
        first = world.reader()
        await world.until_stable()
        first.task.cancel()
        before = first.rebalance.state.membership
        first.rebalance.state.lose()
        with pytest.raises(ApiError, match="lost its place"):
            await first.rebalance.commits.submit({T0: OffsetAndMetadata(10**6)})
        first.rebalance.state.follow(before.generation + 5)
        assert not first.rebalance.state.is_of_this_stay(before)

    run(main())


def test_the_list_has_a_partition_until_its_last_commit_is_done() -> None:
    world = World(6, {"t": 2})

    class Hasty(Reader):
        """Commits when it gives partitions up, and does not wait for the answer."""

        async def _revoked(self, partitions: list[TopicPartition]) -> None:
            self.rebalance.commits.submit({one: OffsetAndMetadata(10**6) for one in partitions})
            await super()._revoked(partitions)

    async def main() -> None:
        first = Hasty(world, ("t",))
        world.readers.append(first)
        await world.until_stable()

        async def answer(request: Any) -> Any:
            if isinstance(request, OffsetCommitRequest):
                await asyncio.sleep(1.5)
            result = await Coordinator.answer(world.coordinator, request)
            if len(first.owned) == 1 and not losses:
                losses.append(request)
                raise ConnectionFailed("the answer is lost, and the next heartbeat says everything")
            return result

        losses: list[Any] = []
        world.coordinator.answer = answer
        world.reader()
        await world.until_stable()
        assert losses

    run(main())
    assert world.wrong == []
    assert world.coordinator.wrong == []


def test_nothing_is_taken_over_that_a_list_under_way_does_not_have() -> None:
    world = World(7, {"t": 2})

    async def main() -> None:
        first = world.reader()
        first.is_slow = True  # after its first poll: its heartbeats go on
        await asyncio.sleep(1.0)  # it is told to take both over
        lists: list[int] = []

        async def answer(request: Any) -> Any:
            result = await Coordinator.answer(world.coordinator, request)
            member_id = first.rebalance.state.membership.member_id
            if isinstance(request, OffsetCommitRequest) or request.member_id != member_id:
                return result
            if not lists and result.assignment is not None:
                lists.append(-1)
                raise ConnectionFailed("the answer that takes one back is lost")
            if lists and request.topic_partitions is not None:
                lists.append(len(request.topic_partitions))
                await asyncio.sleep(1.5)  # meanwhile the other one takes it
            return result

        world.coordinator.answer = answer
        second = world.reader()
        await eventually(lambda: second.owned)
        assert lists == [-1, 0]
        first.task.cancel()
        first.task = asyncio.create_task(first.live())
        await world.until_stable()

    run(main())
    assert world.wrong == []
    assert world.coordinator.wrong == []


def test_a_commit_on_closing_gets_the_epoch_that_it_needs() -> None:
    world = World(8, {"t": 2})

    class Careful(Reader):
        """Commits when it gives partitions up, and waits for the answer."""

        async def _revoked(self, partitions: list[TopicPartition]) -> None:
            offsets = {one: OffsetAndMetadata(10**6) for one in partitions}
            await self.rebalance.commits.submit(offsets)
            await super()._revoked(partitions)

    async def main() -> None:
        first = Careful(world, ("t",))
        world.readers.append(first)
        await world.until_stable()
        first.task.cancel()
        coordinator, now = world.coordinator, asyncio.get_running_loop().time()
        coordinator.group.topics_changed(["t"], now)
        coordinator.heartbeat(_beat_of(first), now)  # its answer is lost: a new epoch
        (member,) = coordinator.group.members
        member.gave_up_in = member.previous_epoch  # no commit of that epoch counts any more
        await first.rebalance.close(may_commit=False)
        assert coordinator.committed[T0] == 10**6

    run(main())


def test_a_commit_on_closing_is_done_though_a_callback_fails() -> None:
    world = World(10, {"t": 2})

    class Failing(Reader):
        """Commits when it gives partitions up, and fails."""

        async def _revoked(self, partitions: list[TopicPartition]) -> None:
            self.rebalance.commits.submit({one: OffsetAndMetadata(10**6) for one in partitions})
            raise ValueError("a defect")

    async def main() -> None:
        first = Failing(world, ("t",))
        world.readers.append(first)
        await world.until_stable()
        first.task.cancel()
        with pytest.raises(ValueError, match="a defect"):
            await first.rebalance.close(may_commit=False)
        assert world.coordinator.committed[T0] == 10**6

    run(main())


def test_closing_ends_while_commits_of_what_is_given_up_are_under_way() -> None:
    world = World(9, {"t": 2})

    async def main() -> None:
        first = world.reader()
        await world.until_stable()

        async def answer(request: Any) -> Any:
            if isinstance(request, OffsetCommitRequest):
                raise ConnectionFailed("commits do not get through")
            return await Coordinator.answer(world.coordinator, request)

        world.coordinator.answer = answer
        world.reader()
        await eventually(lambda: len(first.owned) == 1)
        async with asyncio.timeout(10):
            await first.close()

    run(main())


def _beat_of(reader: Reader) -> ConsumerGroupHeartbeatRequest:
    member_id, epoch, _ = reader.rebalance.state.membership
    return ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch)


class TestEpochState:
    """The place of a member, by itself."""

    async def test_it_has_none_before_the_first_answer(self) -> None:
        state = EpochState("m", "i")
        assert (state.epoch, state.is_lost, state.phase) == (0, True, Phase.UNJOINED)
        state.follow(3)
        assert (state.epoch, state.is_lost, state.phase) == (3, False, Phase.STABLE)
        assert state.membership == ("m", 3, "i")

    async def test_a_stay_lasts_through_all_epochs_until_the_place_is_lost(self) -> None:
        state = EpochState("m")
        state.follow(3)
        then = state.membership
        state.follow(4)
        assert state.is_of_this_stay(then)
        state.lose()
        assert not state.is_of_this_stay(then)
        state.follow(6)
        assert not state.is_of_this_stay(then)

    @pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
    async def test_a_commit_tells_that_the_place_is_lost(self, code: ErrorCode) -> None:
        state = EpochState("m")
        state.follow(3)
        state.commit_refused(ApiError(code), state.membership)
        assert state.is_expelled
        state.lose()
        state.follow(7)
        assert not state.is_expelled

    async def test_what_a_commit_of_an_earlier_stay_is_told_says_nothing(self) -> None:
        state = EpochState("m")
        state.follow(3)
        then = state.membership
        state.lose()
        state.follow(5)
        state.commit_refused(ApiError(ErrorCode.UNKNOWN_MEMBER_ID), then)
        assert not state.is_expelled
        state.commit_refused(ApiError(ErrorCode.OFFSET_METADATA_TOO_LARGE), state.membership)
        assert not state.is_expelled

    async def test_a_fenced_instance_cannot_continue(self) -> None:
        state = EpochState("m", "i")
        state.follow(3)
        state.commit_refused(ApiError(ErrorCode.FENCED_INSTANCE_ID), state.membership)
        assert state.failure is not None

    async def test_waits_for_a_newer_epoch(self) -> None:
        state = EpochState("m")
        state.follow(3)
        waiting = asyncio.ensure_future(state.newer(state.membership))
        await asyncio.sleep(0)
        state.follow(3)
        await asyncio.sleep(0)
        assert not waiting.done()
        state.follow(4)
        await waiting
