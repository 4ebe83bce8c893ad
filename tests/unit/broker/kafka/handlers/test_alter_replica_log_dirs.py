"""AlterReplicaLogDirs: replicas that move between data directories while they are used."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qbus.broker.log import moving
from qbus.broker.metadata.image import BrokerInfo
from qbus.broker.partition.partition import Partition
from qbus.errors import ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from qbus.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.support.data_plane import DataPlane, values
from tests.support.logs import batch
from tests.support.waiting import eventually

SMALL: dict[str, Any] = {"segment_bytes": 2000, "qbus_durability": "memory"}


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[DataPlane]:
    plane = DataPlane(tmp_path, log_dirs=[str(tmp_path / name) for name in ("one", "two")])
    await plane.start()
    yield plane
    await plane.stop()


async def ask(plane: DataPlane, path: str, *indexes: int, topic: str = "orders") -> list[ErrorCode]:
    topics = [AlterReplicaLogDirTopic(name=topic, partitions=list(indexes or (0,)))]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
    response = await plane.call(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, request)
    (result,) = response.results
    assert result.topic_name == topic
    return [ErrorCode(one.error_code) for one in result.partitions]


async def described(plane: DataPlane) -> dict[str, list[Any]]:
    request = DescribeLogDirsRequest(topics=None)
    response = await plane.call(ApiKey.DESCRIBE_LOG_DIRS, 4, request)
    return {
        Path(result.log_dir).name: [one for topic in result.topics for one in topic.partitions]
        for result in response.results
    }


def place(plane: DataPlane) -> str:
    return Path(plane.partition("orders").log.directory).parent.name


def other(plane: DataPlane) -> str:
    """The path of the data directory that ``orders`` is not in."""
    name = "two" if place(plane) == "one" else "one"
    return str(plane.directory / name)


def exists(path: str) -> bool:
    return Path(path).exists()


def directories(path: str) -> list[str]:
    return [found.name for found in Path(path).iterdir() if found.is_dir()]


async def moved(plane: DataPlane, path: str) -> None:
    def is_there() -> bool:  # for a moment it is nowhere
        return bool(plane.replicas.partitions_of("orders")) and place(plane) == Path(path).name

    await eventually(is_there)


def fill(plane: DataPlane, count: int, size: int = 500) -> list[bytes]:
    sent = [b"%06d" % number + b"." * size for number in range(count)]
    for value in sent:
        plane.partition("orders").append(batch(value), 1)
    return sent


def read(plane: DataPlane) -> list[bytes | None]:
    log = plane.partition("orders").log
    found: list[bytes | None] = []
    offset = log.log_start_offset
    while (records := log.read(offset, 1 << 20, wait=True)) is not None:
        with records:
            found += values(memoryview(records.read()))
            offset = records.next_offset
    return found


async def test_a_replica_moves_with_all_that_it_has(
    plane: DataPlane, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "qbus.broker.partition")
    await plane.create("orders", **SMALL)
    sent = fill(plane, 20)
    before, target = plane.partition("orders"), other(plane)
    source = before.log.directory
    assert await ask(plane, target) == [ErrorCode.NONE]
    await moved(plane, target)
    partition = plane.partition("orders")
    assert (partition.is_leader, partition.leader_epoch) == (True, before.leader_epoch)
    assert partition.high_watermark == 20
    assert read(plane) == sent
    assert not exists(source)
    assert partition.append(batch(b"more"), 1).first_offset == 20
    assert [line.split(" from ")[0] for line in caplog.messages] == [
        "moving orders-0",
        "moved orders-0",
    ]
    await plane.restart()
    assert place(plane) == Path(target).name
    assert read(plane) == [*sent, b"more"]


async def test_where_it_is_already_there_is_nothing_to_do(plane: DataPlane) -> None:
    await plane.create("orders", **SMALL)
    here = plane.partition("orders")
    assert await ask(plane, str(plane.directory / place(plane)) + "/") == [ErrorCode.NONE]
    await asyncio.sleep(0.05)
    assert plane.partition("orders") is here


async def test_what_cannot_be_is_refused(plane: DataPlane) -> None:
    await plane.create("orders", **SMALL)
    target = other(plane)
    assert await ask(plane, "/nowhere") == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert await ask(plane, target, 0, 7) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert await ask(plane, target, topic="else") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    await moved(plane, target)
    failed = next(one for one in plane.logs.directories if one.path == other(plane))
    failed.shared.health.fail("a test", OSError(5, "Input/output error"))
    assert await ask(plane, other(plane)) == [ErrorCode.KAFKA_STORAGE_ERROR]


async def test_a_partition_that_is_still_to_come_will_be_created_there(plane: DataPlane) -> None:
    for at, name in enumerate(("one", "two")):
        topic = plane.metadata.new_topic(f"late{at}", leader=9)
        await plane.metadata.put(topic)
        target = str(plane.directory / name)
        assert await ask(plane, target, topic=topic.name) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        info = replace(topic.partitions[0], replicas=(1, 9))
        await plane.metadata.put(replace(topic, partitions=(info,)))
        directory = plane.partition(topic.name).log.directory
        assert directory == f"{target}/{topic.name}-0"


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """The copying stops after its first bytes until the test sets this."""
    gate = threading.Event()
    original = moving.LogMove.copy

    def copy(self: moving.LogMove, pace: moving.Pace) -> None:
        def slow_pace(count: int) -> None:
            pace(count)
            while not (gate.wait(0.005) or self.has_ended):
                pass

        original(self, slow_pace)

    monkeypatch.setattr(moving.LogMove, "copy", copy)
    return gate


async def test_a_move_under_way_is_a_future_replica_and_records_go_on(
    plane: DataPlane, slow: threading.Event
) -> None:
    await plane.create("orders", **SMALL)
    sent = fill(plane, 20)
    source, target = place(plane), other(plane)
    await ask(plane, target)

    async def has_begun() -> bool:
        found = (await described(plane))[Path(target).name]
        return bool(found and found[0].partition_size)

    await eventually(has_begun)
    (future_replica,) = (await described(plane))[Path(target).name]
    assert future_replica.is_future_key
    assert 0 < future_replica.offset_lag <= 20
    (current,) = (await described(plane))[source]
    assert not current.is_future_key
    sent += fill(plane, 10)
    slow.set()
    await moved(plane, target)
    (current,) = (await described(plane))[Path(target).name]
    assert (current.is_future_key, current.offset_lag) == (False, 0)
    assert read(plane) == sent
    assert (await described(plane))[source] == []


async def test_asking_for_where_it_is_ends_a_move(
    plane: DataPlane, slow: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "qbus.broker.partition")
    await plane.create("orders", **SMALL)
    sent = fill(plane, 20)
    source, target = place(plane), other(plane)
    await ask(plane, target)
    assert await ask(plane, str(plane.directory / source)) == [ErrorCode.NONE]
    assert (await described(plane))[Path(target).name] == []
    assert directories(target) == []
    assert place(plane) == source
    assert read(plane) == sent
    assert caplog.messages[-1].endswith("is cancelled")


async def test_two_who_ask_at_once_get_one_move(
    plane: DataPlane, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "qbus.broker.partition")
    await plane.create("orders", **SMALL)
    sent = fill(plane, 20)
    target = other(plane)
    answers = await asyncio.gather(ask(plane, target), ask(plane, target))
    assert [*answers] == [[ErrorCode.NONE]] * 2
    await moved(plane, target)
    assert read(plane) == sent
    await eventually(lambda: directories(target) == ["orders-0"])
    assert sum(line.startswith("moving") for line in caplog.messages) == 1


async def test_a_restart_begins_a_move_anew(
    plane: DataPlane, slow: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "qbus.broker.partition")
    await plane.create("orders", **SMALL)
    sent = fill(plane, 20)
    target = other(plane)
    await ask(plane, target)
    await plane.stop()
    slow.set()
    await plane.start()
    await moved(plane, target)
    assert read(plane) == sent
    assert "orders-0: its move to" in caplog.text


async def test_a_move_that_waits_for_others_is_cancelled_at_once(
    plane: DataPlane, slow: threading.Event
) -> None:
    await plane.create("orders", partitions=5, **SMALL)
    for index in range(5):  # of which as many are copied as there are directories
        for number in range(20):
            plane.partition("orders", index).append(batch(b"%06d" % number + b"." * 500), 1)
    here = [Path(plane.partition("orders", index).log.directory).parent for index in range(5)]
    for index in range(5):
        target = plane.directory / ("two" if here[index].name == "one" else "one")
        assert await ask(plane, str(target), index) == [ErrorCode.NONE]
    await asyncio.sleep(0.05)  # they wait now
    async with asyncio.timeout(5):
        assert await ask(plane, str(here[4]), 4) == [ErrorCode.NONE]
    slow.set()

    async def are_moved() -> bool:
        found = [one for found in (await described(plane)).values() for one in found]
        return len(found) == 5 and not any(one.is_future_key for one in found)

    await eventually(are_moved)
    assert Path(plane.partition("orders", 4).log.directory).parent == here[4]


async def test_a_stop_ends_all_moves_those_that_just_finish_as_well(
    plane: DataPlane, slow: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    await plane.create("orders", partitions=2, **SMALL)
    fill(plane, 20)
    for index in range(2):
        here = Path(plane.partition("orders", index).log.directory).parent.name
        await ask(plane, str(plane.directory / ("two" if here == "one" else "one")), index)
    slow.set()
    await plane.stop()
    await plane.start()
    await eventually(lambda: len(plane.replicas.partitions_of("orders")) == 2)
    assert "failed" not in caplog.text


async def test_none_begins_once_the_broker_stops(plane: DataPlane) -> None:
    await plane.create("orders", **SMALL)
    target = other(plane)
    await plane.replicas.log_dir_moves.stop()
    assert await ask(plane, target) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert directories(target) == []


async def test_a_move_that_was_cut_off_and_cannot_go_on_says_so(
    plane: DataPlane, slow: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    await plane.create("orders", **SMALL)
    fill(plane, 20)
    target = other(plane)
    await ask(plane, target)
    await plane.stop()
    topic = plane.metadata.topics["orders"]
    info = replace(topic.partitions[0], leader=9, replicas=(9,), isr=(9,))
    await plane.metadata.put(replace(topic, partitions=(info,)))
    await plane.start()
    assert f"orders-0 does not move on to {target}: NOT_LEADER_OR_FOLLOWER" in caplog.text


async def test_its_last_step_waits_until_the_in_sync_replicas_are_known(plane: DataPlane) -> None:
    plane.metadata.brokers[9] = BrokerInfo(9, "127.0.0.1", 9099, epoch=5)
    topic = plane.metadata.new_topic("orders", config={"qbus.durability": "memory"})
    info = replace(topic.partitions[0], replicas=(1, 9))
    await plane.metadata.put(replace(topic, partitions=(info,)))
    source, target = place(plane), other(plane)
    partition = plane.partition("orders")
    partition.fetched(9, 5, 0, plane.clock.monotonic())
    plane.replicas.isr_changes.propose(partition)
    assert await ask(plane, target) == [ErrorCode.NONE]
    await eventually(lambda: partition.isr == (1, 9))
    await asyncio.sleep(0.1)
    assert place(plane) == source  # metadata of fewer in-sync replicas is all there is
    info = replace(info, isr=(1, 9), version=info.version + 1)
    await plane.metadata.put(replace(topic, partitions=(info,)))
    await moved(plane, target)
    assert plane.partition("orders").isr == (1, 9)


async def test_its_last_step_waits_while_others_may_lead(plane: DataPlane) -> None:
    await plane.create("orders", **SMALL)
    source, target = place(plane), other(plane)
    suspected = plane.partition("orders")
    suspected.suspect()
    assert await ask(plane, target) == [ErrorCode.NONE]
    await asyncio.sleep(0.1)
    assert place(plane) == source
    suspected.resume()
    await moved(plane, target)


async def test_a_follower_moves_though_there_is_always_something_to_flush(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plane.create("orders", segment_bytes=2000)
    target = other(plane)
    topic = plane.metadata.topics["orders"]
    info = replace(topic.partitions[0], leader=9, leader_epoch=1, replicas=(1, 9), isr=(9,))
    await plane.metadata.put(replace(topic, partitions=(info,)))
    followed = plane.partition("orders")

    def busy(self: Partition) -> bool:
        return plane.replicas.get_partition("orders", 0) is not followed  # it fetches no more

    monkeypatch.setattr(Partition, "is_settled", property(busy))
    await ask(plane, target)
    await moved(plane, target)


async def test_a_deleted_topic_does_not_come_back(plane: DataPlane, slow: threading.Event) -> None:
    await plane.create("orders", **SMALL)
    fill(plane, 20)
    target = other(plane)
    await ask(plane, target)
    await plane.metadata.remove("orders")
    slow.set()

    async def is_gone() -> bool:
        return not any((await described(plane)).values())

    await eventually(is_gone)
    await eventually(lambda: not directories(target))
    assert plane.logs.logs() == {}


async def test_a_follower_that_is_cut_meanwhile_is_copied_anew(
    plane: DataPlane, slow: threading.Event
) -> None:
    await plane.create("orders", **SMALL)
    sent = fill(plane, 20)
    target = other(plane)
    topic = plane.metadata.topics["orders"]
    info = replace(topic.partitions[0], leader=9, leader_epoch=1, replicas=(1, 9), isr=(9,))
    await plane.metadata.put(replace(topic, partitions=(info,)))
    await ask(plane, target)
    await plane.partition("orders").truncate(4)
    slow.set()
    await moved(plane, target)
    assert read(plane) == sent[:4]


async def test_it_waits_until_what_was_appended_is_acknowledged(
    plane: DataPlane, caplog: pytest.LogCaptureFixture
) -> None:
    await plane.create("orders", segment_bytes=2000)
    plane.disk.hold_syncs()
    partition, target = plane.partition("orders"), other(plane)

    class Waiter:
        outcome: ErrorCode | None = None

        def done(self) -> bool:
            return self.outcome is not None

        def acknowledged(self, token: object, code: ErrorCode) -> None:
            self.outcome = code

    waiter = Waiter()
    end = partition.append(batch(b"first"), -1).last_offset + 1
    partition.when_acknowledged(end, waiter, None)
    asking = asyncio.create_task(ask(plane, target))
    await asyncio.sleep(0.1)
    assert waiter.outcome is None
    plane.disk.release_syncs()
    assert await asking == [ErrorCode.NONE]
    await moved(plane, target)
    assert waiter.outcome is ErrorCode.NONE


async def test_a_full_disk_ends_a_move_and_says_so(
    plane: DataPlane, caplog: pytest.LogCaptureFixture
) -> None:
    await plane.create("orders", **SMALL)
    sent = fill(plane, 20)
    source, target = place(plane), other(plane)
    plane.disk.fill()
    assert await ask(plane, target) == [ErrorCode.NONE]
    await eventually(lambda: "failed, it stays where it is" in caplog.text)
    assert "No space left on device" in caplog.text
    plane.disk.empty()
    await eventually(lambda: not directories(target))
    assert place(plane) == source
    assert read(plane) == sent
    plane.partition("orders").append(batch(b"goes on"), 1)


async def test_the_rate_is_bounded(plane: DataPlane) -> None:
    plane.config.set_dynamic({}, {"replica.alter.log.dirs.io.max.bytes.per.second": "0"})
    await plane.create("orders", **SMALL)
    fill(plane, 20)
    target = other(plane)
    await ask(plane, target)
    await asyncio.sleep(0.1)
    assert place(plane) != Path(target).name
    plane.config.set_dynamic({}, {})
    await moved(plane, target)
