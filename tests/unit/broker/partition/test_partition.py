"""A partition: what is acknowledged and visible when, and what happens to those who wait."""

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qbus.broker.log import LogConfig, LogManager, Provenance
from qbus.broker.metadata.image import PartitionInfo
from qbus.broker.partition.events import PartitionEvents, PartitionListener
from qbus.broker.partition.flusher import FlushThreads
from qbus.broker.partition.partition import ACKS_ALL, Partition, Role, StoreSession
from qbus.clock import ManualClock
from qbus.errors import ApiError, ErrorCode
from qbus.records.control import ControlType, control_batch, encode_int64
from tests.support.logs import NOW_MS, ControlledFiles, DiskControl, batch, transactional
from tests.support.waiting import eventually

LEADER = 1


def state(leader: int, leader_epoch: int, *others: int, version: int = 0) -> PartitionInfo:
    """Of this broker and ``others``, which are all in sync."""
    replicas = (LEADER, *others)
    return PartitionInfo(leader, leader_epoch, replicas, replicas, version)


class Acks:
    """A produce that waits; remembers what it was told."""

    def __init__(self) -> None:
        self.settlements: list[tuple[object, ErrorCode]] = []
        self.gave_up = False

    def done(self) -> bool:
        return self.gave_up

    def acknowledged(self, token: object, code: ErrorCode) -> None:
        self.settlements.append((token, code))


class Visible:
    """A fetch that waits; adds up what it was told."""

    def __init__(self, *, sees_hidden: bool = False) -> None:
        self.sizes: list[int] = []
        self._sees_hidden = sees_hidden

    @property
    def sees_hidden(self) -> bool:
        return self._sees_hidden

    def advanced(self, size: int) -> None:
        self.sizes.append(size)


class Bench:
    """A partition on a disk under control."""

    def __init__(self, directory: Path) -> None:
        self.disk = DiskControl()
        self.logs = LogManager.open(
            [str(directory)],
            lambda _: LogConfig(),
            ManualClock(),
            ControlledFiles(self.disk),
            node_id=LEADER,
            cluster_id="test",
        )
        self.log = self.logs.create("orders", 0, bytes(16), LogConfig(), is_new=True)
        self.flusher = FlushThreads(asyncio.get_running_loop())
        self.session = StoreSession()
        self.events: PartitionEvents[Partition] = PartitionEvents()
        self.partition = Partition(
            "orders", 0, self.log, self.flusher, self.logs, self.session, self.events
        )
        self.disk.syncs = 0

    def lead(
        self,
        *replicas: int,
        durable: bool = True,
        min_insync_replicas: int = 1,
        leader_epoch: int = 0,
    ) -> Partition:
        """``replicas`` beside the leader are in sync."""
        self.partition.configure(durable=durable, min_insync_replicas=min_insync_replicas)
        self.partition.lead(state(LEADER, leader_epoch, *replicas), 0.0)
        return self.partition

    async def syncing(self) -> None:
        """Return when a flush has reached the disk."""
        assert await asyncio.to_thread(self.disk.syncing.acquire, timeout=10)

    async def until(self, high_watermark: int) -> None:
        """Return when the high watermark is there."""
        await eventually(lambda: self.partition.high_watermark >= high_watermark)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.disk.release_syncs()
    await bench.flusher.stop()


