"""Failing and lying leaders: nothing wrong is appended, and other partitions are not delayed."""

import errno
import struct
from collections.abc import Callable

import pytest

from qbus.broker.replicator.truncation_offset import find_truncation
from qbus.errors import ErrorCode
from qbus.records import set_base_offset
from qbus.wire import ApiKey
from qbus.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tests.support.logs import batch
from tests.support.waiting import eventually

from .conftest import MakeScene
from .scene import ORDERS, Scene, asked, content, log_end

Mangle = Callable[[bytes], bytes]


def once(change: Mangle) -> Callable[[ApiKey, bytes], bytes]:
    """Change the first fetch response only."""
    done = False

    def mangle(key: ApiKey, frame: bytes) -> bytes:
        nonlocal done
        if done or key is not ApiKey.FETCH:
            return frame
        done = True
        return change(frame)

    return mangle


def with_length(length: int) -> Mangle:
    return lambda frame: struct.pack(">i", length) + frame[4:]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        9999,
    ],
)
async def test_a_failing_partition_is_delayed_alone(scene: Scene, code: int) -> None:
    leader = await scene.leader()
    failing, fine = scene.partition(0), scene.partition(1)
    for partition in (failing, fine):
        leader.lead(partition.index)
    leader.partitions[ORDERS, 0].error = code  # type: ignore[assignment]
    scene.follow(failing)
    scene.follow(fine)
    await eventually(lambda: len(asked(leader, 0)) >= 2)
    for count in (1, 2):
        leader.partitions[ORDERS, 1].append(b"a")
        leader.moved()
        await scene.copied(fine, leader)
        assert log_end(fine) == count
    assert scene.gauge("failed_replicas") == 1
    assert scene.gauge("replica_fetch_failures") >= 1
    leader.partitions[ORDERS, 0].error = ErrorCode.NONE
    leader.partitions[ORDERS, 0].append(b"b")
    leader.moved()
    await scene.copied(failing, leader)
    assert scene.gauge("failed_replicas") == 0


def corrupt(records: bytes) -> bytes:
    return records[:-1] + bytes([records[-1] ^ 1])


def elsewhere(records: bytes) -> bytes:
    moved = bytearray(records)
    set_base_offset(moved, 7, 0)
    return bytes(moved)


@pytest.mark.parametrize(
    "damage", [corrupt, elsewhere, lambda records: records[:30], lambda _: b"x" * 200]
)
async def test_damaged_batches_are_never_appended(scene: Scene, damage: Mangle) -> None:
    leader = await scene.leader()
    led = leader.lead()
    good, other = led.append(b"a" * 50), led.append(b"b" * 50)
    led.batches[1] = damage(other)
    partition = scene.partition()
    scene.follow(partition)
    await eventually(lambda: asked(leader).count(1) >= 2)
    assert content(partition.log) == good
    await eventually(lambda: scene.gauge("replica_corrupt_batches") >= 1)
    led.batches[1] = other
    await scene.copied(partition, leader)


async def test_batches_with_a_decreasing_epoch_are_not_appended(scene: Scene) -> None:
    leader = await scene.leader()
    led = leader.lead(epoch=5)
    good = led.append(b"a", epoch=4)
    led.batches.append(bytes(placed(1, epoch=3)))
    led.starts.append(1)
    led.end = led.high_watermark = 2
    partition = scene.partition()
    scene.follow(partition, epoch=5)
    await eventually(lambda: asked(leader).count(1) >= 2)
    assert content(partition.log) == good


def placed(offset: int, epoch: int) -> memoryview:
    made = batch(b"v")
    set_base_offset(made, offset, epoch)
    return made


async def test_partitions_that_were_not_requested_are_ignored(scene: Scene) -> None:
    leader = await scene.leader()
    led = leader.lead()
    led.append(b"a")

    def answering(_: FetchRequest, response: FetchResponse) -> FetchResponse:
        stray = PartitionData(partition_index=3, high_watermark=9, records=led.batches[0])
        other = FetchableTopicResponse(topic_id=b"?" * 16, partitions=[stray])
        mine = FetchableTopicResponse(topic_id=ORDERS, partitions=[stray])
        response.responses = [other, mine, *response.responses, *response.responses]
        return response

    leader.answering = answering
    partition, stranger = scene.partition(0), scene.partition(3)
    scene.follow(partition)
    await scene.copied(partition, leader)
    assert log_end(stranger) == 0
    assert scene.gauge("replica_fetch_failures") == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame[:4] + b"\xff" * 4 + frame[8:],  # an answer to another request
        lambda frame: frame[:20] + b"\xff" * (len(frame) - 20),  # lengths that make no sense
        lambda frame: frame + frame,  # an answer to no request
        with_length(-1),
        with_length(0),
        with_length(2**31 - 1),
        with_length(3),
        lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
