"""ListOffsets: places and points in time."""

import asyncio
from typing import Any

import pytest

from qbus.broker.kafka.handlers import list_offsets
from qbus.broker.metadata.image import PartitionInfo, Topic
from qbus.broker.partition.partition import Partition
from qbus.errors import ErrorCode
from qbus.metadata.store import SessionState
from qbus.records.control import ControlType, control_batch, encode_int64
from qbus.wire import API, ApiKey
from qbus.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.support.data_plane import DataPlane
from tests.support.logs import NOW_MS, batch

VERSIONS = range(API[ApiKey.LIST_OFFSETS].min_version, API[ApiKey.LIST_OFFSETS].max_version + 1)
LATEST_VERSION = VERSIONS[-1]

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)


async def list_offset(
    plane: DataPlane,
    timestamp: int,
    *,
    version: int = LATEST_VERSION,
    topic: str = "orders",
    index: int = 0,
    epoch: int = -1,
    times: int = 1,
    **fields: Any,
) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(
        partition_index=index, timestamp=timestamp, current_leader_epoch=epoch
    )
    fields.setdefault("replica_id", -1)
    request = ListOffsetsRequest(
        topics=[ListOffsetsTopic(name=topic, partitions=[wanted] * times)], **fields
    )
    response = await plane.call(ApiKey.LIST_OFFSETS, version, request)
    answer: ListOffsetsPartitionResponse = response.topics[0].partitions[0]
    return answer


@pytest.fixture
async def orders(plane: DataPlane) -> Partition:
    """Offsets 0 to 5: three batches of two, a second apart, the middle one the newest."""
    partition = await plane.create("orders", qbus_durability="memory")
    for seconds in (1, 30, 10):
        partition.append(batch(b"a", b"b", timestamp=NOW_MS + seconds * 1000), 1)
    return partition


