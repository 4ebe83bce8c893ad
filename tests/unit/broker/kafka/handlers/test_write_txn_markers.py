"""Transactions over the protocol: markers, verified produces, and what committed consumers see."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import Any

import pytest

from qbus.broker.partition.partition import Partition
from qbus.errors import ErrorCode
from qbus.records import iter_batches
from qbus.wire import API, ApiKey
from qbus.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from qbus.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from qbus.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from qbus.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.data_plane import DataPlane, values
from tests.support.logs import NOW_MS, batch, transactional
from tests.support.waiting import eventually

VERSIONS = range(
    API[ApiKey.WRITE_TXN_MARKERS].min_version, API[ApiKey.WRITE_TXN_MARKERS].max_version + 1
)
LATEST = VERSIONS[-1]
_PRODUCE_BY_NAME = 12
_VERIFYING = 11

Codes = dict[tuple[str, int], ErrorCode]


class Coordinator:
    """What answers verifications: yes, unless a test says otherwise."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, list[tuple[str, int]], bool]] = []
        self.codes: Codes = {}
        self.meanwhile: Callable[[], Awaitable[None] | None] = lambda: None

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[tuple[str, int]],
        *,
        add: bool,
        abortable: bool,
    ) -> Codes:
        self.asked.append((transactional_id, producer_id, epoch, list(partitions), add))
        outcome = self.meanwhile()
        if outcome is not None:
            await outcome
        return {one: self.codes.get(one, ErrorCode.NONE) for one in partitions}


@pytest.fixture
async def orders(plane: DataPlane) -> Partition:
    """A topic of two partitions in memory durability."""
    return await plane.create("orders", 2, qbus_durability="memory")


@pytest.fixture
def coordinator(plane: DataPlane, orders: Partition) -> Coordinator:
    made = Coordinator()
    plane.broker.transactions = made
    return made


def marker(
    *indexes: int,
    topic: str = "orders",
    producer_id: int = 7,
    epoch: int = 0,
    committed: bool = True,
    coordinator_epoch: int = 0,
    version: int = 0,
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=committed,
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(indexes or (0,)))],
    )


async def end(plane: DataPlane, *markers: WritableTxnMarker, version: int = LATEST) -> list[int]:
    """The codes of all partitions, in order."""
    request = WriteTxnMarkersRequest(markers=list(markers))
    response = await plane.call(ApiKey.WRITE_TXN_MARKERS, version, request)
    return [
        partition.error_code
        for result in response.markers
        for topic in result.topics
        for partition in topic.partitions
    ]


async def produce(
    plane: DataPlane,
    *records: Any,
    version: int = _PRODUCE_BY_NAME,
    transactional_id: str | None = "tx",
) -> list[tuple[int, int]]:
    """Produce to the first partitions; each one's error code and base offset."""
    data = [PartitionProduceData(index=i, records=one) for i, one in enumerate(records)]
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="orders", partition_data=data)],
    )
    response = await plane.call(ApiKey.PRODUCE, version, request)
    answers = response.responses[0].partition_responses
    return [(answer.error_code, answer.base_offset) for answer in answers]


def fetch_request(offset: int, isolation: int, wait_ms: int = 0) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=isolation,
        topics=[FetchTopic(topic="orders", partitions=[wanted])],
    )


async def fetch(plane: DataPlane, offset: int = 0, *, isolation: int = 1, wait_ms: int = 0) -> Any:
    response = await plane.call(ApiKey.FETCH, 12, fetch_request(offset, isolation, wait_ms))
    return response.responses[0].partitions[0]


def end_of(records: memoryview) -> int:
    """The offset after the last batch."""
    return max(header.last_offset for header, _ in iter_batches(records)) + 1


async def list_end(plane: DataPlane, timestamp: int = -1, *, isolation: int = 1) -> int:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name="orders", partitions=[wanted])],
    )
    response = await plane.call(ApiKey.LIST_OFFSETS, 6, request)
    offset: int = response.topics[0].partitions[0].offset
    return offset


