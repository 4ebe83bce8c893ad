"""Produce: what is appended, what is acknowledged when, and which error each fault gets."""

import asyncio
import errno
import gc
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from qbus.broker.kafka.context import RequestContext
from qbus.broker.kafka.dispatch import Dispatcher, PendingReply
from qbus.broker.kafka.handlers import produce as produce_handler
from qbus.broker.kafka.handlers.produce import handle
from qbus.broker.log.recompression import recompressed
from qbus.broker.metadata.image import PartitionInfo
from qbus.broker.metrics import Metrics
from qbus.broker.net.memory_budget import MemoryBudget
from qbus.broker.net.peer import Peer
from qbus.broker.partition.partition import Partition
from qbus.broker.quotas import ClientQuotas
from qbus.config import ListenerInfo
from qbus.errors import ApiError, ErrorCode
from qbus.records import (
    Compression,
    build_batch,
    check_crc,
    iter_batches,
    iter_records,
    read_header,
)
from qbus.records.header import write_header
from qbus.wire import API, ApiKey, decode_response
from qbus.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.data_plane import NODE, DataPlane, over_the_wire
from tests.support.logs import NOW_MS, batch
from tests.support.raw_client import frame
from tests.support.waiting import eventually

VERSIONS = range(API[ApiKey.PRODUCE].min_version, API[ApiKey.PRODUCE].max_version + 1)
LATEST = VERSIONS[-1]
_BY_ID = 13


def request(
    plane: DataPlane,
    version: int,
    *records: Any,
    topic: str = "orders",
    acks: int = -1,
    timeout_ms: int = 30_000,
    **fields: Any,
) -> ProduceRequest:
    """A request with one batch for each of the topic's first partitions."""
    known = plane.metadata.topics.get(topic)
    naming: dict[str, Any] = {"name": topic}
    if version >= _BY_ID:
        naming = {"topic_id": known.id if known else b"unknown-topic-id"}
    data = [PartitionProduceData(index=i, records=r) for i, r in enumerate(records)]
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(partition_data=data, **naming)],
        **fields,
    )


async def produce(
    plane: DataPlane, *records: Any, version: int = LATEST, **options: Any
) -> PartitionProduceResponse:
    """Produce one batch to partition 0; its answer."""
    response: ProduceResponse = await plane.call(
        ApiKey.PRODUCE, version, request(plane, version, *records, **options)
    )
    answers: Sequence[PartitionProduceResponse] = response.responses[0].partition_responses
    return answers[0]