async def test_a_malformed_response_costs_only_the_connection(scene: Scene, change: Mangle) -> None:
    leader = await scene.leader()
    leader.mangle = once(change)
    leader.lead().append(b"a")
    partition = scene.partition()
    scene.follow(partition)
    await scene.copied(partition, leader)
    leader.partitions[ORDERS, 0].append(b"b")
    leader.moved()
    await scene.copied(partition, leader)


async def test_a_leader_that_does_not_answer_is_disconnected(make_scene: MakeScene) -> None:
    """The connection is half open: it accepts requests and sends nothing."""
    scene = make_scene(replica_socket_timeout_ms="100", replica_fetch_wait_max_ms="10")
    leader = await scene.leader()
    leader.silent = True
    leader.lead().append(b"a")
    partition = scene.partition()
    scene.follow(partition)
    await eventually(lambda: leader.connections >= 3)
    leader.silent = False
    await scene.copied(partition, leader)


async def test_a_leader_that_sends_half_a_response_is_disconnected(make_scene: MakeScene) -> None:
    scene = make_scene(replica_socket_timeout_ms="100", replica_fetch_wait_max_ms="10")
    leader = await scene.leader()
    leader.mangle = once(lambda frame: frame[: len(frame) // 2])
    leader.lead().append(b"a" * 1000)
    partition = scene.partition()
    scene.follow(partition)
    await scene.copied(partition, leader)


async def test_a_response_above_the_maximum_size_is_refused(make_scene: MakeScene) -> None:
    scene = make_scene(
        socket_request_max_bytes="2000",
        queued_max_request_bytes="-1",
        replica_fetch_response_max_bytes="1000",
    )
    leader = await scene.leader()
    leader.lead().append(b"a" * 5000)
    partition = scene.partition()
    scene.follow(partition)
    await eventually(lambda: leader.connections >= 2)
    assert log_end(partition) == 0


async def test_unknown_sessions_are_retried_with_back_off(scene: Scene) -> None:
    leader = await scene.leader()
    leader.answering = lambda *_: FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    leader.lead()
    scene.follow(scene.partition())
    await eventually(lambda: leader.connections >= 3)
    assert len(leader.fetches) <= leader.connections + 1


async def test_fetching_resumes_when_a_full_disk_has_room(scene: Scene) -> None:
    leader = await scene.leader()
    led = leader.lead()
    led.append(b"a")
    partition = scene.partition()
    scene.follow(partition)
    await scene.copied(partition, leader)
    scene.disk.fill()
    led.append(b"b")
    leader.moved()
    await eventually(lambda: scene.gauge("failed_replicas") == 1)
    assert log_end(partition) == 1
    scene.disk.empty()
    await scene.copied(partition, leader)


async def test_a_failed_disk_stops_only_its_own_partitions(scene: Scene) -> None:
    leader = await scene.leader()
    durable = scene.partition(0, durable=True)
    leader.lead(0).append(b"a")
    scene.disk.sync_error = errno.EIO
    scene.follow(durable)
    await eventually(lambda: durable.error is ErrorCode.KAFKA_STORAGE_ERROR)
    assert asked(leader) == [0]
    scene.disk.sync_error = None


async def test_an_unexpected_error_in_one_partition_leaves_the_others_alone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await scene.leader()
    broken, fine = scene.partition(0), scene.partition(1)
    for partition in (broken, fine):
        leader.lead(partition.index).append(b"a")
    appending = type(broken).append_from_leader

    def fails(self: object, records: memoryview) -> None:
        if self is broken:
            raise RuntimeError("a defect")
        appending(self, records)  # type: ignore[arg-type]

    monkeypatch.setattr(type(broken), "append_from_leader", fails)
    scene.follow(broken)
    scene.follow(fine)
    await scene.copied(fine, leader)
    await eventually(lambda: scene.gauge("failed_replicas") == 1)


async def test_an_unexpected_error_in_reconciliation_is_retried(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await scene.leader()
    led = leader.lead()
    partition = scene.partition()
    partition.log.append_as_follower(memoryview(led.append(b"a")))
    led.append(b"b")
    defects = [RuntimeError("a defect")]

    def find(*known: object) -> object:
        if defects:
            raise defects.pop()
        return find_truncation(*known)  # type: ignore[arg-type]

    monkeypatch.setattr("qbus.broker.replicator.log_reconciliation.find_truncation", find)
    scene.follow(partition)
    await scene.copied(partition, leader)
    assert not defects
