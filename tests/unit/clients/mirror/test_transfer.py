"""Reader and writer together: everything once and in order, within bounds, despite failures."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from qbus.clients.batches import FetchedBatches
from qbus.clients.mirror.chunks import Chunk
from qbus.clients.mirror.config import LinkConfig, Transfer
from qbus.clients.mirror.log_comparison import LogBounds, start_offset
from qbus.clients.mirror.partitions import MirroredPartition, Phase
from qbus.clients.mirror.provenance import Provenance
from qbus.clients.mirror.reader import Reader
from qbus.clients.mirror.writer import Writer
from qbus.clients.net.cluster import Cluster
from qbus.clients.net.versions import SPOKEN
from qbus.clients.types import TopicPartition
from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.records import build_batch, iter_batches
from qbus.wire import ApiKey
from qbus.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.support.fake_cluster import ClusterNode, FakeCluster
from tests.support.fake_log import PartitionLog
from tests.support.waiting import eventually

PARTITIONS = 6
OLD, NEW = UUID(int=1), UUID(int=2)


class MirrorLog:
    """What a partition of the target has: as a real broker's mirror, it is asked what follows."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end = 0
        self.source_starts: list[int] = []

    def append(self, records: bytes, follows: int, source_start: int) -> ErrorCode:
        self.source_starts.append(source_start)
        if follows > self.end:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        for header, batch in iter_batches(records):
            if header.base_offset >= self.end:
                self.batches.append(bytes(batch))
                self.end = header.last_offset + 1
        return ErrorCode.NONE


class Engine:
    """What a link is to its reader and its writer, for fake clusters."""

    def __init__(self, source: FakeCluster, target: FakeCluster, transfer: Transfer) -> None:
        self.source, self.target = source, target
        self.logs = {TopicPartition("a.t", i): MirrorLog() for i in range(PARTITIONS)}
        self.here = Cluster(source.bootstrap, "test", 5.0)
        self.there = Cluster(target.bootstrap, "test", 5.0)
        config = LinkConfig("a", "b", "s:1", "t:1", ("t",), transfer=transfer)
        self.reader = Reader(self.here, config, self, self.spawn)
        self.writer = Writer(self.there, config, self, self.spawn)
        provenance = Provenance("a", "id", ("a",))
        self.partitions = [
            MirroredPartition(TopicPartition("t", i), TopicPartition("a.t", i), provenance, OLD)
            for i in range(PARTITIONS)
        ]
        self.most_held = 0
        self.failures: list[QbusError] = []
        self._tasks: set[asyncio.Task[None]] = set()
        for node in target.nodes.values():
            node.handlers[ApiKey.PRODUCE] = self.handler(node)

    def handler(self, node: ClusterNode) -> Any:
        def produce(request: ProduceRequest) -> ProduceResponse:
            response = ProduceResponse()
            for topic in request.topic_data:
                assert (topic.mirror_source, topic.mirror_topic_id) == ("a", "id")
                answers = []
                for data in topic.partition_data:
                    code = node.refusal(topic.name, data.index)
                    if not code:
                        log = self.logs[TopicPartition(topic.name, data.index)]
                        code = log.append(
                            bytes(data.records or b""),
                            data.mirror_follows,
                            data.mirror_log_start_offset,
                        )
                    answers.append(
                        PartitionProduceResponse(index=data.index, error_code=code, base_offset=0)
                    )
                response.responses.append(
                    TopicProduceResponse(name=topic.name, partition_responses=answers)
                )
            return response

        return produce

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        self.reader.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert outcome is None or isinstance(outcome, asyncio.CancelledError)
        await self.here.close()
        await self.there.close()

    def start(self) -> None:
        for mirrored in self.partitions:
            self.resolve(mirrored)

    def resolve(self, mirrored: MirroredPartition) -> None:
        log, epoch = self.source.logs[mirrored.source], self.source.epochs[mirrored.source]
        ends = LogBounds(log.start, log.end, 0, self.logs[mirrored.target].end, epoch)
        mirrored.resolved(start_offset(ends), ends)
        self.reader.start(mirrored)

    # As a link.

    @property
    def held_bytes(self) -> int:
        return self.writer.held_bytes

    def arrived(self, mirrored: MirroredPartition, chunk: Chunk) -> None:
        self.writer.send(mirrored, chunk)
        self.most_held = max(self.most_held, self.writer.held_bytes)

    def acknowledged(self, mirrored: MirroredPartition, chunk: Chunk) -> None:
        mirrored.acknowledged(chunk)

    def completed(self, mirrored: MirroredPartition) -> None:
        self.reader.wake()
        if mirrored.sent == 0 and mirrored.phase is Phase.RESOLVING:
            self.resolve(mirrored)

    def failed(self, mirrored: MirroredPartition, error: QbusError) -> None:
        self.failures.append(error)
        mirrored.failed(error, 0.0)
        if mirrored.sent == 0:
            asyncio.get_running_loop().call_later(0.01, self.again, mirrored)

    def again(self, mirrored: MirroredPartition) -> None:
        if mirrored.phase is Phase.RESOLVING and mirrored.sent == 0:
            self.resolve(mirrored)

    def refused(self, mirrored: MirroredPartition, error: QbusError) -> None:
        self.reader.stop(mirrored)
        self.failed(mirrored, error)

    def out_of_range(self, mirrored: MirroredPartition) -> None:
        mirrored.overtaken()
        self.resolve(mirrored)

    def is_done(self) -> bool:
        return all(
            self.logs[mirrored.target].end == self.source.logs[mirrored.source].end
            for mirrored in self.partitions
        )

    def assert_equal(self) -> None:
        for mirrored in self.partitions:
            assert self.logs[mirrored.target].batches == self.source.logs[mirrored.source].batches