class TestMarkers:
    @pytest.mark.parametrize("version", VERSIONS)
    async def test_every_version_ends_a_transaction(
        self, plane: DataPlane, orders: Partition, coordinator: Coordinator, version: int
    ) -> None:
        await produce(plane, transactional(b"a"))
        assert orders.last_stable_offset == 0
        assert await end(plane, marker(), version=version) == [0]
        assert orders.last_stable_offset == 2
        assert coordinator.asked

    async def test_each_partition_has_a_result_of_its_own(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        codes = await end(plane, marker(0, 1, 2), marker(topic="none"))
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == [0, 0, unknown, unknown]
        assert orders.log.log_end_offset == 1

    async def test_it_is_answered_once_acknowledged(self, plane: DataPlane) -> None:
        partition = await plane.create("safe")
        plane.disk.hold_syncs()
        request = WriteTxnMarkersRequest(markers=[marker(topic="safe")])
        answer = plane.begin(ApiKey.WRITE_TXN_MARKERS, LATEST, request)
        await asyncio.sleep(0.01)
        assert not answer.done()
        assert partition.log.log_end_offset == 1
        plane.disk.release_syncs()
        response = await answer
        assert response.markers[0].topics[0].partitions[0].error_code == 0

    async def test_versions_decide_which_epochs_end_a_transaction(
        self, plane: DataPlane, orders: Partition, coordinator: Coordinator
    ) -> None:
        await produce(plane, transactional(b"a", epoch=3))
        assert await end(plane, marker(epoch=3, version=2)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert await end(plane, marker(epoch=4, version=2)) == [0]
        assert await end(plane, marker(epoch=4, version=2)) == [0]  # sent again, written once
        assert orders.log.log_end_offset == 2
        assert len(coordinator.asked) == 1

    async def test_an_older_coordinator_is_fenced(
        self, plane: DataPlane, orders: Partition
    ) -> None:
        assert await end(plane, marker(coordinator_epoch=2)) == [0]
        fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert await end(plane, marker(coordinator_epoch=1)) == [fenced]
        assert orders.log.log_end_offset == 1

    async def test_listeners_hear_of_it(self, plane: DataPlane, orders: Partition) -> None:
        heard: list[tuple[int, int, bool]] = []
        plane.replicas.events.transaction_ended.append(lambda partition, *what: heard.append(what))
        await end(plane, marker(committed=False), marker(producer_id=8, epoch=2))
        assert heard == [(7, 0, False), (8, 2, True)]
        assert orders.log.log_end_offset == 2

    async def test_too_few_replicas_take_no_marker(self, plane: DataPlane) -> None:
        partition = await plane.create("orders", qbus_durability="memory")
        assert partition.followers is not None
        partition.followers.wanted = partition.followers.wanted._replace(min_isr=2)
        assert await end(plane, marker()) == [ErrorCode.NOT_ENOUGH_REPLICAS]


class TestProducing:
    @pytest.mark.parametrize(("version", "adds"), [(_VERIFYING, False), (_PRODUCE_BY_NAME, True)])
    async def test_the_first_batch_of_each_partition_is_asked_for(
        self,
        plane: DataPlane,
        orders: Partition,
        coordinator: Coordinator,
        version: int,
        adds: bool,
    ) -> None:
        answers = await produce(plane, transactional(b"a"), transactional(b"b"), version=version)
        assert answers == [(0, 0), (0, 0)]
        assert coordinator.asked == [("tx", 7, 0, [("orders", 0), ("orders", 1)], adds)]
        assert await produce(plane, transactional(b"c", sequence=1), version=version) == [(0, 1)]
        assert len(coordinator.asked) == 1
        assert orders.log.producers.open_transactions == {7: 0}

    async def test_what_the_coordinator_refuses_is_not_appended(
        self, plane: DataPlane, orders: Partition, coordinator: Coordinator
    ) -> None:
        coordinator.codes["orders", 0] = ErrorCode.INVALID_TXN_STATE
        answers = await produce(plane, transactional(b"a"), transactional(b"b"))
        assert answers == [(ErrorCode.INVALID_TXN_STATE, -1), (0, 0)]
        assert orders.log.log_end_offset == 0

    async def test_a_marker_that_comes_meanwhile_wins(
        self, plane: DataPlane, orders: Partition, coordinator: Coordinator
    ) -> None:
        async def abort() -> None:
            await end(plane, marker(committed=False))

        coordinator.meanwhile = abort
        answers = await produce(plane, transactional(b"late"), version=_VERIFYING)
        assert answers == [(ErrorCode.INVALID_TXN_STATE, -1)]
        assert orders.last_stable_offset == orders.log.log_end_offset == 1

    async def test_a_transaction_needs_its_id(
        self, plane: DataPlane, orders: Partition, coordinator: Coordinator
    ) -> None:
        denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert await produce(plane, transactional(b"a"), transactional_id=None) == [(denied, -1)]
        assert (coordinator.asked, orders.log.log_end_offset) == ([], 0)

    async def test_other_batches_of_the_request_are_appended_at_once(
        self, plane: DataPlane, orders: Partition, coordinator: Coordinator
    ) -> None:
        answers = await produce(plane, batch(b"a"), transactional(b"b"))
        assert answers == [(0, 0), (0, 0)]
        assert coordinator.asked[0][3] == [("orders", 1)]
        assert orders.last_stable_offset == 1

    async def test_it_is_compressed_as_the_topic_wants(
        self, plane: DataPlane, coordinator: Coordinator
    ) -> None:
        topic = plane.metadata.topics["orders"]
        config = {**topic.config, "compression.type": "gzip"}
        await plane.metadata.put(replace(topic, config=config))
        assert await produce(plane, transactional(b"a" * 100)) == [(0, 0)]
        partition = plane.partition("orders")
        found = partition.log.read(0, 1 << 20)
        assert found is not None
        ((header, _),) = iter_batches(memoryview(found.read()))
        assert (header.attributes, header.producer_id) == (0x11, 7)
        assert partition.log.producers.open_transactions == {7: 0}
        assert len(coordinator.asked) == 1


class TestReading:
    async def test_open_records_are_not_for_committed_consumers(
        self, plane: DataPlane, coordinator: Coordinator
    ) -> None:
        await produce(plane, batch(b"plain"), transactional_id=None)
        await produce(plane, transactional(b"open"))
        await produce(plane, batch(b"behind"), transactional_id=None)
        data = await fetch(plane)
        assert values(data.records) == [b"plain"]
        assert (data.high_watermark, data.last_stable_offset) == (3, 1)
        assert data.aborted_transactions == []
        data = await fetch(plane, 1)
        assert (values(data.records), data.error_code) == ([], 0)
        data = await fetch(plane, isolation=0)
        assert values(data.records) == [b"plain", b"open", b"behind"]
        assert (data.high_watermark, data.last_stable_offset) == (3, 1)
        assert data.aborted_transactions is None
        assert coordinator.asked

    @pytest.mark.parametrize("committed", [False, True])
    async def test_ended_ones_are_sent_and_aborted_ones_named(
        self, plane: DataPlane, coordinator: Coordinator, committed: bool
    ) -> None:
        await produce(plane, transactional(b"a"))
        await end(plane, marker(committed=committed))
        data = await fetch(plane)
        assert end_of(data.records) == data.last_stable_offset == data.high_watermark == 2
        named = [(one.producer_id, one.first_offset) for one in data.aborted_transactions]
        assert named == ([] if committed else [(7, 0)])
        assert (await fetch(plane, isolation=0)).aborted_transactions is None
        assert coordinator.asked

    async def test_after_a_restart_as_well(
        self, plane: DataPlane, coordinator: Coordinator
    ) -> None:
        await produce(plane, transactional(b"a"))
        await end(plane, marker(committed=False))
        await produce(plane, transactional(b"b", sequence=1))
        await plane.restart()
        data = await fetch(plane)
        assert (end_of(data.records), data.last_stable_offset) == (2, 2)
        assert [one.first_offset for one in data.aborted_transactions] == [0]
        assert coordinator.asked

    async def test_a_poll_waits_for_the_transaction_to_end(
        self, plane: DataPlane, orders: Partition, coordinator: Coordinator
    ) -> None:
        await produce(plane, transactional(b"a"))
        polled = plane.begin(ApiKey.FETCH, 12, fetch_request(0, 1, 10_000))
        await produce(plane, transactional(b"b", sequence=1))
        await asyncio.sleep(0.01)
        assert not polled.done()
        await end(plane, marker())
        response = await polled
        assert response.responses[0].partitions[0].last_stable_offset == 3
        assert orders.committed_watchers == {}
        assert coordinator.asked

    async def test_offsets_are_listed_up_to_what_is_stable(
        self, plane: DataPlane, coordinator: Coordinator
    ) -> None:
        await produce(plane, batch(b"plain", timestamp=NOW_MS - 5), transactional_id=None)
        await produce(plane, transactional(b"open"))
        assert await list_end(plane) == 1
        assert await list_end(plane, isolation=0) == 2
        assert await list_end(plane, NOW_MS) == -1
        assert await list_end(plane, NOW_MS, isolation=0) == 1
        await end(plane, marker())
        assert await list_end(plane) == 3
        assert await list_end(plane, NOW_MS) == 1
        assert coordinator.asked

    async def test_what_is_not_acknowledged_is_not_stable(self, plane: DataPlane) -> None:
        plane.broker.transactions = Coordinator()
        partition = await plane.create("orders")
        await produce(plane, transactional(b"a"))
        plane.disk.hold_syncs()
        ending = plane.begin(
            ApiKey.WRITE_TXN_MARKERS, LATEST, WriteTxnMarkersRequest(markers=[marker()])
        )
        assert partition.log.log_end_offset == 2
        assert await list_end(plane) == 0
        assert (await fetch(plane)).last_stable_offset == 0
        plane.disk.release_syncs()
        await ending
        await eventually(lambda: partition.last_stable_offset == 2)