class TestPlaces:
    @pytest.mark.parametrize("version", VERSIONS)
    async def test_the_end_and_the_start_in_every_version(
        self, plane: DataPlane, orders: Partition, version: int
    ) -> None:
        orders.log.delete_records_before(1)
        end = await list_offset(plane, LATEST, version=version)
        start = await list_offset(plane, EARLIEST, version=version)
        assert (end.error_code, end.offset, end.timestamp) == (0, 6, -1)
        assert (start.error_code, start.offset, start.timestamp) == (0, 1, -1)
        if version >= 4:
            assert (end.leader_epoch, start.leader_epoch) == (0, 0)

    @pytest.mark.parametrize("isolation_level", [0, 1])
    @pytest.mark.parametrize("place", [LATEST, MAX_TIMESTAMP])
    async def test_the_end_waits_for_the_flush_of_what_acks_1_acknowledged(
        self, plane: DataPlane, isolation_level: int, place: int
    ) -> None:
        partition = await plane.create("safe")
        plane.disk.hold_syncs()
        partition.append(batch(b"a"), 1)
        asked = list_offset(plane, place, topic="safe", isolation_level=isolation_level)
        waiting = asyncio.create_task(asked)
        debugger = await list_offset(plane, LATEST, topic="safe", replica_id=-2)
        assert (debugger.offset, waiting.done()) == (1, False)
        assert (await list_offset(plane, EARLIEST, topic="safe")).offset == 0
        plane.disk.release_syncs()
        assert (await waiting).offset == (1 if place == LATEST else 0)

    async def test_the_end_is_what_is_acknowledged_when_the_flush_takes_too_long(
        self, plane: DataPlane, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(list_offsets, "MAX_WAIT_S", 0.0)
        partition = await plane.create("safe")
        plane.disk.hold_syncs()
        partition.append(batch(b"a"), 1)
        assert (await list_offset(plane, LATEST, topic="safe")).offset == 0
        plane.disk.release_syncs()

    async def test_a_leader_deposed_during_the_flush_tells_no_end(self, plane: DataPlane) -> None:
        partition = await plane.create("safe")
        plane.disk.hold_syncs()
        partition.append(batch(b"a"), 1)
        waiting = asyncio.create_task(list_offset(plane, LATEST, topic="safe"))
        await asyncio.sleep(0)
        partition.follow(2, 1)
        answer = await waiting
        assert ErrorCode(answer.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        plane.disk.release_syncs()

    async def test_the_end_does_not_wait_for_followers(self, plane: DataPlane) -> None:
        topic = plane.metadata.new_topic("copied", 1, {"qbus.durability": "memory"})
        state = PartitionInfo(1, 1, (1, 2), (1, 2))
        await plane.metadata.put(Topic(topic.name, topic.id, (state,), topic.config))
        plane.partition("copied").append(batch(b"a"), 1)
        answer = await list_offset(plane, EARLIEST, topic="copied")
        assert answer.error_code == 0
        end = await asyncio.wait_for(list_offset(plane, LATEST, topic="copied", version=5), 1)
        assert (ErrorCode(end.error_code), end.offset) == (ErrorCode.NONE, 0)

    async def test_the_end_does_not_wait_while_the_store_is_away(self, plane: DataPlane) -> None:
        partition = await plane.create("safe")
        plane.disk.hold_syncs()
        partition.append(batch(b"a"), 1)
        plane.store.become(SessionState.SUSPENDED)
        assert (await list_offset(plane, LATEST, topic="safe")).offset == 0
        plane.disk.release_syncs()

    @pytest.mark.parametrize("version", range(6, LATEST_VERSION + 1))
    async def test_the_end_behind_hidden_batches_is_for_those_who_ask_for_it(
        self, plane: DataPlane, orders: Partition, version: int
    ) -> None:
        hidden = control_batch([(ControlType.BOUND, encode_int64(0))], NOW_MS)
        orders.append_own(hidden, 0)
        for asked, expected in ((False, 6), (True, 7)):
            end = await list_offset(plane, LATEST, version=version, hidden=asked)
            start = await list_offset(plane, EARLIEST, version=version, hidden=asked)
            assert (end.offset, start.offset) == (expected, 0)

    async def test_the_record_with_the_greatest_timestamp(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        found = await list_offset(plane, MAX_TIMESTAMP)
        assert (found.offset, found.timestamp) == (2, NOW_MS + 30_000)
        assert found.leader_epoch == 0

    async def test_nothing_is_tiered(self, plane: DataPlane, orders: Partition) -> None:
        assert (await list_offset(plane, EARLIEST_LOCAL)).offset == 0
        for place in (LATEST_TIERED, PENDING_UPLOAD):
            answer = await list_offset(plane, place)
            assert (answer.error_code, answer.offset, answer.timestamp) == (0, -1, -1)

    @pytest.mark.parametrize(
        ("place", "since"),
        [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (PENDING_UPLOAD, 11)],
    )
    async def test_places_that_a_version_does_not_know(
        self, plane: DataPlane, orders: Partition, place: int, since: int
    ) -> None:
        before = await list_offset(plane, place, version=since - 1)
        assert ErrorCode(before.error_code) is ErrorCode.UNSUPPORTED_VERSION
        assert (await list_offset(plane, place, version=since)).error_code == 0

    async def test_a_place_that_nobody_knows(self, plane: DataPlane, orders: Partition) -> None:
        answer = await list_offset(plane, -7)
        assert ErrorCode(answer.error_code) is ErrorCode.UNSUPPORTED_VERSION

    async def test_an_empty_partition(self, plane: DataPlane) -> None:
        await plane.create("empty")
        for place, offset in ((LATEST, 0), (EARLIEST, 0), (MAX_TIMESTAMP, -1), (NOW_MS, -1)):
            answer = await list_offset(plane, place, topic="empty")
            assert (answer.error_code, answer.offset, answer.timestamp) == (0, offset, -1)


class TestTimes:
    @pytest.mark.parametrize(
        ("seconds", "offset", "found_seconds"),
        [(-100, 0, 1), (1, 0, 1), (2, 2, 30), (30, 2, 30)],
    )
    async def test_the_first_record_that_is_not_older(
        self, plane: DataPlane, orders: Partition, seconds: int, offset: int, found_seconds: int
    ) -> None:
        found = await list_offset(plane, NOW_MS + seconds * 1000)
        assert found.error_code == 0
        assert (found.offset, found.timestamp) == (offset, NOW_MS + found_seconds * 1000)

    async def test_no_record_is_that_new(self, plane: DataPlane, orders: Partition) -> None:
        answer = await list_offset(plane, NOW_MS + 31_000)
        assert (answer.error_code, answer.offset, answer.timestamp) == (0, -1, -1)

    async def test_what_is_not_acknowledged_is_not_found(
        self, plane: DataPlane, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(list_offsets, "MAX_WAIT_S", 0.0)
        partition = await plane.create("safe")
        plane.disk.hold_syncs()
        partition.append(batch(b"a"), 1)
        for place in (NOW_MS, MAX_TIMESTAMP):
            assert (await list_offset(plane, place, topic="safe")).offset == -1
        plane.disk.release_syncs()


class TestErrors:
    async def test_a_partition_asked_for_twice(self, plane: DataPlane, orders: Partition) -> None:
        answer = await list_offset(plane, LATEST, times=2)
        assert ErrorCode(answer.error_code) is ErrorCode.INVALID_REQUEST

    @pytest.mark.parametrize(("topic", "index"), [("none", 0), ("orders", 1), ("orders", -1)])
    async def test_unknown_partitions(
        self, plane: DataPlane, orders: Partition, topic: str, index: int
    ) -> None:
        answer = await list_offset(plane, LATEST, topic=topic, index=index)
        assert ErrorCode(answer.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answer.offset == -1

    async def test_a_leader_epoch_that_is_not_known_yet(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        answer = await list_offset(plane, LATEST, epoch=1)
        assert ErrorCode(answer.error_code) is ErrorCode.UNKNOWN_LEADER_EPOCH