@asynccontextmanager
async def engine(transfer: Transfer | None = None) -> AsyncIterator[Engine]:
    async with (
        FakeCluster(2, {"t": PARTITIONS}) as source,
        FakeCluster(2, {"a.t": PARTITIONS}) as target,
    ):
        source.ids["t"] = OLD.bytes
        made = Engine(source, target, transfer or Transfer(fetch_wait_ms=100))
        try:
            yield made
        finally:
            await made.close()


def fill(source: FakeCluster, batches: int = 30, size: int = 1000) -> None:
    for index in range(PARTITIONS):
        for _ in range(batches):
            made = build_batch([(None, bytes(size), (), 1_700_000_000_000)] * 2)
            source.logs["t", index].append(bytes(made))
    for node in source.nodes.values():
        node.wake()


async def test_existing_and_later_batches_arrive() -> None:
    async with engine() as e:
        fill(e.source)
        e.start()
        await eventually(e.is_done)
        fill(e.source, batches=1)
        await eventually(e.is_done)
        e.assert_equal()
        await eventually(lambda: e.writer.held_bytes == 0)
        assert not e.failures
        assert e.writer.repeated == 0


@pytest.mark.parametrize("side", ["source", "target"])
async def test_partitions_move(side: str) -> None:
    async with engine() as e:
        fill(e.source)
        e.start()
        moving = e.source if side == "source" else e.target
        topic = "t" if side == "source" else "a.t"
        for turn in range(3):
            for index in range(PARTITIONS):
                moving.move(topic, index, 1 + (turn + index) % 2)
            moving.publish()
            fill(e.source, batches=5)
            await eventually(e.is_done)
        e.assert_equal()
        await eventually(lambda: e.writer.held_bytes == 0)


@pytest.mark.parametrize("side", ["source", "target"])
async def test_connections_break(side: str) -> None:
    async with engine() as e:
        e.start()
        for _ in range(5):
            fill(e.source, batches=5)
            await asyncio.sleep(0.01)
            for node in (e.source if side == "source" else e.target).nodes.values():
                node.hangup()
            await eventually(e.is_done)
        e.assert_equal()
        await eventually(lambda: e.writer.held_bytes == 0)


async def test_a_refused_chunk_voids_those_behind_it() -> None:
    async with engine(Transfer(fetch_wait_ms=50)) as e:
        node = e.target.nodes[1]
        honest = node.handlers[ApiKey.PRODUCE]
        turns = iter(range(10**6))

        def every_third(request: ProduceRequest) -> ProduceResponse:
            if next(turns) % 3:
                return honest(request)  # type: ignore[no-any-return]
            return ProduceResponse(
                responses=[
                    TopicProduceResponse(
                        name=topic.name,
                        partition_responses=[
                            PartitionProduceResponse(
                                index=data.index,
                                error_code=ErrorCode.NOT_ENOUGH_REPLICAS,
                                base_offset=-1,
                            )
                            for data in topic.partition_data
                        ],
                    )
                    for topic in request.topic_data
                ]
            )

        node.handlers[ApiKey.PRODUCE] = every_third
        e.start()
        for _ in range(5):
            fill(e.source, batches=3)
            await asyncio.sleep(0.005)
        await eventually(e.is_done)
        e.assert_equal()
        codes = {error.code for error in e.failures if isinstance(error, ApiError)}
        assert ErrorCode.NOT_ENOUGH_REPLICAS in codes


async def test_a_chunk_that_waits_does_not_learn_of_a_later_start() -> None:
    """Else offsets that the source never had would look like removed ones."""
    async with engine() as e:
        mirrored = e.partitions[0]
        fill(e.source, batches=1)
        log = e.source.logs[mirrored.source]
        ends = LogBounds(0, log.end, 0, 0, e.source.epochs[mirrored.source])
        mirrored.resolved(start_offset(ends), ends)
        chunk = mirrored.fetched(FetchedBatches(memoryview(log.batches[0]), 0, log.end))
        assert chunk is not None
        mirrored.fetched(FetchedBatches(memoryview(b""), log.end, log.end))
        e.writer.send(mirrored, chunk)
        target = e.logs[mirrored.target]
        await eventually(lambda: target.end == log.end)
        assert target.source_starts == [0]