class TestLongRequests:
    async def test_batches_outlive_the_frame(self, plane: DataPlane) -> None:
        """They are appended in later ticks, when other connections receive into its memory."""
        partition = await plane.create("orders")
        count = 450
        asked = request(plane, LATEST, *(batch(b"%d" % number) for number in range(count)))
        for data in asked.topic_data[0].partition_data:
            data.index = 0
        response: ProduceResponse = await plane.call(ApiKey.PRODUCE, LATEST, asked)
        answers = response.responses[0].partition_responses
        assert [(one.error_code, one.base_offset) for one in answers] == [
            (ErrorCode.NONE, offset) for offset in range(count)
        ]
        assert partition.log.log_end_offset == count
        assert plane.broker.memory.used == 0

    async def test_a_request_that_is_read_in_steps(self, plane: DataPlane) -> None:
        partition = await plane.create("orders")
        count = 1001
        asked = request(plane, LATEST, *(batch(b"%d" % number) for number in range(count)))
        for data in asked.topic_data[0].partition_data:
            data.index = 0
        buffer = memoryview(bytearray(frame(ApiKey.PRODUCE, LATEST, asked, 7)))[4:]
        budget = MemoryBudget(0)
        peer = Peer(1, "127.0.0.1", ListenerInfo.plaintext("127.0.0.1", 9092))
        plane.broker.metrics, plane.broker.quotas = Metrics(), ClientQuotas()
        reply = Dispatcher(plane.broker, budget=budget)(peer, buffer)
        assert isinstance(reply, PendingReply)
        buffer[:] = bytes(len(buffer))
        await eventually(reply.done)
        parts: list[Any] = reply.result()
        sent = b"".join(map(bytes, parts))
        _, response = decode_response(ApiKey.PRODUCE, LATEST, sent[4:])
        answers = response.responses[0].partition_responses
        assert [one.base_offset for one in answers] == list(range(count))
        assert partition.log.log_end_offset == count
        assert budget.used == 0

    @pytest.mark.sources
    async def test_a_defect_in_one_partition_does_not_leave_others_behind(
        self, plane: DataPlane, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else what the client sends next could pass a batch that a thread still prepares."""
        await plane.create("orders", 2, compression_type="gzip")
        goes_on, has_failed = threading.Event(), threading.Event()
        calls = iter(range(2))

        def prepare(data: bytes, *rest: Any) -> bytearray:
            if next(calls):
                goes_on.wait(10)
                return recompressed(data, *rest)
            has_failed.set()
            raise MemoryError

        monkeypatch.setattr(produce_handler, "_recompressed", prepare)
        asked = request(plane, LATEST, batch(b"a"), batch(b"b"))
        answer = asyncio.ensure_future(plane.begin(ApiKey.PRODUCE, LATEST, asked))
        await eventually(has_failed.is_set)
        await asyncio.to_thread(lambda: None)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not answer.done()
        assert plane.broker.memory.used > 0
        goes_on.set()
        await asyncio.wait([answer])
        assert isinstance(answer.exception(), MemoryError)
        assert plane.broker.memory.used == 0
        assert sum(plane.partition("orders", n).log.log_end_offset for n in range(2)) == 1


class TestAcknowledgement:
    @pytest.mark.parametrize("version", VERSIONS)
    async def test_every_version_appends_and_says_where(
        self, plane: DataPlane, version: int
    ) -> None:
        partition = await plane.create("orders")
        await produce(plane, batch(b"a"), version=version)
        answer = await produce(plane, batch(b"b", b"c"), version=version)
        assert (answer.error_code, answer.base_offset) == (0, 1)
        assert answer.log_append_time_ms == -1
        if version >= 5:
            assert answer.log_start_offset == 0
        assert partition.high_watermark == 3

    async def test_acks_all_waits_for_stable_storage(self, plane: DataPlane) -> None:
        await plane.create("orders")
        plane.disk.hold_syncs()
        waiting = plane.begin(ApiKey.PRODUCE, LATEST, request(plane, LATEST, batch(b"a")))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        assert len(plane.replicas.purgatory.produces) == 1
        plane.disk.release_syncs()
        response = over_the_wire(ApiKey.PRODUCE, LATEST, await waiting)
        assert response.responses[0].partition_responses[0].error_code == 0
        assert len(plane.replicas.purgatory.produces) == 0

    async def test_acks_all_in_memory_durability_waits_for_nothing(self, plane: DataPlane) -> None:
        await plane.create("orders", qbus_durability="memory")
        plane.disk.hold_syncs()
        outcome = plane.begin(ApiKey.PRODUCE, LATEST, request(plane, LATEST, batch(b"a")))
        assert isinstance(outcome, ProduceResponse)

    async def test_acks_1_waits_for_nothing(self, plane: DataPlane) -> None:
        partition = await plane.create("orders")
        plane.disk.hold_syncs()
        outcome = plane.begin(ApiKey.PRODUCE, LATEST, request(plane, LATEST, batch(b"a"), acks=1))
        assert isinstance(outcome, ProduceResponse)
        assert partition.log.log_end_offset == 1

    async def test_acks_0_gets_no_answer(self, plane: DataPlane) -> None:
        partition = await plane.create("orders")
        outcome = plane.begin(ApiKey.PRODUCE, LATEST, request(plane, LATEST, batch(b"a"), acks=0))
        assert outcome is None
        assert partition.log.log_end_offset == 1

    async def test_acks_0_closes_the_connection_after_an_error(self, plane: DataPlane) -> None:
        with pytest.raises(ApiError):
            plane.begin(ApiKey.PRODUCE, 9, request(plane, 9, batch(b"a"), topic="none", acks=0))

    @pytest.mark.parametrize("acks", [-2, 2, 100])
    async def test_other_acks_are_refused(self, plane: DataPlane, acks: int) -> None:
        partition = await plane.create("orders")
        answer = await produce(plane, batch(b"a"), acks=acks)
        assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert answer.base_offset == -1
        assert partition.log.log_end_offset == 0

    async def test_when_the_time_is_up_the_outcome_is_unknown(self, plane: DataPlane) -> None:
        partition = await plane.create("orders")
        plane.disk.hold_syncs()
        answer = await produce(plane, batch(b"a"), timeout_ms=0)
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        plane.disk.release_syncs()
        await eventually(lambda: partition.high_watermark == 1)  # it was written all the same

    async def test_one_slow_partition_does_not_fail_the_others(self, plane: DataPlane) -> None:
        await plane.create("orders", 2)
        await plane.metadata.put(
            plane.metadata.new_topic("quick", 1, {"qbus.durability": "memory"})
        )
        both = request(plane, LATEST, batch(b"a"), timeout_ms=0)
        both.topic_data += request(plane, LATEST, batch(b"b"), topic="quick").topic_data
        plane.disk.hold_syncs()
        response = await plane.call(ApiKey.PRODUCE, LATEST, both)
        codes = [topic.partition_responses[0].error_code for topic in response.responses]
        assert codes == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]

    async def test_a_client_that_is_gone_waits_no_more(self, plane: DataPlane) -> None:
        partition = await plane.create("orders")
        plane.disk.hold_syncs()
        waiting = plane.begin(ApiKey.PRODUCE, LATEST, request(plane, LATEST, batch(b"a")))
        waiting.cancel()
        assert len(plane.replicas.purgatory.produces) == 0
        plane.disk.release_syncs()
        await eventually(lambda: partition.high_watermark == 1)

    async def test_several_partitions_are_answered_together(self, plane: DataPlane) -> None:
        await plane.create("orders", 3)
        sent = request(plane, LATEST, batch(b"a"), batch(b"b"), batch(b"c"))
        response = await plane.call(ApiKey.PRODUCE, LATEST, sent)
        answers = response.responses[0].partition_responses
        assert [(a.index, a.error_code, a.base_offset) for a in answers] == [
            (0, 0, 0),
            (1, 0, 0),
            (2, 0, 0),
        ]


class TestRefusals:
    @pytest.mark.parametrize(
        ("records", "code"),
        [
            (None, ErrorCode.INVALID_RECORD),
            (b"", ErrorCode.INVALID_RECORD),
            (b"\0" * 16, ErrorCode.CORRUPT_MESSAGE),
            (bytes(batch(b"a"))[:-1], ErrorCode.CORRUPT_MESSAGE),
            (bytes(batch(b"a"))[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
            (bytes(batch(b"a")) + bytes(batch(b"b")), ErrorCode.INVALID_RECORD),
            (bytes(batch(b"a", attributes=0x20)), ErrorCode.INVALID_RECORD),
            (bytes(batch(b"a", attributes=0x10)), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
            (bytes(batch(b"a" * 2_000_000)), ErrorCode.MESSAGE_TOO_LARGE),
            (bytes(batch(b"a", timestamp=NOW_MS + 10**9)), ErrorCode.INVALID_TIMESTAMP),
        ],
        ids=[
            "null",
            "empty",
            "short",
            "cut",
            "bad sum",
            "two batches",
            "control",
            "transactional",
            "too large",
            "from the future",
        ],
    )
    async def test_bad_records_get_kafkas_error_and_are_not_stored(
        self, plane: DataPlane, records: bytes | None, code: ErrorCode
    ) -> None:
        partition = await plane.create("orders")
        answer = await produce(plane, records)
        assert ErrorCode(answer.error_code) is code
        assert answer.base_offset == -1
        assert answer.error_message
        assert partition.log.log_end_offset == 0

    @pytest.mark.parametrize("version", [7, 8, LATEST])
    async def test_the_records_to_blame_are_named(self, plane: DataPlane, version: int) -> None:
        await plane.create("orders")
        late = NOW_MS + 10**9
        data = build_batch([(None, b"a", (), t) for t in (NOW_MS, late, NOW_MS, late)])
        answer = await produce(plane, memoryview(data), version=version)
        assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
        blamed = [error.batch_index for error in answer.record_errors]
        assert blamed == ([1, 3] if version >= 8 else [])
        for error in answer.record_errors:
            assert str(late) in (error.batch_index_error_message or "")

    async def test_blame_is_bounded(self, plane: DataPlane) -> None:
        await plane.create("orders")
        data = build_batch([(None, b"a", (), NOW_MS + 10**9)] * 5_000)
        assert len((await produce(plane, memoryview(data))).record_errors) == 10
        packed = batch(b"a", timestamp=NOW_MS + 10**9, compression=Compression.GZIP)
        assert (await produce(plane, packed)).record_errors == []

    async def test_a_refused_request_keeps_no_memory(self, plane: DataPlane) -> None:
        """Its records are a view of a buffer that is used again."""
        await plane.create("orders")
        gc.disable()
        try:
            buffer = bytearray(bytes(batch(b"a", attributes=0x20)))
            sent = request(plane, LATEST, None)
            sent.topic_data[0].partition_data[0].records = memoryview(buffer)
            context = RequestContext(
                ApiKey.PRODUCE,
                LATEST,
                None,
                Peer(1, "127.0.0.1", ListenerInfo.plaintext("127.0.0.1", 9092)),
            )
            response = handle(plane.broker, context, sent)
            assert isinstance(response, ProduceResponse)
            assert response.responses[0].partition_responses[0].error_code
            del sent
            buffer.append(0)  # BufferError: some view of it is left
        finally:
            gc.enable()

    async def test_zstd_needs_version_7(self, plane: DataPlane) -> None:
        await plane.create("orders")

        def zstd() -> memoryview:
            return batch(b"a" * 100, compression=Compression.ZSTD)

        old = await produce(plane, zstd(), version=6)
        assert old.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert (await produce(plane, zstd(), version=7)).error_code == 0
        other = await produce(plane, batch(b"a", compression=Compression.LZ4), version=6)
        assert other.error_code == 0

    @pytest.mark.parametrize(
        ("version", "code"),
        [(12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_ID)],
    )
    async def test_unknown_topics(self, plane: DataPlane, version: int, code: ErrorCode) -> None:
        answer = await produce(plane, batch(b"a"), version=version, topic="none")
        assert ErrorCode(answer.error_code) is code

    async def test_an_unknown_partition_fails_alone(self, plane: DataPlane) -> None:
        await plane.create("orders", 1)
        sent = request(plane, LATEST, batch(b"a"), batch(b"b"))
        response = await plane.call(ApiKey.PRODUCE, LATEST, sent)
        codes = [a.error_code for a in response.responses[0].partition_responses]
        assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    async def test_too_few_in_sync_replicas(self, plane: DataPlane) -> None:
        topic = plane.metadata.new_topic("orders", 1, {"min.insync.replicas": "2"})
        alone = PartitionInfo(NODE, 0, (NODE, 2), (NODE,))
        await plane.metadata.put(replace(topic, partitions=(alone,)))
        refused = await produce(plane, batch(b"a"))
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await produce(plane, batch(b"a"), acks=1)).error_code == 0

    @pytest.mark.parametrize("version", [9, 10, 13])
    async def test_who_leads_instead(self, plane: DataPlane, version: int) -> None:
        topic = plane.metadata.new_topic("orders", leader=2)
        await plane.metadata.put(topic)
        plane.metadata.brokers[2] = plane.metadata.brokers[1].__class__(2, "other", 9093, "rack-2")
        sent = request(plane, version, batch(b"a"))
        response = await plane.call(ApiKey.PRODUCE, version, sent)
        answer = response.responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        if version < 10:
            assert response.node_endpoints == []
            return
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 0)
        (node,) = response.node_endpoints
        assert (node.node_id, node.host, node.port, node.rack) == (2, "other", 9093, "rack-2")


class TestIdempotence:
    async def test_a_retried_batch_is_answered_with_its_first_offset(
        self, plane: DataPlane
    ) -> None:
        partition = await plane.create("orders")

        def sent(sequence: int) -> memoryview:
            return batch(b"a", b"b", producer_id=9, producer_epoch=0, base_sequence=sequence)

        assert (await produce(plane, sent(0))).base_offset == 0
        assert (await produce(plane, sent(2))).base_offset == 2
        again = await produce(plane, sent(0))
        assert (again.error_code, again.base_offset) == (0, 0)
        assert partition.log.log_end_offset == 4

    async def test_a_gap_in_the_sequence_is_refused(self, plane: DataPlane) -> None:
        await plane.create("orders")
        await produce(plane, batch(b"a", producer_id=9, producer_epoch=0, base_sequence=0))
        gap = batch(b"c", producer_id=9, producer_epoch=0, base_sequence=2)
        answer = await produce(plane, gap)
        assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    async def test_log_append_time_is_told(self, plane: DataPlane) -> None:
        await plane.create("orders", message_timestamp_type="LogAppendTime")
        plane.clock.advance(5)
        answer = await produce(plane, batch(b"a", timestamp=1))
        assert answer.log_append_time_ms == plane.clock.time_ms()


class TestDisks:
    async def test_a_full_disk_is_a_passing_fault(self, plane: DataPlane) -> None:
        await plane.create("orders")
        plane.disk.fill()
        refused = await produce(plane, batch(b"a"))
        assert ErrorCode(refused.error_code) is ErrorCode.KAFKA_STORAGE_ERROR
        plane.disk.empty()
        assert (await produce(plane, batch(b"a"))).base_offset == 0

    async def test_a_failed_flush_fails_what_waits_and_all_of_its_directory(
        self, plane: DataPlane
    ) -> None:
        await plane.create("orders")
        await plane.create("other")
        plane.disk.hold_syncs()
        waiting = plane.begin(ApiKey.PRODUCE, LATEST, request(plane, LATEST, batch(b"a")))
        plane.disk.sync_error = errno.EIO
        plane.disk.release_syncs()
        response = over_the_wire(ApiKey.PRODUCE, LATEST, await waiting)
        failed = response.responses[0].partition_responses[0]
        assert ErrorCode(failed.error_code) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        plane.disk.sync_error = None
        for topic in ("orders", "other"):
            refused = await produce(plane, batch(b"b"), topic=topic)
            assert ErrorCode(refused.error_code) is ErrorCode.KAFKA_STORAGE_ERROR


def stored(partition: Partition) -> list[bytes]:
    """The batches of a log, as they lie there."""
    found = partition.log.read(0, 1 << 20)
    assert found is not None
    with found:
        return [bytes(one) for _, one in iter_batches(memoryview(found.read()))]


def values_of(batch: bytes) -> list[bytes | None]:
    return [record.value for record in iter_records(batch)]


CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


class TestCompressionOfTheTopic:
    @pytest.mark.parametrize("name", CODECS)
    @pytest.mark.parametrize("sent", Compression)
    async def test_batches_are_stored_in_the_topic_s_codec(
        self, plane: DataPlane, name: str, sent: Compression
    ) -> None:
        partition = await plane.create("orders", compression_type=name)
        produced = batch(b"a" * 100, b"b", compression=sent, timestamp=NOW_MS)
        answer = await produce(plane, produced)
        assert (answer.error_code, answer.base_offset) == (0, 0)
        (found,) = stored(partition)
        header = read_header(found)
        check_crc(found, header)
        assert header.compression is CODECS[name]
        assert values_of(found) == [b"a" * 100, b"b"]
        if sent is CODECS[name]:
            assert found[61:] == bytes(produced[61:]), "not compressed once more"

    async def test_nothing_but_the_codec_changes(self, plane: DataPlane) -> None:
        """Timestamps, producer and sequence stay, so a repeated batch is still recognized."""
        partition = await plane.create("orders", compression_type="zstd")
        sent = bytes(batch(b"a", b"b", producer_id=7, producer_epoch=1, base_sequence=0))
        for _ in range(2):
            answer = await produce(plane, memoryview(bytearray(sent)))
            assert (answer.error_code, answer.base_offset) == (0, 0)
        (found,) = stored(partition)
        before, after = read_header(sent), read_header(found)
        changed = {"batch_length", "crc", "attributes", "partition_leader_epoch"}
        assert {k: v for k, v in after._asdict().items() if k not in changed} == {
            k: v for k, v in before._asdict().items() if k not in changed
        }

    async def test_times_of_the_broker_are_set_afterwards(self, plane: DataPlane) -> None:
        partition = await plane.create(
            "orders", compression_type="gzip", message_timestamp_type="LogAppendTime"
        )
        answer = await produce(plane, batch(b"a", timestamp=5))
        assert answer.log_append_time_ms == read_header(stored(partition)[0]).max_timestamp > 5

    @pytest.mark.parametrize(("name", "level"), [("gzip", "9"), ("lz4", "12"), ("zstd", "19")])
    async def test_the_level_counts(self, plane: DataPlane, name: str, level: str) -> None:
        text = b"".join(b"%d times %d\n" % (n % 97, n % 89) for n in range(3000))
        usual = await plane.create("orders", compression_type=name)
        config: dict[str, Any] = {f"compression_{name}_level": level}
        other = await plane.create("others", compression_type=name, **config)
        for topic in ("orders", "others"):
            await produce(plane, batch(text), topic=topic)
        assert len(stored(usual)[0]) != len(stored(other)[0])
        assert values_of(stored(usual)[0]) == values_of(stored(other)[0]) == [text]

    @pytest.mark.parametrize("acks", [-1, 0, 1])
    async def test_every_promise(self, plane: DataPlane, acks: int) -> None:
        partition = await plane.create("orders", compression_type="lz4")
        begun = plane.begin(ApiKey.PRODUCE, LATEST, request(plane, LATEST, batch(b"a"), acks=acks))
        assert partition.log.log_end_offset == 0, "the event loop does not compress"
        response = await begun
        assert partition.log.log_end_offset == 1
        assert (response is None) == (acks == 0)

    async def test_batches_of_a_request_that_need_nothing_are_not_held_up(
        self, plane: DataPlane
    ) -> None:
        await plane.create("orders", 2, compression_type="lz4")
        ready = batch(b"b", compression=Compression.LZ4)
        begun = plane.begin(ApiKey.PRODUCE, LATEST, request(plane, LATEST, batch(b"a"), ready))
        assert plane.partition("orders", 1).log.log_end_offset == 1
        response = over_the_wire(ApiKey.PRODUCE, LATEST, await begun)
        answers = response.responses[0].partition_responses
        assert [(a.index, a.error_code, a.base_offset) for a in answers] == [(0, 0, 0), (1, 0, 0)]

    async def test_batches_acknowledged_while_others_are_compressed_are_answered(
        self, plane: DataPlane, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await plane.create("orders", 2, compression_type="lz4")
        may_compress = threading.Event()

        def patient(*args: Any) -> bytearray:
            assert may_compress.wait(30)
            return recompressed(*args)

        monkeypatch.setattr(produce_handler, "recompressed", patient)
        ready = batch(b"b", compression=Compression.LZ4)
        sent = request(plane, LATEST, batch(b"a"), ready, timeout_ms=0)
        begun = asyncio.ensure_future(plane.call(ApiKey.PRODUCE, LATEST, sent))
        await eventually(lambda: plane.partition("orders", 1).high_watermark == 1)
        plane.disk.hold_syncs()
        may_compress.set()
        answers = (await begun).responses[0].partition_responses
        plane.disk.release_syncs()
        assert [(a.index, a.error_code, a.base_offset) for a in answers] == [
            (0, ErrorCode.REQUEST_TIMED_OUT, 0),
            (1, ErrorCode.NONE, 0),
        ]

    async def test_what_cannot_be_decompressed_is_corrupt(self, plane: DataPlane) -> None:
        partition = await plane.create("orders", compression_type="zstd")
        broken = bytearray(batch(b"a" * 1000, compression=Compression.GZIP))
        broken[70:90] = bytes(20)
        header = read_header(broken)
        write_header(broken, header)  # with a right CRC: its producer wrote nonsense
        answer = await produce(plane, memoryview(broken))
        assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
        assert "not stored as ZSTD" in (answer.error_message or "")
        assert partition.log.log_end_offset == 0

    async def test_a_wrong_sum_is_not_given_a_right_one(self, plane: DataPlane) -> None:
        await plane.create("orders", compression_type="zstd")
        broken = bytearray(batch(b"a" * 1000))
        broken[-1] ^= 1
        answer = await produce(plane, memoryview(broken))
        assert answer.error_code == ErrorCode.CORRUPT_MESSAGE

    @pytest.mark.parametrize(
        ("name", "sent", "size"),
        [("gzip", Compression.NONE, 3_000), ("uncompressed", Compression.GZIP, 3_000)],
    )
    async def test_the_size_counts_before_and_after(
        self, plane: DataPlane, name: str, sent: Compression, size: int
    ) -> None:
        await plane.create("orders", compression_type=name, max_message_bytes=1_000)
        answer = await produce(plane, batch(b"a" * size, compression=sent))
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE

    async def test_a_leader_that_steps_down_meanwhile_appends_nothing(
        self, plane: DataPlane
    ) -> None:
        partition = await plane.create("orders", compression_type="zstd")
        begun = asyncio.ensure_future(
            plane.begin(ApiKey.PRODUCE, LATEST, request(plane, LATEST, batch(b"a")))
        )
        await asyncio.sleep(0)
        partition.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer = (await begun).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.log.log_end_offset == 0


class TestDelays:
    """Batches of topics that hold records back."""

    CANCEL = ("qbus-cancel", b"key")

    async def test_an_order_finds_what_came_before_it_in_its_batch(self, plane: DataPlane) -> None:
        partition = await plane.create("orders", qbus_delay_enable=True)
        both = build_batch(
            [(b"k", b"v", [("qbus-delay", b"1h")], NOW_MS), (b"k", None, [self.CANCEL], NOW_MS)]
        )
        answer = await produce(plane, both)
        assert (answer.error_code, answer.base_offset, answer.orders_done) == (0, 0, 1)
        assert not answer.record_errors
        assert partition.log.log_end_offset == 2

    async def test_a_batch_over_two_connections_while_threads_read_is_stored_once(
        self, plane: DataPlane
    ) -> None:
        partition = await plane.create("orders", qbus_delay_enable=True)
        orders = [
            build_batch(
                [(b"k", None, [self.CANCEL], NOW_MS), (b"k", b"v", (), NOW_MS)],
                producer_id=7,
                producer_epoch=0,
                base_sequence=0,
            )
            for _ in range(2)
        ]
        calls = [plane.call(ApiKey.PRODUCE, LATEST, request(plane, LATEST, one)) for one in orders]
        for response in await asyncio.gather(*calls):
            (answer,) = response.responses[0].partition_responses
            assert (answer.error_code, answer.base_offset, answer.orders_done) == (0, 0, 0)
            assert answer.orders_late == [0]
            assert not answer.record_errors, "librdkafka takes the whole batch for refused"
        assert partition.log.log_end_offset == 2

    async def test_what_is_missing_of_a_batch_is_taken_where_delays_were_switched_off(
        self, plane: DataPlane
    ) -> None:
        partition = await plane.create("orders", qbus_delay_enable=True)

        def sent(*records: Any) -> bytearray:
            return build_batch(records, producer_id=7, producer_epoch=0, base_sequence=0)

        held = (b"k", b"held", [("qbus-delay", b"1h")], NOW_MS)
        assert (await produce(plane, sent(held))).error_code == 0
        partition.log.update_config(replace(partition.log.config, qbus_delay_enable=False))
        for _ in range(2):
            answer = await produce(plane, sent(held, (b"k", b"visible", (), NOW_MS)))
            assert (answer.error_code, answer.base_offset) == (0, 0)
        assert partition.log.log_end_offset == 2

    @pytest.mark.sources
    async def test_a_disk_that_cannot_be_read_refuses_no_other_partition(
        self, plane: DataPlane, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        partition = await plane.create("orders", 2, qbus_delay_enable=True)
        later = [(b"k", b"held", [("qbus-delay", b"1h")], NOW_MS)]
        assert (await produce(plane, build_batch(later))).error_code == 0

        def fail(*_: object, **__: object) -> None:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(partition.log, "read_batch", fail)
        cancel = build_batch([(b"k", None, [self.CANCEL], NOW_MS)])
        sent = request(plane, LATEST, cancel, batch(b"other"))
        response = await plane.call(ApiKey.PRODUCE, LATEST, sent)
        codes = [answer.error_code for answer in response.responses[0].partition_responses]
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]


class TestCompactedTopics:
    """Of a compacted topic, compaction tells records by their keys: each must have one."""

    @pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
    @pytest.mark.parametrize("kind", ["producer", "gzip"])
    async def test_every_record_without_a_key_is_refused_and_named(
        self, plane: DataPlane, compression: Compression, kind: str
    ) -> None:
        partition = await plane.create("orders", cleanup_policy="compact", compression_type=kind)
        keys = [b"a", None, b"", None]
        records = [(key, b"v", (), NOW_MS) for key in keys]
        answer = await produce(plane, build_batch(records, compression=compression))
        assert ErrorCode(answer.error_code) is ErrorCode.INVALID_RECORD
        assert "record 1 of the batch: it has no key" in (answer.error_message or "")
        assert [error.batch_index for error in answer.record_errors] == [1, 3]
        assert partition.log.log_end_offset == 0

    @pytest.mark.parametrize("compression", Compression)
    async def test_records_with_keys_are_appended(
        self, plane: DataPlane, compression: Compression
    ) -> None:
        partition = await plane.create("orders", cleanup_policy="compact,delete")
        records = [(b"%d" % n, None, (), NOW_MS) for n in range(3)]
        answer = await produce(plane, build_batch(records, compression=compression))
        assert (answer.error_code, answer.base_offset) == (0, 0)
        assert partition.log.log_end_offset == 3

    async def test_other_topics_need_no_keys(self, plane: DataPlane) -> None:
        await plane.create("orders")
        assert (await produce(plane, batch(b"a"))).error_code == 0
