"""What a replica does when its role changes, and when it has lost what it held."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qbus.broker.log import EpochStart
from qbus.broker.partition.partition import ACKS_ALL, Partition
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import SessionState, VersionConflict
from qbus.metadata.znodes import NO_LEADER, PartitionStateNode
from tests.support.data_plane import NODE, DataPlane
from tests.support.following import OTHER, THIRD, Follower, at, lead, put, state
from tests.support.logs import batch
from tests.support.waiting import eventually

STATE = PartitionStateNode.path("orders", 0)


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[DataPlane]:
    plane = DataPlane(tmp_path)
    await plane.start()
    yield plane
    await plane.stop()


class Acks:
    """A produce that waits; remembers what it was told."""

    def __init__(self) -> None:
        self.codes: list[ErrorCode] = []

    def done(self) -> bool:
        return bool(self.codes)

    def acknowledged(self, _token: object, code: ErrorCode) -> None:
        self.codes.append(code)


def copied(*values: bytes, offset: int, leader_epoch: int) -> memoryview:
    """A batch as the leader has it."""
    data = batch(*values)
    data[0:8] = offset.to_bytes(8)
    data[12:16] = leader_epoch.to_bytes(4)
    return data


async def follow(plane: DataPlane, *, leader_epoch: int = 3, durable: bool = False) -> Partition:
    """Follow broker 2, which cannot be reached."""
    info = state(leader=OTHER, leader_epoch=leader_epoch)
    durability = "fsync" if durable else "memory"
    await put(plane, info, qbus_durability=durability)
    return plane.partition("orders")


class TestLeading:
    async def test_acks_all_waits_for_all_in_sync(self, plane: DataPlane) -> None:
        partition, acks = await lead(plane), Acks()
        partition.append(batch(b"a"), ACKS_ALL)
        partition.when_acknowledged(1, acks, None)
        await Follower(plane, OTHER).fetch(at(1))
        assert acks.codes == []
        await Follower(plane, THIRD).fetch(at(1))
        assert acks.codes == [ErrorCode.NONE]

    async def test_nothing_is_acknowledged_while_others_are_eligible(
        self, plane: DataPlane
    ) -> None:
        info = state((NODE, OTHER), elr=(THIRD,))
        await put(plane, info, qbus_durability="memory", min_insync_replicas=2)
        partition = plane.partition("orders")
        partition.append(batch(b"a"), ACKS_ALL)
        await Follower(plane, OTHER).fetch(at(1))
        assert partition.high_watermark == 0
        await put(plane, state((NODE, OTHER), version=1))
        assert partition.high_watermark == 1

    async def test_too_few_in_sync_refuse_acks_all(self, plane: DataPlane) -> None:
        await put(plane, state((NODE,)), min_insync_replicas=2)
        with pytest.raises(ApiError) as refusal:
            plane.partition("orders").append(batch(b"a"), ACKS_ALL)
        assert refusal.value.code is ErrorCode.NOT_ENOUGH_REPLICAS

    async def test_who_waits_hears_that_somebody_else_leads(self, plane: DataPlane) -> None:
        partition, acks = await lead(plane), Acks()
        partition.append(batch(b"a"), ACKS_ALL)
        partition.when_acknowledged(1, acks, None)
        await put(plane, state(leader=OTHER, leader_epoch=1, version=1))
        assert acks.codes == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
        with pytest.raises(ApiError) as refusal:
            partition.append(batch(b"b"), 1)
        assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def test_what_is_older_than_what_is_known_changes_nothing(self, plane: DataPlane) -> None:
        partition = await lead(plane)
        partition.lead(state((NODE, OTHER), version=5), 0.0)
        partition.lead(state((NODE,), version=4), 0.0)
        assert partition.isr == (NODE, OTHER)
        partition.follow(OTHER, 4)
        partition.lead(state(leader_epoch=3, version=9), 0.0)
        assert not partition.is_leader

    async def test_a_broker_that_is_added_counts_once_it_is_in_sync(self, plane: DataPlane) -> None:
        both = (NODE, OTHER)
        await put(plane, state(both, replicas=both), qbus_durability="memory")
        partition = plane.partition("orders")
        await put(plane, state(both, version=1))
        partition.append(batch(b"a"), 1)
        await Follower(plane, OTHER).fetch(at(1))
        assert partition.high_watermark == 1
        await Follower(plane, THIRD).fetch(at(1))
        await eventually(lambda: partition.isr == (NODE, OTHER, THIRD))


class TestSuspended:
    """While the session is in doubt, another broker may lead already."""

    async def test_nothing_is_acknowledged(self, plane: DataPlane) -> None:
        partition, acks = await lead(plane), Acks()
        partition.append(batch(b"a"), ACKS_ALL)
        partition.when_acknowledged(1, acks, None)
        plane.store.become(SessionState.SUSPENDED)
        for node in (OTHER, THIRD):
            await Follower(plane, node).fetch(at(1))
        assert (partition.high_watermark, acks.codes) == (0, [])
        with pytest.raises(ApiError) as refusal:
            partition.append(batch(b"b"), ACKS_ALL)
        assert refusal.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        plane.store.become(SessionState.CONNECTED)
        assert (partition.high_watermark, acks.codes) == (1, [ErrorCode.NONE])


class TestFollowing:
    async def test_what_the_leader_has_is_kept_as_it_is(self, plane: DataPlane) -> None:
        partition = await follow(plane)
        partition.append_from_leader(copied(b"a", b"b", offset=0, leader_epoch=2))
        partition.append_from_leader(copied(b"c", offset=2, leader_epoch=3))
        assert partition.log.log_end_offset == partition.stable_end == 3
        assert partition.log.epoch_cache.entries == (EpochStart(2, 0), EpochStart(3, 2))

    async def test_the_high_watermark_is_the_leaders_as_far_as_it_is_here(
        self, plane: DataPlane
    ) -> None:
        partition = await follow(plane)
        partition.append_from_leader(copied(b"a", b"b", offset=0, leader_epoch=3))
        seen = []
        for told in (1, 0, 9):
            partition.learn_high_watermark(told, 0)
            seen.append(partition.high_watermark)
        assert seen == [1, 1, 2]

    async def test_it_starts_where_the_leader_does(self, plane: DataPlane) -> None:
        partition = await follow(plane)
        partition.append_from_leader(copied(b"a", b"b", b"c", offset=0, leader_epoch=3))
        partition.learn_high_watermark(3, 2)
        assert partition.log.log_start_offset == 2

    async def test_durable_records_are_told_as_stable_once_they_are(self, plane: DataPlane) -> None:
        partition = await follow(plane, durable=True)
        stable: list[int] = []
        partition.on_stable = lambda: stable.append(partition.stable_end)
        plane.disk.hold_syncs()
        partition.append_from_leader(copied(b"a", offset=0, leader_epoch=3))
        assert (partition.stable_end, stable) == (0, [])
        plane.disk.release_syncs()
        await eventually(lambda: stable == [1])

    async def test_it_leads_with_what_it_has_and_what_it_knows(self, plane: DataPlane) -> None:
        partition = await follow(plane)
        partition.append_from_leader(copied(b"a", b"b", offset=0, leader_epoch=3))
        partition.learn_high_watermark(1, 0)
        await put(plane, state((NODE, OTHER), leader_epoch=4, version=1))
        assert (partition.is_leader, partition.high_watermark) == (True, 1)
        assert partition.end_of_epoch(3) == (3, 2)
        assert partition.end_of_epoch(4) == (4, 2)

    async def test_it_does_not_lead_before_what_it_cuts_away_is_gone(
        self, plane: DataPlane
    ) -> None:
        partition = await follow(plane)
        partition.append_from_leader(copied(b"a", b"b", offset=0, leader_epoch=3))
        plane.disk.hold_syncs()
        cutting = asyncio.ensure_future(partition.truncate(0))
        await asyncio.sleep(0)
        leading = asyncio.ensure_future(put(plane, state((NODE,), leader_epoch=4, version=1)))
        await asyncio.sleep(0)
        assert not partition.is_leader
        plane.disk.release_syncs()
        await asyncio.gather(cutting, leading)
        assert (partition.is_leader, partition.log.log_end_offset) == (True, 0)

    async def test_nothing_is_cut_away_from_what_is_led(self, plane: DataPlane) -> None:
        partition = await lead(plane)
        partition.append(batch(b"a"), 1)
        for cut in (partition.truncate, partition.truncate_fully):
            with pytest.raises(ApiError) as refusal:
                await cut(0)
            assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.log.log_end_offset == 1

    async def test_what_is_cut_away_is_not_visible(self, plane: DataPlane) -> None:
        partition = await follow(plane)
        partition.append_from_leader(copied(b"a", offset=0, leader_epoch=3))
        partition.append_from_leader(copied(b"b", offset=1, leader_epoch=3))
        partition.learn_high_watermark(2, 0)
        await partition.truncate(1)
        assert (partition.log.log_end_offset, partition.high_watermark) == (1, 1)
        await partition.truncate_fully(50)
        assert (partition.log.log_end_offset, partition.high_watermark) == (50, 50)

    async def test_the_high_watermark_survives_a_restart(self, plane: DataPlane) -> None:
        partition = await follow(plane)
        partition.append_from_leader(copied(b"a", b"b", offset=0, leader_epoch=3))
        partition.learn_high_watermark(1, 0)
        await plane.restart()
        assert plane.partition("orders").high_watermark == 1


class TestMoving:
    async def test_what_others_hold_now_is_deleted(self, plane: DataPlane) -> None:
        partition = await lead(plane)
        partition.append(batch(b"a"), 1)
        others = (OTHER, THIRD)
        await put(plane, state(others, leader=OTHER, leader_epoch=1, replicas=others))
        assert plane.replicas.get_partition("orders", 0) is None
        assert plane.logs.get("orders", 0) is None
        assert plane.replicas.why_missing("orders", 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def test_what_was_moved_while_this_broker_was_down_is_deleted_too(
        self, plane: DataPlane
    ) -> None:
        await lead(plane)
        plane.metadata.forget_subscribers()
        others = (OTHER, THIRD)
        await put(plane, state(others, leader=OTHER, leader_epoch=1, replicas=others))
        assert plane.logs.get("orders", 0) is not None
        await plane.restart()
        assert plane.logs.get("orders", 0) is None

    async def test_what_comes_here_follows_its_leader(self, plane: DataPlane) -> None:
        others = (OTHER, THIRD)
        await put(plane, state(others, leader=OTHER, replicas=others))
        assert plane.replicas.get_partition("orders", 0) is None
        await put(plane, state(others, leader=OTHER, version=1))
        partition = plane.partition("orders")
        assert (partition.is_leader, partition.leader_id) == (False, OTHER)


class TestLost:
    """A replica that lacks what it held says so."""

    async def test_a_failed_disk_takes_it_out_of_sync(self, plane: DataPlane) -> None:
        partition = await lead(plane)
        partition.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
        await plane.replicas.disqualification.check()
        expected = PartitionStateNode(NO_LEADER, 1, (OTHER, THIRD), 1)
        ((path, written, version),) = plane.store.states()
        assert (path, version) == (STATE, 0)
        assert written._replace(elr=()) == expected
        assert NODE not in written.elr

    async def test_a_follower_without_room_is_in_sync_no_more_and_keeps_what_it_has(
        self, plane: DataPlane, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        followed = state((OTHER, NODE), leader=OTHER)
        await put(plane, followed, qbus_durability="memory", min_insync_replicas=2)
        partition = plane.partition("orders")
        disqualification, fetchers = plane.replicas.disqualification, plane.fetchers
        monkeypatch.setattr(fetchers, "is_failing", lambda one: one is partition)
        await disqualification.check()
        assert plane.store.transactions == [], "it fails for another reason"
        plane.disk.fill()
        with pytest.raises(ApiError):
            partition.log.append(batch(b"a"), 0)
        await disqualification.check()
        ((_, written, _),) = plane.store.states()
        assert (written.leader, written.isr, written.elr) == (OTHER, (OTHER,), (NODE,))
        plane.disk.empty()

    async def test_it_is_written_again_when_somebody_else_was_faster(
        self, plane: DataPlane
    ) -> None:
        partition = await lead(plane)
        partition.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
        plane.store.failures = [VersionConflict(STATE)]
        await plane.replicas.disqualification.check()
        await put(plane, state((NODE, OTHER), version=6))
        await plane.replicas.disqualification.check()
        assert [version for _, _, version in plane.store.states()] == [0, 6]

    async def test_it_says_nothing_once_nobody_counts_on_it(self, plane: DataPlane) -> None:
        partition = await lead(plane)
        partition.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
        others = (OTHER, THIRD)
        await put(plane, state(others, leader=OTHER, leader_epoch=1, version=1))
        await plane.replicas.disqualification.check()
        assert plane.store.transactions == []

    async def test_one_that_nobody_shares_keeps_what_it_has(self, plane: DataPlane) -> None:
        partition = await plane.create("alone")
        partition.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
        await plane.replicas.disqualification.check()
        assert plane.store.transactions == []
