"""The partitions of a broker: opened, changed and deleted as the metadata says."""

import asyncio
import errno
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from qbus.broker.metadata.image import BrokerConfigChanged, PartitionInfo
from qbus.broker.partition.events import PartitionListener
from qbus.broker.partition.partition import Partition
from qbus.errors import ApiError, ErrorCode
from tests.support.data_plane import NODE, DataPlane
from tests.support.logs import batch, transactional
from tests.support.waiting import eventually


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[DataPlane]:
    plane = DataPlane(tmp_path)
    await plane.start()
    yield plane
    await plane.stop()


def directories(plane: DataPlane) -> set[str]:
    """The partitions' directories on disk, deleted ones left out."""
    logs = plane.directory / "logs"
    return {p.name for p in logs.iterdir() if p.is_dir() and not p.name.endswith("-delete")}


class TestFollowing:
    async def test_a_new_topic_can_be_used_when_the_change_is_applied(
        self, plane: DataPlane
    ) -> None:
        await plane.create("orders", 3)
        assert [str(plane.partition("orders", i)) for i in range(3)] == [
            "orders-0",
            "orders-1",
            "orders-2",
        ]
        assert directories(plane) == {"orders-0", "orders-1", "orders-2"}
        assert plane.partition("orders").check() is ErrorCode.NONE

    async def test_it_is_found_by_name_and_by_id(self, plane: DataPlane) -> None:
        partition = await plane.create("orders")
        topic = plane.metadata.topics["orders"]
        assert plane.replicas.get_partition(topic.id, 0) is partition
        assert plane.replicas.partitions_of("orders") == {0: partition}
        assert plane.replicas.partitions_of("none") == {}

    async def test_more_partitions(self, plane: DataPlane) -> None:
        first = await plane.create("orders")
        topic = plane.metadata.topics["orders"]
        await plane.metadata.put(replace(topic, partitions=topic.partitions * 3))
        assert plane.partition("orders", 2).check() is ErrorCode.NONE
        assert plane.partition("orders") is first

    async def test_changed_settings_apply_at_once(self, plane: DataPlane) -> None:
        partition = await plane.create("orders")
        topic = plane.metadata.topics["orders"]
        changed = {
            "max.message.bytes": "100",
            "qbus.durability": "memory",
            "min.insync.replicas": "2",
        }
        await plane.metadata.put(replace(topic, config=changed))
        assert partition.log.config.max_message_bytes == 100
        assert not partition.durable
        assert partition.min_insync_replicas == 2

    async def test_changed_defaults_of_the_broker_apply_to_topics(self, plane: DataPlane) -> None:
        partition = await plane.create("orders")
        plane.config.set_dynamic({"log.retention.ms": "5000", "durability": "memory"}, {})
        await plane.metadata.publish(BrokerConfigChanged())
        assert partition.log.config.retention_ms == 5000
        assert not partition.durable

    async def test_another_leader(self, plane: DataPlane) -> None:
        partition = await plane.create("orders")
        topic = plane.metadata.topics["orders"]
        await plane.metadata.put(replace(topic, partitions=(PartitionInfo(2, 1, (1, 2), (2,)),)))
        assert partition.check() is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await plane.metadata.put(replace(topic, partitions=(PartitionInfo(1, 2, (1, 2), (1, 2)),)))
        assert partition.check() is ErrorCode.NONE
        assert (partition.leader_epoch, partition.isr) == (2, (1, 2))

    async def test_partitions_of_other_brokers_are_not_held(self, plane: DataPlane) -> None:
        await plane.metadata.put(plane.metadata.new_topic("orders", leader=2))
        assert plane.replicas.get_partition("orders", 0) is None
        assert plane.replicas.why_missing("orders", 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert directories(plane) == set()


class TestDeleting:
    async def test_a_deleted_topic_is_gone_at_once(self, plane: DataPlane) -> None:
        partition = await plane.create("orders", 2)
        await plane.metadata.remove("orders")
        assert partition.check() is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert plane.replicas.get_partition("orders", 0) is None
        assert plane.replicas.why_missing("orders", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert directories(plane) == set()

    async def test_logs_of_no_topic_are_kept_and_named(
        self, plane: DataPlane, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A crash cut the deletion, or the metadata is not that of these logs."""
        partitions = [await plane.create(name) for name in ("gone", "kept", "lost")]
        gone, kept, lost = (partition.log.directory for partition in partitions)
        plane.metadata.forget_subscribers()
        await plane.metadata.remove("gone")
        await plane.metadata.remove("lost")
        await plane.restart()
        assert f"delete them: {gone} {lost}" in caplog.text
        assert kept not in caplog.text
        assert directories(plane) == {"gone-0", "kept-0", "lost-0"}

    async def test_a_topic_of_the_same_name_begins_anew(self, plane: DataPlane) -> None:
        old = await plane.create("orders", qbus_durability="memory")
        old.append(batch(b"a"), 1)
        await plane.metadata.put(plane.metadata.new_topic("orders"))  # another id
        new = plane.partition("orders")
        assert new is not old
        assert new.log.log_end_offset == 0
        assert old.check() is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def test_recreated_while_the_broker_was_down_it_begins_anew(
        self, plane: DataPlane
    ) -> None:
        old = await plane.create("orders", qbus_durability="memory")
        old.append(batch(b"a"), 1)
        await plane.stop()
        await plane.metadata.put(plane.metadata.new_topic("orders"))
        await plane.start()
        assert plane.partition("orders").log.log_end_offset == 0

    async def test_logs_of_no_topic_are_left_alone(self, plane: DataPlane) -> None:
        await plane.create("orders")
        await plane.stop()
        await plane.metadata.remove("orders")
        await plane.start()
        assert plane.replicas.get_partition("orders", 0) is None
        assert directories(plane) == {"orders-0"}

    async def test_a_flush_under_way_finishes_before_its_files_go(self, plane: DataPlane) -> None:
        """It would find them gone, and take the whole data directory for failed."""
        doomed = await plane.create("doomed", qbus_durability="memory", segment_bytes=1024)
        other = await plane.create("other")
        for _ in range(3):
            doomed.append(batch(b"x" * 600), 1)
        plane.disk.hold_syncs()
        doomed.flush()
        assert await asyncio.to_thread(plane.disk.syncing.acquire, timeout=10)
        removal = asyncio.create_task(plane.metadata.remove("doomed"))
        await asyncio.sleep(0.02)
        assert plane.replicas.get_partition("doomed", 0) is None
        plane.disk.release_syncs()
        await removal
        assert directories(plane) == {"other-0"}
        other.append(batch(b"a"), 1)
        await eventually(lambda: other.high_watermark == 1)
        assert not plane.logs.directories[0].offline

    async def test_what_a_deleted_topic_counted_stays_counted(self, plane: DataPlane) -> None:
        partition = await plane.create("orders", qbus_durability="memory")
        size = len(batch(b"a"))
        partition.append(batch(b"a"), 1)
        await plane.metadata.remove("orders")
        counters = plane.metrics.counters
        assert counters["produced_bytes"][1]() == size
        assert counters["produced_messages"][1]() == 1


class TestRestart:
    async def test_everything_written_is_there_again(self, plane: DataPlane) -> None:
        partition = await plane.create("orders", 2)
        partition.append(batch(b"a", b"b"), 1)
        await plane.restart()
        again = plane.partition("orders")
        assert again is not partition
        await eventually(lambda: again.high_watermark == 2)
        assert plane.partition("orders", 1).log.log_end_offset == 0

    async def test_stopping_makes_all_that_was_written_stable(self, plane: DataPlane) -> None:
        partition = await plane.create("orders", qbus_durability="memory")
        partition.append(batch(b"a"), 1)
        await plane.restart()
        assert plane.partition("orders").log.flushed_offset == 1


class TestFailures:
    async def test_a_failed_directory_takes_its_partitions_and_no_others(
        self, tmp_path: Path
    ) -> None:
        plane = DataPlane(tmp_path, log_dirs=[str(tmp_path / "one"), str(tmp_path / "two")])
        await plane.start()
        await plane.create("orders", 4)
        failing = plane.logs.directories[0]
        lost = {key.partition for key in failing.logs}
        assert len(lost) == 2
        failing.shared.health.fail("a test", OSError(errno.EIO, "Input/output error"))
        await eventually(lambda: plane.partition("orders", min(lost)).error)
        for index in range(4):
            expected = ErrorCode.KAFKA_STORAGE_ERROR if index in lost else ErrorCode.NONE
            assert plane.partition("orders", index).check() is expected
        gauges = plane.metrics.gauges
        assert gauges["offline_partitions"][1]() == 2
        assert plane.replicas.offline() == {("orders", index) for index in lost}
        assert gauges["offline_data_directories"][1]() == 1
        # A change of the metadata does not bring them back.
        topic = plane.metadata.topics["orders"]
        newer = tuple(replace(info, leader_epoch=9) for info in topic.partitions)
        await plane.metadata.put(replace(topic, partitions=newer))
        assert plane.partition("orders", min(lost)).check() is ErrorCode.KAFKA_STORAGE_ERROR
        await plane.stop()

    async def test_what_cannot_be_opened_now_is_tried_again(
        self, plane: DataPlane, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        create = plane.logs.create

        def full(*_: object, **__: object) -> None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")

        monkeypatch.setattr(plane.logs, "create", full)
        await plane.metadata.put(plane.metadata.new_topic("orders", 2))
        assert plane.replicas.get_partition("orders", 0) is None
        assert plane.replicas.why_missing("orders", 0) is ErrorCode.KAFKA_STORAGE_ERROR
        assert plane.metrics.gauges["offline_partitions"][1]() == 2
        assert ("orders", 0) in plane.replicas.offline()
        monkeypatch.setattr(plane.logs, "create", create)
        await plane.replicas._registry.retry()
        assert plane.partition("orders", 1).check() is ErrorCode.NONE
        assert plane.metrics.gauges["offline_partitions"][1]() == 0

    async def test_a_topic_deleted_before_it_could_be_opened_is_forgotten(
        self, plane: DataPlane, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:

            def full(*_: object, **__: object) -> None:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")

            patch.setattr(plane.logs, "create", full)
            await plane.metadata.put(plane.metadata.new_topic("orders"))
        await plane.metadata.remove("orders")
        assert plane.metrics.gauges["offline_partitions"][1]() == 0
        await plane.replicas._registry.retry()
        assert directories(plane) == set()


class TestLeaderOf:
    async def test_it_finds_who_leads_here(self, plane: DataPlane) -> None:
        partition = await plane.create("orders")
        assert plane.replicas.leader_of("orders", 0) is partition
        assert plane.replicas.leader_of("orders", 0, leader_epoch=0) is partition

    @pytest.mark.parametrize(
        ("topic", "index", "epoch", "code"),
        [
            ("none", 0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("orders", 1, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (b"sixteen bytes id", 0, -1, ErrorCode.UNKNOWN_TOPIC_ID),
            ("orders", 0, 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ],
    )
    async def test_or_says_why_not(
        self, plane: DataPlane, topic: str | bytes, index: int, epoch: int, code: ErrorCode
    ) -> None:
        await plane.create("orders")
        with pytest.raises(ApiError) as refusal:
            plane.replicas.leader_of(topic, index, epoch)
        assert refusal.value.code is code


async def test_metrics_say_what_is_there(plane: DataPlane) -> None:
    partition = await plane.create("orders", 2, qbus_durability="memory")
    data = batch(b"a", b"b")
    partition.append(data, 1)
    strict = plane.metadata.new_topic("strict", 1, {"min.insync.replicas": "2"})
    alone = PartitionInfo(NODE, 0, (NODE, 2), (NODE,))
    await plane.metadata.put(replace(strict, partitions=(alone,)))
    gauges = {name: read() for name, (_, read) in plane.metrics.gauges.items()}
    assert gauges == {
        "partitions": 3,
        "opening_partitions": 0,
        "deleting_partitions": 0,
        "deleted_paths": 0,
        "offline_partitions": 0,
        "leader_partitions": 3,
        "under_replicated_partitions": 1,
        "under_min_isr_partitions": 1,
        "at_min_isr_partitions": 2,
        "follower_lag_max": 0,
        "offline_data_directories": 0,
        "full_data_directories": 0,
        "corruptions": 0,
        "retention_blocked_partitions": 0,
        "partition_transactions": 0,
        "unstable_records_max": 0,
        "log_bytes": len(data),
        "delayed_fetches": 0,
        "delayed_produces": 0,
    }
    counters = {name: read() for name, (_, read) in plane.metrics.counters.items()}
    assert counters == {
        "produced_bytes": len(data),
        "produced_messages": 2,
        "fetched_bytes": 0,
        "replicated_bytes": 0,
        "isr_shrinks": 0,
        "isr_expands": 0,
    }


async def test_metrics_say_what_is_open_and_what_waits_for_it(plane: DataPlane) -> None:
    partition = await plane.create("orders", 2, qbus_durability="memory")
    asked = partition.begin_verification(7, 0, 0)
    partition.append(transactional(b"a", b"b"), 1, asked)
    partition.append(batch(b"c"), 1)
    read = {name: read for name, (_, read) in plane.metrics.gauges.items()}
    assert (read["partition_transactions"](), read["unstable_records_max"]()) == (1, 3)
    partition.end_transaction(7, 0, 0, committed=True)
    assert (read["partition_transactions"](), read["unstable_records_max"]()) == (0, 0)


class Comings(PartitionListener[Partition]):
    """Follows which partitions are here."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, bool]] = []

    def opened(self, partition: Partition) -> None:
        self.heard.append(("opened", str(partition), partition.is_leader))

    def closed(self, partition: Partition) -> None:
        self.heard.append(("closed", str(partition), partition.is_leader))


async def test_listeners_hear_of_partitions_that_come_and_go(plane: DataPlane) -> None:
    comings = Comings()
    plane.replicas.events.subscribe(comings)
    await plane.create("orders")
    await plane.metadata.remove("orders")
    assert comings.heard == [("opened", "orders-0", False), ("closed", "orders-0", False)]


async def test_what_was_counted_of_a_closed_partition_stays_counted(plane: DataPlane) -> None:
    partition = await plane.create("orders", qbus_durability="memory")
    partition.append(batch(b"a"), 1)
    _, read = plane.metrics.counters["produced_messages"]
    assert read() == 1
    await plane.metadata.remove("orders")
    assert read() == 1