class TestFsync:
    """Acknowledged and visible is what is on stable storage."""

    async def test_nothing_is_visible_before_it_is_on_stable_storage(self, bench: Bench) -> None:
        partition = bench.lead()
        bench.disk.hold_syncs()
        partition.append(batch(b"a", b"b"), ACKS_ALL)
        await bench.syncing()
        assert partition.high_watermark == 0
        assert partition.log.log_end_offset == 2
        bench.disk.release_syncs()
        await bench.until(2)

    async def test_what_comes_during_a_flush_goes_into_the_next_one(self, bench: Bench) -> None:
        partition = bench.lead()
        await bench.until(0)
        bench.disk.hold_syncs()
        first, rest = Acks(), Acks()
        partition.append(batch(b"a"), ACKS_ALL)
        partition.when_acknowledged(1, first, "a")
        await bench.syncing()
        before = bench.disk.syncs
        for end in (2, 3, 4):
            partition.append(batch(b"more"), ACKS_ALL)
            partition.when_acknowledged(end, rest, end)
        assert not first.settlements
        bench.disk.release_syncs()
        await bench.until(4)
        assert first.settlements == [("a", ErrorCode.NONE)]
        assert rest.settlements == [(end, ErrorCode.NONE) for end in (2, 3, 4)]
        assert bench.disk.syncs == before + 1  # three appends, one sync

    async def test_watchers_hear_how_many_bytes_became_visible(self, bench: Bench) -> None:
        partition = bench.lead()
        watcher = Visible()
        partition.watchers[watcher] = None
        bench.disk.hold_syncs()
        one, two = batch(b"a"), batch(b"b" * 100)
        partition.append(one, 1)
        await bench.syncing()
        partition.append(two, 1)
        bench.disk.release_syncs()
        await bench.until(2)
        assert sum(watcher.sizes) == len(one) + len(two)
        assert len(watcher.sizes) == 2

    async def test_hidden_batches_are_news_to_those_who_see_them(self, bench: Bench) -> None:
        partition = bench.lead()
        partition.append(batch(b"a"), 1)
        await bench.until(1)
        consumer, mirror = Visible(), Visible(sees_hidden=True)
        partition.watchers |= {consumer: None, mirror: None}
        hidden = control_batch([(ControlType.BOUND, encode_int64(0))], NOW_MS)
        partition.append_own(hidden, 0)
        await bench.until(2)
        assert (consumer.sizes, mirror.sizes) == ([], [len(hidden)])
        partition.append(batch(b"b"), 1)
        await bench.until(3)
        assert len(consumer.sizes) == 1
        assert len(mirror.sizes) == 2

    async def test_a_failed_flush_acknowledges_nothing_and_is_never_tried_again(
        self, bench: Bench
    ) -> None:
        partition = bench.lead()
        bench.disk.sync_error = errno.EIO
        acks, watcher = Acks(), Visible()
        partition.watchers[watcher] = None
        partition.append(batch(b"a"), ACKS_ALL)
        partition.when_acknowledged(1, acks, "a")
        await bench.syncing()
        await eventually(lambda: partition.error)
        assert acks.settlements == [("a", ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]
        assert watcher.sizes == [0]
        assert partition.high_watermark == 0
        bench.disk.sync_error = None
        syncs = bench.disk.syncs
        with pytest.raises(ApiError) as refusal:
            partition.append(batch(b"b"), ACKS_ALL)
        assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        await asyncio.sleep(0.02)
        assert bench.disk.syncs == syncs

    async def test_a_flush_that_a_shortage_prevented_is_due_again(self, bench: Bench) -> None:
        partition = bench.lead()
        acks = Acks()
        bench.disk.hold_syncs()
        partition.append(batch(b"a"), ACKS_ALL)
        partition.when_acknowledged(1, acks, "a")
        await bench.syncing()
        partition._stable._flushed(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "too many open files"))
        assert partition.check() is ErrorCode.NONE
        behind = partition.is_behind
        assert acks.settlements == []
        partition.flush()
        assert (behind, partition.is_behind) == (True, False)
        bench.disk.release_syncs()
        await bench.until(1)
        assert acks.settlements == [("a", ErrorCode.NONE)]

    @pytest.mark.parametrize(
        ("refused", "told"),
        [
            (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
            (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ],
    )
    async def test_what_was_appended_is_called_refused_only_when_it_is_gone(
        self, bench: Bench, refused: ErrorCode, told: ErrorCode
    ) -> None:
        partition = bench.lead()
        bench.disk.hold_syncs()
        partition.append(batch(b"a"), ACKS_ALL)
        waiting, late = Acks(), Acks()
        partition.when_acknowledged(1, waiting, "a")
        partition.refuse(refused)
        partition.when_acknowledged(1, late, "late")
        assert waiting.settlements == [("a", told)]
        assert late.settlements == [("late", told)]
        assert partition.check() is refused

    async def test_records_found_at_the_start_become_visible_once_flushed(
        self, bench: Bench
    ) -> None:
        bench.log.append(batch(b"a", b"b", b"c"), 0)
        assert bench.log.flushed_offset == 0
        partition = bench.lead()
        await bench.until(3)
        assert partition.log.flushed_offset == 3


class TestMemory:
    """Acknowledged and visible is what is written."""

    async def test_what_is_written_is_visible_at_once(self, bench: Bench) -> None:
        partition = bench.lead(durable=False)
        acks, watcher = Acks(), Visible()
        partition.watchers[watcher] = None
        partition.when_acknowledged(1, acks, "a")
        data = batch(b"a")
        partition.append(data, ACKS_ALL)
        assert partition.high_watermark == 1
        assert acks.settlements == [("a", ErrorCode.NONE)]
        assert watcher.sizes == [len(data)]
        assert bench.disk.syncs == 0

    async def test_flush_messages_flushes_after_so_many(self, bench: Bench) -> None:
        partition = bench.lead(durable=False)
        bench.log.update_config(LogConfig(flush_messages=3))
        partition.append(batch(b"a", b"b"), 1)
        await asyncio.sleep(0.02)
        assert bench.disk.syncs == 0
        partition.append(batch(b"c"), 1)
        await bench.syncing()
        await eventually(lambda: bench.log.flushed_offset >= 3)

    async def test_a_failed_flush_takes_the_partition_down_all_the_same(self, bench: Bench) -> None:
        partition = bench.lead(durable=False)
        partition.append(batch(b"a"), 1)
        bench.disk.sync_error = errno.EIO
        partition.flush()
        await eventually(lambda: partition.error)
        assert partition.check() is ErrorCode.KAFKA_STORAGE_ERROR

    async def test_turning_to_fsync_takes_nothing_back(self, bench: Bench) -> None:
        partition = bench.lead(durable=False)
        partition.append(batch(b"a"), 1)
        partition.configure(durable=True, min_insync_replicas=1)
        assert partition.high_watermark == 1
        bench.disk.hold_syncs()
        partition.append(batch(b"b"), 1)
        await bench.syncing()
        assert partition.high_watermark == 1
        bench.disk.release_syncs()
        await bench.until(2)

    async def test_turning_to_fsync_flushes_what_was_acknowledged_before(
        self, bench: Bench
    ) -> None:
        partition = bench.lead(durable=False)
        partition.append(batch(b"a"), 1)
        assert partition.log.flushed_offset == 0
        partition.configure(durable=True, min_insync_replicas=1)
        await eventually(lambda: partition.log.flushed_offset == 1)

    async def test_turning_to_memory_shows_what_is_written(self, bench: Bench) -> None:
        partition = bench.lead()
        bench.disk.hold_syncs()
        partition.append(batch(b"a"), ACKS_ALL)
        await bench.syncing()
        partition.configure(durable=False, min_insync_replicas=1)
        assert partition.high_watermark == 1


class TestReplicas:
    async def test_too_few_in_sync_replicas_refuse_acks_all_only(self, bench: Bench) -> None:
        partition = bench.partition
        partition.configure(durable=True, min_insync_replicas=2)
        partition.lead(PartitionInfo(LEADER, 0, (LEADER, 2), (LEADER,)), 0.0)
        with pytest.raises(ApiError) as refusal:
            partition.append(batch(b"a"), ACKS_ALL)
        assert refusal.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        assert partition.log.log_end_offset == 0
        assert partition.append(batch(b"a"), 1).first_offset == 0

    async def test_no_more_replicas_are_asked_for_than_there_are(self, bench: Bench) -> None:
        """As in Kafka: ``Partition.effectiveMinIsr``."""
        partition = bench.lead(min_insync_replicas=2)
        partition.append(batch(b"a"), ACKS_ALL)
        await bench.until(1)

    async def test_who_does_not_lead_refuses(self, bench: Bench) -> None:
        assert bench.partition.check() is ErrorCode.NOT_LEADER_OR_FOLLOWER

    @pytest.mark.parametrize(
        ("known", "code"),
        [
            (-1, ErrorCode.NONE),
            (7, ErrorCode.NONE),
            (6, ErrorCode.FENCED_LEADER_EPOCH),
            (8, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ],
    )
    async def test_leader_epochs_are_checked(
        self, bench: Bench, known: int, code: ErrorCode
    ) -> None:
        bench.lead(leader_epoch=7)
        assert bench.partition.check(known) is code

    async def test_the_end_of_an_epoch(self, bench: Bench) -> None:
        partition = bench.partition
        bench.lead(leader_epoch=2)
        partition.append(batch(b"a", b"b"), 1)
        bench.lead(leader_epoch=5)
        partition.append(batch(b"c"), 1)
        bench.lead(leader_epoch=9)
        ends = {epoch: tuple(partition.end_of_epoch(epoch)) for epoch in range(-1, 11)}
        assert ends == {
            -1: (-1, -1),
            0: (0, 0),  # before all that is known: nothing of it is left
            1: (1, 0),
            2: (2, 2),
            3: (2, 2),
            4: (2, 2),
            5: (5, 3),
            6: (5, 3),
            7: (5, 3),
            8: (5, 3),
            9: (9, 3),  # led, with no record yet
            10: (-1, -1),
        }


class TestWaiting:
    async def test_a_retried_batch_waits_for_its_original(self, bench: Bench) -> None:
        partition = bench.lead()
        bench.disk.hold_syncs()

        def produced() -> memoryview:
            return batch(b"a", producer_id=4, producer_epoch=0, base_sequence=0)

        original = partition.append(produced(), ACKS_ALL)
        retried = partition.append(produced(), ACKS_ALL)
        assert retried.duplicate
        assert retried.first_offset == original.first_offset
        acks = Acks()
        partition.when_acknowledged(retried.last_offset + 1, acks, "again")
        await bench.syncing()
        assert not acks.settlements
        bench.disk.release_syncs()
        await bench.until(1)
        assert acks.settlements == [("again", ErrorCode.NONE)]
        assert partition.messages_in == 1

    async def test_who_gave_up_is_forgotten_with_the_next_append(self, bench: Bench) -> None:
        partition = bench.lead()
        bench.disk.hold_syncs()
        for end in range(1, 50):
            acks = Acks()
            partition.append(batch(b"a"), ACKS_ALL)
            partition.when_acknowledged(end, acks, end)
            acks.gave_up = True
        assert len(partition._acks) == 1

    async def test_a_full_disk_refuses_writes_until_there_is_space_again(
        self, bench: Bench
    ) -> None:
        partition = bench.lead()
        partition.append(batch(b"a"), 1)
        bench.disk.fill()
        with pytest.raises(ApiError) as refusal:
            partition.append(batch(b"b"), 1)
        assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert refusal.value.retriable
        assert not partition.error
        await bench.until(1)  # what was written is still flushed
        bench.disk.empty()
        assert partition.append(batch(b"b"), 1).first_offset == 1
        await bench.until(2)


class Recorder(PartitionListener[Partition]):
    """Follows everything that happens to a partition."""

    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []

    def leading(self, partition: Partition, leader_epoch: int) -> None:
        self.heard.append(("leading", str(partition), leader_epoch))

    def stepping_down(self, partition: Partition, code: ErrorCode) -> None:
        self.heard.append(("stepping down", partition.is_leader, code))

    def appended(self, partition: Partition, end_offset: int, size: int) -> None:
        self.heard.append(("appended", end_offset, size))

    def high_watermark_moved(self, partition: Partition, offset: int) -> None:
        self.heard.append(("high watermark", offset))


class TestListeners:
    """A service follows partitions without being known to them."""

    async def test_the_life_of_a_leader(self, bench: Bench) -> None:
        recorder = Recorder()
        bench.events.subscribe(recorder)
        partition = bench.lead(durable=False, leader_epoch=3)
        data = batch(b"a", b"b")
        partition.append(data, ACKS_ALL)
        partition.follow(2, 4)
        assert recorder.heard == [
            ("leading", "orders-0", 3),
            ("high watermark", 2),
            ("appended", 2, len(data)),
            ("stepping down", True, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ]

    async def test_the_same_leader_in_the_same_epoch_is_no_news(self, bench: Bench) -> None:
        recorder = Recorder()
        bench.lead(durable=False)
        bench.events.subscribe(recorder)
        bench.lead(durable=False)
        assert recorder.heard == []

    async def test_a_follower_appends_silently(self, bench: Bench) -> None:
        recorder = Recorder()
        bench.events.subscribe(recorder)
        bench.partition.configure(durable=False, min_insync_replicas=1)
        bench.partition.follow(2, 0)
        bench.partition.append_from_leader(batch(b"a"))
        bench.partition.learn_high_watermark(1, 0)
        assert recorder.heard == [("high watermark", 1)]


class TestRole:
    async def test_a_partition_has_one_role_at_a_time(self, bench: Bench) -> None:
        partition = bench.partition
        roles = [partition.role]
        bench.lead()
        roles.append(partition.role)
        partition.follow(2, 1)
        roles.append(partition.role)
        partition.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
        roles.append(partition.role)
        assert roles == [Role.NONE, Role.LEADER, Role.FOLLOWER, Role.NONE]


class TestTransactions:
    """What is stable, what ends it, and who hears of it."""

    @staticmethod
    def send(partition: Partition, producer_id: int = 7, sequence: int = 0) -> None:
        asked = partition.begin_verification(producer_id, 0, sequence)
        made = transactional(b"v", producer_id=producer_id, sequence=sequence)
        partition.append(made, ACKS_ALL, asked)

    async def test_the_last_stable_offset_follows_the_high_watermark(self, bench: Bench) -> None:
        partition = bench.lead(2, durable=False)
        partition.append(batch(b"a"), 1)
        assert (partition.last_stable_offset, partition.committed_end) == (0, 0)
        partition.fetched(2, -1, 1, 1.0)
        assert (partition.last_stable_offset, partition.committed_end) == (1, 1)
        self.send(partition)
        partition.fetched(2, -1, 2, 1.0)
        assert (partition.high_watermark, partition.last_stable_offset) == (2, 1)
        partition.end_transaction(7, 0, 0, committed=True)
        assert partition.last_stable_offset == 1
        partition.fetched(2, -1, 3, 1.0)
        assert (partition.last_stable_offset, partition.committed_end) == (3, 3)

    async def test_readers_of_committed_records_hear_when_a_transaction_ended(
        self, bench: Bench
    ) -> None:
        partition = bench.lead(durable=False)
        reader, committed = Visible(), Visible()
        partition.watchers[reader] = None
        partition.committed_watchers[committed] = None
        partition.append(batch(b"a"), 1)
        assert len(reader.sizes) == len(committed.sizes) == 1
        self.send(partition)
        partition.append(batch(b"behind"), 1)
        assert (len(reader.sizes), len(committed.sizes)) == (3, 1)
        partition.end_transaction(7, 0, 0, committed=False)
        assert len(committed.sizes) == 2
        assert sum(committed.sizes) == sum(reader.sizes) == partition.log.size

    async def test_the_last_stable_offset_is_right_as_soon_as_the_high_watermark_has_moved(
        self, bench: Bench
    ) -> None:
        partition = bench.lead(2, durable=False)
        for producer_id in (7, 8):
            self.send(partition, producer_id)
        for producer_id in (7, 8):
            partition.end_transaction(producer_id, 0, 0, committed=True)
        seen: list[int] = []

        class Reader(Visible):
            def advanced(self, size: int) -> None:
                seen.append(partition.last_stable_offset)

        partition.watchers[Reader()] = None
        partition.fetched(2, -1, 3, 1.0)
        partition.fetched(2, -1, 4, 1.0)
        assert seen == [1, 4]

    async def test_they_hear_of_everything_that_ends_their_wait(self, bench: Bench) -> None:
        partition = bench.lead(durable=False)
        committed = Visible()
        partition.committed_watchers[committed] = None
        partition.follow(2, 1)
        assert committed.sizes == [0]

    async def test_hidden_batches_are_not_before_what_is_stable(self, bench: Bench) -> None:
        partition = bench.lead(durable=False)
        partition.append(batch(b"a"), 1)
        partition.append_own(control_batch([(ControlType.BOUND, encode_int64(0))], NOW_MS), 0)
        self.send(partition)
        assert (partition.last_stable_offset, partition.committed_end) == (2, 1)
        partition.end_transaction(7, 0, 0, committed=True)
        assert (partition.last_stable_offset, partition.committed_end) == (4, 4)

    async def test_deleted_records_are_stable(self, bench: Bench) -> None:
        partition = bench.lead(durable=False)
        self.send(partition)
        partition.append(batch(b"a"), 1)
        partition.delete_records_before(2)
        assert partition.last_stable_offset == partition.committed_end == 2

    async def test_a_marker_is_no_message_and_is_told(self, bench: Bench) -> None:
        told: list[tuple[int, int, bool]] = []

        class Listener(PartitionListener[Partition]):
            def transaction_ended(
                self, partition: Partition, producer_id: int, epoch: int, committed: bool
            ) -> None:
                told.append((producer_id, epoch, committed))

        bench.events.subscribe(Listener())
        partition = bench.lead(durable=False)
        self.send(partition)
        info = partition.end_transaction(7, 0, 3, committed=True)
        assert (info.first_offset, info.last_offset) == (1, 1)
        assert (partition.messages_in, told) == (1, [(7, 0, True)])

    async def test_only_the_leader_with_enough_replicas_ends_transactions(
        self, bench: Bench
    ) -> None:
        with pytest.raises(ApiError) as refused:
            bench.partition.end_transaction(7, 0, 0, committed=True)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition = bench.lead(durable=False)
        bench.session.is_suspended = True
        with pytest.raises(ApiError) as refused:
            partition.end_transaction(7, 0, 0, committed=True)
        assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        assert partition.log.log_end_offset == 0

    async def test_what_other_code_appends_is_checked_on_demand(self, bench: Bench) -> None:
        partition = bench.lead(durable=False)
        with pytest.raises(ApiError) as refused:
            partition.check_transaction(7, 0, None)
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE
        asked = partition.begin_verification(7, 1, 0)
        partition.check_transaction(7, 1, asked)
        partition.append_own(bytearray(transactional(b"v", epoch=1)), 1)
        partition.check_transaction(7, 1, None)
        with pytest.raises(ApiError) as refused:
            partition.check_transaction(7, 0, None)
        assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH

    async def test_a_mirror_leaves_it_to_its_source(self, bench: Bench) -> None:
        partition = bench.lead(durable=False)
        self.send(partition)
        bench.log.update_config(LogConfig(qbus_mirror_source="a"))
        bench.lead(durable=False)
        with pytest.raises(ApiError) as refused:
            partition.end_transaction(7, 0, 0, committed=True)
        assert refused.value.code is ErrorCode.POLICY_VIOLATION
        assert partition.last_stable_offset == 0

    async def test_one_that_is_a_mirror_no_more_ends_what_its_source_left_open(
        self, bench: Bench
    ) -> None:
        bench.log.update_config(LogConfig(qbus_mirror_source="a"))
        partition = bench.lead(durable=False)
        batches = bytearray(transactional(b"open"))
        partition.append_mirrored(memoryview(batches), Provenance("a", "", 0, 0))
        assert partition.last_stable_offset == 0
        bench.log.update_config(LogConfig(qbus_mirror_former_source="a"))
        bench.lead(durable=False)
        assert partition.last_stable_offset == partition.log.log_end_offset == 2
        (aborted,) = partition.log.aborted_between(0, 2)
        assert (aborted.producer_id, aborted.first_offset) == (7, 0)

    async def test_who_leads_later_ends_it_where_the_mirror_ended_meanwhile(
        self, bench: Bench
    ) -> None:
        bench.log.update_config(LogConfig(qbus_mirror_source="a"))
        partition = bench.lead(durable=False)
        batches = bytearray(transactional(b"open"))
        partition.append_mirrored(memoryview(batches), Provenance("a", "", 0, 0))
        partition.follow(2, 1)
        bench.log.update_config(LogConfig(qbus_mirror_former_source="a"))
        partition.configure(durable=False, min_insync_replicas=1)
        assert partition.log.log_end_offset == 1
        bench.lead(durable=False, leader_epoch=2)
        assert partition.last_stable_offset == partition.log.log_end_offset == 2

    async def test_it_is_ended_when_the_session_is_good_again(self, bench: Bench) -> None:
        bench.log.update_config(LogConfig(qbus_mirror_source="a"))
        partition = bench.lead(durable=False)
        batches = bytearray(transactional(b"open"))
        partition.append_mirrored(memoryview(batches), Provenance("a", "", 0, 0))
        bench.session.is_suspended = True
        partition.suspect()
        bench.log.update_config(LogConfig(qbus_mirror_former_source="a"))
        partition.configure(durable=False, min_insync_replicas=1)
        assert partition.log.log_end_offset == 1
        bench.session.is_suspended = False
        partition.resume()
        assert partition.last_stable_offset == partition.log.log_end_offset == 2

    async def test_a_transaction_of_its_own_stays_open_then(self, bench: Bench) -> None:
        bench.log.update_config(LogConfig(qbus_mirror_source="a"))
        partition = bench.lead(durable=False)
        bench.log.update_config(LogConfig(qbus_mirror_former_source="a"))
        bench.lead(durable=False)
        self.send(partition)
        bench.lead(durable=False, leader_epoch=1)
        assert (partition.last_stable_offset, partition.log.log_end_offset) == (0, 1)
