"""Who comes in sync and who falls out of it: what is written, and what becomes of refusals."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qbus.broker.partition.partition import ACKS_ALL, Partition
from qbus.metadata import (
    Check,
    NoNode,
    Set,
    StoreError,
    StoreUnavailable,
    TransactionTooLarge,
    VersionConflict,
)
from qbus.metadata.znodes import (
    CONTROLLER_EPOCH,
    BrokerEpochNode,
    ChangeNode,
    PartitionStateNode,
)
from tests.support.data_plane import NODE, DataPlane
from tests.support.following import EPOCH, OTHER, THIRD, Follower, at, lead, put, state
from tests.support.logs import batch
from tests.support.waiting import eventually

LAG_S = 30.0
EVERYBODY = (NODE, OTHER, THIRD)
STATE = PartitionStateNode.path("orders", 0)
OTHERS_EPOCH = BrokerEpochNode.path(OTHER)


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[DataPlane]:
    plane = DataPlane(tmp_path)
    await plane.start()
    yield plane
    await plane.stop()


async def lead_alone(plane: DataPlane, partitions: int = 1) -> Partition:
    """Lead partitions of which nobody else is in sync."""
    alone = state((NODE,), version=4)
    await put(plane, *[alone] * partitions, qbus_durability="memory")
    return plane.partition("orders")


async def written(plane: DataPlane, count: int) -> list[tuple[str, tuple[int, ...], int]]:
    """Which in-sync replicas were to be written in place of which version."""
    await eventually(lambda: len(plane.store.states()) >= count)
    return [(path, state.isr, version) for path, state, version in plane.store.states()]


class TestComingInSync:
    async def test_who_has_everything_comes_in_sync(self, plane: DataPlane) -> None:
        partition = await lead_alone(plane)
        partition.append(batch(b"a", b"b"), 1)
        await Follower(plane).fetch(at(1))
        assert plane.store.transactions == []
        await Follower(plane).fetch(at(2))
        assert await written(plane, 1) == [(STATE, (NODE, OTHER), 4)]
        await eventually(lambda: partition.isr == (NODE, OTHER))
        assert plane.replicas.isr_changes.expands == 1

    async def test_the_controller_and_the_registration_are_checked_with_it(
        self, plane: DataPlane
    ) -> None:
        await lead_alone(plane)
        await Follower(plane).fetch(at(0))
        await written(plane, 1)
        (operations,) = plane.store.transactions
        fence, set_state, registration, change = operations
        assert fence == Check(CONTROLLER_EPOCH, 0)
        assert isinstance(set_state, Set)
        assert registration == Check(OTHERS_EPOCH, EPOCH)
        assert ChangeNode.decode(change.data).states == {"orders": (0,)}  # type: ignore[union-attr]

    async def test_nothing_is_acknowledged_without_the_one_that_may_be_in_sync(
        self, plane: DataPlane
    ) -> None:
        partition = await lead_alone(plane)
        plane.store.failures = [StoreUnavailable("no answer")]
        await Follower(plane).fetch(at(0))
        await written(plane, 1)
        partition.append(batch(b"a"), ACKS_ALL)
        assert partition.high_watermark == 0
        await Follower(plane).fetch(at(1))
        assert partition.high_watermark == 1

    async def test_many_partitions_go_together(self, plane: DataPlane) -> None:
        await lead_alone(plane, 5)
        await Follower(plane).fetch(*(at(0, index) for index in range(5)))
        await written(plane, 5)
        assert len(plane.store.transactions) == 1


class TestFallingOut:
    async def test_who_is_slow_falls_out_of_sync(self, plane: DataPlane) -> None:
        partition = await lead(plane)
        partition.append(batch(b"a"), ACKS_ALL)
        plane.clock.advance(LAG_S - 1)
        await Follower(plane, OTHER).fetch(at(1))
        plane.clock.advance(2)
        plane.replicas.isr_changes.check()
        assert (await written(plane, 1))[0] == (STATE, (NODE, OTHER), 0)
        await eventually(lambda: partition.high_watermark == 1)
        assert plane.replicas.isr_changes.shrinks == 1

    async def test_who_goes_on_asking_in_its_session_stays_in_sync(self, plane: DataPlane) -> None:
        """Without naming the partition: it has all of it."""
        await lead(plane)
        followers = [Follower(plane, node) for node in (OTHER, THIRD)]
        for follower in followers:
            await follower.fetch(at(0))
        for _ in range(5):
            plane.clock.advance(LAG_S / 2)
            for follower in followers:
                await follower.fetch()
            plane.replicas.isr_changes.check()
        assert plane.store.transactions == []

    async def test_who_asks_and_gets_nowhere_falls_out(self, plane: DataPlane) -> None:
        partition = await lead(plane)
        partition.append(batch(b"a"), 1)
        stuck, good = Follower(plane, OTHER), Follower(plane, THIRD)
        await stuck.fetch(at(0))
        await good.fetch(at(1))
        for _ in range(3):
            plane.clock.advance(LAG_S / 2)
            await stuck.fetch()
            await good.fetch()
            plane.replicas.isr_changes.check()
        assert (await written(plane, 1))[0] == (STATE, (NODE, THIRD), 0)

    async def test_eligible_ones_are_written_off_in_a_change_of_its_own(
        self, plane: DataPlane
    ) -> None:
        """From memory: whoever falls out stays eligible until the leader goes on without."""
        partition = await lead(plane)
        plane.clock.advance(LAG_S + 1)
        await Follower(plane, OTHER).fetch(at(0))
        plane.replicas.isr_changes.check()
        await written(plane, 2)
        assert [(one.isr, one.elr, v) for _, one, v in plane.store.states()] == [
            ((NODE, OTHER), (THIRD,), 0),
            ((NODE, OTHER), (), 1),
        ]
        await eventually(lambda: partition.isr == (NODE, OTHER))


class TestRefusals:
    async def after(self, plane: DataPlane, failure: StoreError) -> Partition:
        """Broker 2 may come in sync, but the first attempt to write it fails."""
        partition = await lead_alone(plane)
        plane.store.failures = [failure]
        await Follower(plane).fetch(at(0))
        await written(plane, 1)
        return partition

    async def test_a_stale_version_is_tried_again_until_the_outcome_is_known(
        self, plane: DataPlane
    ) -> None:
        partition = await self.after(plane, VersionConflict(STATE))
        assert partition.followers is not None
        assert partition.followers.proposed is not None
        plane.store.failures = [VersionConflict(STATE)]
        plane.replicas.isr_changes.retry()
        first, second = await written(plane, 2)
        assert first == second
        await put(plane, state((NODE,), version=9))
        assert partition.followers.proposed is None

    async def test_a_lost_answer_is_asked_for_again(self, plane: DataPlane) -> None:
        partition = await self.after(plane, StoreUnavailable("no answer"))
        plane.replicas.isr_changes.retry()
        first, second = await written(plane, 2)
        assert first == second
        await eventually(lambda: partition.isr == (NODE, OTHER))

    async def test_another_controller_is_waited_for(self, plane: DataPlane) -> None:
        partition = await self.after(plane, VersionConflict(CONTROLLER_EPOCH))
        assert partition.followers is not None
        assert partition.followers.proposed is not None
        plane.replicas.isr_changes.retry()
        await eventually(lambda: partition.isr == (NODE, OTHER))

    async def test_who_is_registered_anew_has_to_ask_anew(self, plane: DataPlane) -> None:
        partition = await self.after(plane, VersionConflict(OTHERS_EPOCH))
        followers = partition.followers
        assert followers is not None
        await eventually(lambda: followers.proposed is None)
        assert partition.isr == (NODE,)

    async def test_one_that_is_stale_does_not_hold_the_others_up(self, plane: DataPlane) -> None:
        await lead_alone(plane, 3)
        plane.store.failures = [VersionConflict(PartitionStateNode.path("orders", 1))]
        await Follower(plane).fetch(*(at(0, index) for index in range(3)))
        await written(plane, 5)
        isrs = [plane.partition("orders", index).isr for index in range(3)]
        assert isrs == [(NODE, OTHER), (NODE,), (NODE, OTHER)]

    async def test_a_topic_that_is_gone_does_not_either(self, plane: DataPlane) -> None:
        await lead_alone(plane, 2)
        plane.store.failures = [NoNode(STATE)]
        await Follower(plane).fetch(at(0, 0), at(0, 1))
        await written(plane, 3)
        assert plane.partition("orders", 1).isr == (NODE, OTHER)

    async def test_what_is_too_much_at_once_is_written_in_parts(self, plane: DataPlane) -> None:
        await lead_alone(plane, 4)
        plane.store.failures = [TransactionTooLarge("1 MiB")]
        await Follower(plane).fetch(*(at(0, index) for index in range(4)))
        await written(plane, 8)
        await eventually(lambda: plane.partition("orders", 3).isr == (NODE, OTHER))
        assert [len(ops) - 3 for ops in plane.store.transactions] == [4, 2, 2]

    async def test_who_does_not_lead_any_more_writes_nothing(self, plane: DataPlane) -> None:
        await self.after(plane, StoreUnavailable("no answer"))
        await put(plane, state(leader=OTHER, leader_epoch=1, version=5))
        plane.replicas.isr_changes.retry()
        plane.replicas.isr_changes.check()
        assert len(await written(plane, 1)) == 1


class TestWritingOff:
    async def test_who_is_still_eligible_is_written_off_at_once(self, plane: DataPlane) -> None:
        """The controller only took it out of sync, and until then nothing is acknowledged."""
        await lead(plane)
        await put(plane, state((NODE, OTHER), version=1, elr=(THIRD,)))
        await written(plane, 1)
        ((path, after, version),) = plane.store.states()
        assert (path, after.isr, after.elr, version) == (STATE, (NODE, OTHER), (), 1)
