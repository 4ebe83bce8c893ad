"""Consumers and replicas: who is sent where, and what a follower serves (KIP-392)."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qbus.broker.partition.partition import Partition
from qbus.errors import ErrorCode
from qbus.wire import API, ApiKey
from qbus.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from qbus.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.support.data_plane import NODE, DataPlane, values
from tests.support.following import OTHER, THIRD, Follower, at, lead, put, state
from tests.support.logs import batch

LATEST = API[ApiKey.FETCH].max_version
NOBODY = -1


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[DataPlane]:
    plane = DataPlane(tmp_path, replica_selector_class="rack")
    await plane.start()
    yield plane
    await plane.stop()


async def led(plane: DataPlane) -> Partition:
    """One record, which all have and all know to be acknowledged."""
    partition = await lead(plane)
    partition.append(batch(b"a"), 1)
    for node in (OTHER, THIRD):
        await Follower(plane, node).fetch(at(1))
    return partition


async def fetch(plane: DataPlane, offset: int, rack: str, epoch: int = -1, wait_ms: int = 0) -> Any:
    """The answer for partition 0 to a consumer in ``rack``."""
    wanted = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch
    )
    topic = FetchTopic(topic_id=plane.metadata.topics["orders"].id, partitions=[wanted])
    request = FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, topics=[topic], rack_id=rack
    )
    response = await plane.call(ApiKey.FETCH, LATEST, request)
    return response.responses[0].partitions[0]


class TestRedirected:
    async def test_a_consumer_is_sent_to_the_replica_in_its_rack(self, plane: DataPlane) -> None:
        await led(plane)
        data = await fetch(plane, 0, "rack-3", wait_ms=60_000)
        assert (data.preferred_read_replica, len(data.records)) == (THIRD, 0)
        assert data.high_watermark == 1

    @pytest.mark.parametrize("rack", ["", "rack-9"])
    async def test_who_has_none_nearby_reads_from_the_leader(
        self, plane: DataPlane, rack: str
    ) -> None:
        await led(plane)
        data = await fetch(plane, 0, rack)
        assert (data.preferred_read_replica, values(data.records)) == (NOBODY, [b"a"])

    async def test_nobody_is_sent_to_one_that_lacks_the_offset(self, plane: DataPlane) -> None:
        partition = await led(plane)
        partition.append(batch(b"b"), 1)
        data = await fetch(plane, 2, "rack-3")
        assert data.preferred_read_replica == NOBODY

    async def test_nobody_is_sent_to_one_that_is_out_of_sync(self, plane: DataPlane) -> None:
        await led(plane)
        await put(plane, state((NODE, OTHER), version=1))
        assert (await fetch(plane, 0, "rack-3")).preferred_read_replica == NOBODY

    @pytest.mark.parametrize("is_gone", [True, False])
    async def test_nobody_is_sent_to_one_that_is_gone_or_about_to(
        self, plane: DataPlane, is_gone: bool
    ) -> None:
        await led(plane)
        brokers = plane.metadata.brokers
        if is_gone:
            del brokers[THIRD]
        else:
            brokers[THIRD] = replace(brokers[THIRD], is_stopping=True)
        assert (await fetch(plane, 0, "rack-3")).preferred_read_replica == NOBODY

    async def test_nobody_is_sent_away_who_knows_another_leader(self, plane: DataPlane) -> None:
        await led(plane)
        data = await fetch(plane, 0, "rack-3", epoch=5)
        assert ErrorCode(data.error_code) is ErrorCode.UNKNOWN_LEADER_EPOCH


class TestFollowers:
    async def following(self, plane: DataPlane) -> Partition:
        """Two records, of which the first is known to be acknowledged."""
        await put(plane, state(leader=OTHER, leader_epoch=3), qbus_durability="memory")
        partition = plane.partition("orders")
        data = batch(b"a")
        data[12:16] = (3).to_bytes(4)
        partition.append_from_leader(data)
        later = batch(b"b")
        later[0:8], later[12:16] = (1).to_bytes(8), (3).to_bytes(4)
        partition.append_from_leader(later)
        partition.learn_high_watermark(1, 0)
        return partition

    async def test_they_serve_what_they_know_to_be_acknowledged(self, plane: DataPlane) -> None:
        await self.following(plane)
        data = await fetch(plane, 0, "rack-1", epoch=3)
        assert (values(data.records), data.high_watermark) == ([b"a"], 1)
        beyond = await fetch(plane, 1, "rack-1")
        assert (beyond.error_code, len(beyond.records)) == (0, 0)

    @pytest.mark.parametrize(
        ("offset", "rack", "epoch", "code"),
        [
            (3, "rack-1", 3, ErrorCode.OFFSET_OUT_OF_RANGE),
            (0, "rack-1", 2, ErrorCode.FENCED_LEADER_EPOCH),
            (0, "rack-1", 4, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (0, "", 3, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ],
    )
    async def test_they_refuse_the_rest(
        self, plane: DataPlane, offset: int, rack: str, epoch: int, code: ErrorCode
    ) -> None:
        await self.following(plane)
        data = await fetch(plane, offset, rack, epoch=epoch)
        assert ErrorCode(data.error_code) is code

    async def test_a_new_leader_names_no_end_that_was_further_before(
        self, plane: DataPlane
    ) -> None:
        partition = await self.following(plane)
        both = (NODE, OTHER)
        await put(plane, state(both, leader_epoch=4, version=1))
        codes = {}
        for version in (4, 5):
            for timestamp in (-1, -2):
                wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
                topic = ListOffsetsTopic(name="orders", partitions=[wanted])
                request = ListOffsetsRequest(replica_id=-1, topics=[topic])
                response = await plane.call(ApiKey.LIST_OFFSETS, version, request)
                codes[version, timestamp] = ErrorCode(response.topics[0].partitions[0].error_code)
        assert codes == {
            (4, -1): ErrorCode.LEADER_NOT_AVAILABLE,
            (4, -2): ErrorCode.NONE,
            (5, -1): ErrorCode.OFFSET_NOT_AVAILABLE,
            (5, -2): ErrorCode.NONE,
        }
        await Follower(plane, OTHER).fetch(at(2, leader_epoch=4))
        assert partition.high_watermark == 2
        response = await plane.call(ApiKey.LIST_OFFSETS, 5, request)
        assert response.topics[0].partitions[0].error_code == 0