async def test_requests_in_flight_are_bounded() -> None:
    async with engine(Transfer(in_flight=2, fetch_wait_ms=50)) as e:
        under_way, most = 0, 0
        node = e.target.nodes[1]
        honest = node.handlers[ApiKey.PRODUCE]

        async def slow(request: ProduceRequest) -> ProduceResponse:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.002)
            under_way -= 1
            return honest(request)  # type: ignore[no-any-return]

        node.handlers[ApiKey.PRODUCE] = slow
        fill(e.source)
        e.start()
        await eventually(e.is_done)
        lanes = {connection_group for _, connection_group in e.reader._fetches}
        assert len(lanes) <= 4
        e.assert_equal()


async def test_a_target_that_stands_still_bounds_what_is_fetched() -> None:
    transfer = Transfer(memory_bytes=512 * 1024, fetch_bytes=64 * 1024, fetch_wait_ms=50)
    async with engine(transfer) as e:
        gate = asyncio.Event()
        node = e.target.nodes[1]
        honest = node.handlers[ApiKey.PRODUCE]

        async def closed(request: ProduceRequest) -> ProduceResponse:
            await gate.wait()
            return honest(request)  # type: ignore[no-any-return]

        node.handlers[ApiKey.PRODUCE] = closed
        fill(e.source, batches=100)
        e.start()
        await eventually(lambda: e.writer.held_bytes > 0)
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert e.most_held <= transfer.memory_bytes
        assert not e.is_done()
        gate.set()
        await eventually(e.is_done, timeout=30.0)
        e.assert_equal()
        assert e.most_held <= transfer.memory_bytes


async def test_a_topic_that_is_gone_is_an_error_of_its_copies() -> None:
    async with engine() as e:
        fill(e.source, batches=1)
        e.start()
        await eventually(e.is_done)
        del e.source.topics["t"]
        for index in range(PARTITIONS):
            e.source.move("t", index, 2)
        await eventually(lambda: len(e.failures) >= PARTITIONS)
        assert {error.code for error in e.failures if isinstance(error, ApiError)} & {
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.FENCED_LEADER_EPOCH,
        }


@pytest.mark.parametrize("versions", [(4, 12), (4, 18)], ids=["by name", "by id"])
async def test_no_record_of_a_topic_created_again_is_copied(versions: tuple[int, int]) -> None:
    async with engine(Transfer(fetch_wait_ms=20)) as e:
        for node in e.source.nodes.values():
            node.versions = {**SPOKEN, ApiKey.FETCH: versions}
        fill(e.source, batches=2)
        e.start()
        await eventually(e.is_done)
        before = [list(e.logs[mirrored.target].batches) for mirrored in e.partitions]
        e.source.ids["t"] = NEW.bytes
        if versions[1] < 13:  # then the metadata alone tells it
            await e.here.refresh(["t"])
        for mirrored in e.partitions:
            e.source.logs[mirrored.source] = PartitionLog()
        fill(e.source, batches=5)
        await eventually(lambda: len(e.failures) >= 2 * PARTITIONS)
        assert {error.code for error in e.failures if isinstance(error, ApiError)} <= {
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.INCONSISTENT_TOPIC_ID,
        }
        assert [e.logs[mirrored.target].batches for mirrored in e.partitions] == before


async def test_a_new_leader_is_not_read_before_its_log_was_compared() -> None:
    async with engine(Transfer(fetch_wait_ms=20)) as e:
        fill(e.source, batches=2)
        for mirrored in e.partitions:
            ends = LogBounds(0, 4, 0, 0, source_epoch=0)
            mirrored.resolved(start_offset(ends), ends)
            e.source.move(*mirrored.source, 1)
        e.source.publish()
        await e.here.refresh(["t"])  # as discovery does
        for mirrored in e.partitions:
            e.reader.start(mirrored)
        await eventually(e.is_done)
        codes = [error.code for error in e.failures if isinstance(error, ApiError)]
        assert codes == [ErrorCode.FENCED_LEADER_EPOCH] * PARTITIONS
        assert {mirrored.source_epoch for mirrored in e.partitions} == {1}


async def test_draining_waits_for_requests_in_flight() -> None:
    async with engine() as e:
        fill(e.source, batches=5)
        e.start()
        await eventually(lambda: e.writer.held_bytes > 0)
        e.reader.close()
        await e.writer.drain(5.0)
        assert e.writer.held_bytes == 0
        asked = [len(node.requests) for node in e.source.nodes.values()]
        fill(e.source, batches=1)
        await asyncio.sleep(0.15)
        assert [len(node.requests) for node in e.source.nodes.values()] == asked
