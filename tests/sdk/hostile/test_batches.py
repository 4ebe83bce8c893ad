"""Record batches that a broker should not have sent: damaged, lying, or not asked for."""

import asyncio
import inspect
import struct

import pytest

from qbus.clients import Consumer, ConsumerRecord
from qbus.records import Compression, CorruptBatch, build_batch, build_values_batch, crc32c
from qbus.wire import ApiKey
from qbus.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tests.sdk.hostile.victims import Starved, consume, consumer, first_records, good_batch
from tests.support.fake_broker import FakeBroker

NOW = 1_700_000_000_000
GOOD = [b"a", b"b", b"c"]
_CRC_AT, _ATTRIBUTES_AT = 17, 21


def serve(broker: FakeBroker, data: bytes, *, topic: str = "t", partition: int = 0) -> None:
    """Answer every fetch with ``data``, whatever was asked for."""

    async def fetch(_: FetchRequest) -> FetchResponse:
        found = PartitionData(partition_index=partition, high_watermark=1000, records=data)
        answer = FetchableTopicResponse(topic=topic, partitions=[found])
        return FetchResponse(responses=[answer])

    broker.handlers[ApiKey.FETCH] = fetch


def patched(at: int, form: str, value: int, data: bytes | None = None) -> bytes:
    """A good batch with one field of its header changed, and a CRC that agrees."""
    batch = bytearray(data or good_batch(GOOD))
    struct.pack_into(form, batch, at, value)
    struct.pack_into(">I", batch, _CRC_AT, crc32c(memoryview(batch)[_ATTRIBUTES_AT:]))
    return bytes(batch)


def with_wrong_crc(offset: int = 0) -> bytes:
    batch = bytearray(good_batch(GOOD))
    struct.pack_into(">q", batch, 0, offset)
    batch[_CRC_AT] ^= 0xFF
    return bytes(batch)


async def test_a_wrong_crc_is_found() -> None:
    async with FakeBroker() as broker:
        serve(broker, with_wrong_crc())
        with pytest.raises(CorruptBatch) as caught:
            await consume(broker.bootstrap)
        assert "t-0" in str(caught.value)


async def test_a_wrong_crc_is_passed_over_on_request() -> None:
    async with FakeBroker() as broker:
        serve(broker, with_wrong_crc())
        found = await consume(broker.bootstrap, check_crcs=False)
        assert [record.value for record in found] == [b"a", b"b", b"c"]


async def test_records_before_the_damage_are_handed_out_first() -> None:
    async with FakeBroker() as broker:
        serve(broker, good_batch([b"x"]) + with_wrong_crc(offset=1))
        async with consumer(broker.bootstrap) as reading:
            reading.assign([("t", 0, 0)])
            assert [record.value for record in await first_records(reading)] == [b"x"]
            with pytest.raises(CorruptBatch):
                await first_records(reading)
            assert reading.position("t", 0) == 1


LIES = {
    "a count of 2147483647": patched(57, ">i", 2**31 - 1),
    "a count of -1": patched(57, ">i", -1),
    "a count of 4 for 3": patched(57, ">i", 4),
    "a count of 2 for 3": patched(57, ">i", 2),
    "a last offset delta of 0 for 3": patched(23, ">i", 0),
    "magic 9": patched(16, ">b", 9),
    "magic 1": patched(16, ">b", 1),
    "codec 7": patched(21, ">h", 7),
    "gzip that is none": patched(21, ">h", 1),
    "snappy that is none": patched(21, ">h", 2),
    "lz4 that is none": patched(21, ">h", 3),
    "zstd that is none": patched(21, ">h", 4),
    "a length of 0": patched(8, ">i", 0),
    "a negative length": patched(8, ">i", -1),
    "a record of 2 GB": patched(61, ">i", -1),
}


async def read_on(reading: Consumer, found: list[ConsumerRecord]) -> None:
    while len(found) <= len(GOOD):
        found += await first_records(reading)


@pytest.mark.parametrize("data", LIES.values(), ids=LIES)
async def test_a_batch_that_lies_is_refused(data: bytes) -> None:
    """Records before the one that shows the lie may be handed out; none of what is after it."""
    async with FakeBroker() as broker:
        serve(broker, data)
        async with consumer(broker.bootstrap) as reading:
            reading.assign([("t", 0, 0)])
            found: list[ConsumerRecord] = []
            with pytest.raises(CorruptBatch):
                await read_on(reading, found)
            assert [record.value for record in found] == GOOD[: len(found)]


@pytest.mark.parametrize("cut", [1, 60, 61, 70])
async def test_a_batch_that_is_cut_is_asked_for_again(cut: int) -> None:
    """A fetch's limit may cut the last batch; it is whole the next time."""
    batch = good_batch([b"first"])
    async with FakeBroker() as broker:
        serve(broker, batch[:cut])
        async with consumer(broker.bootstrap) as reading:
            reading.assign([("t", 0, 0)])
            with pytest.raises(Starved):
                await first_records(reading)
            serve(broker, batch)
            assert [record.value for record in await first_records(reading)] == [b"first"]


async def test_records_that_nobody_asked_for_are_thrown_away() -> None:
    async def answered_with(topic: str, partition: int) -> None:
        async with FakeBroker() as broker:
            serve(broker, good_batch(), topic=topic, partition=partition)
            with pytest.raises(Starved):
                await consume(broker.bootstrap)

    await asyncio.gather(answered_with("t", 5), answered_with("t", -1), answered_with("another", 0))


async def test_offsets_before_the_position_are_passed_over() -> None:
    """Brokers answer with whole batches; what the consumer has had it does not get again."""
    async with FakeBroker() as broker:
        serve(broker, good_batch([b"0", b"1", b"2", b"3"]))
        async with consumer(broker.bootstrap) as reading:
            reading.assign([("t", 0, 2)])
            assert [record.offset for record in await first_records(reading)] == [2, 3]
            with pytest.raises(Starved):  # the same batch again, and again
                await first_records(reading)
            assert reading.position("t", 0) == 4


async def test_a_control_batch_is_not_handed_out() -> None:
    marker = build_batch([(b"\0\0\0\1", b"\0\0\0\0\0\0", (), NOW)], attributes=0x30)
    after = patched(0, ">q", 1, bytes(build_values_batch([b"after"], NOW)))
    async with FakeBroker() as broker:
        serve(broker, bytes(marker) + after)
        found = await consume(broker.bootstrap)
        assert [(record.offset, record.value) for record in found] == [(1, b"after")]


@pytest.mark.parametrize("codec", [c for c in Compression if c is not Compression.NONE])
async def test_compressed_records_that_are_cut_are_refused(codec: Compression) -> None:
    whole = bytes(build_values_batch([bytes(1000)] * 10, NOW, compression=codec))
    short = bytearray(whole[:-5])
    struct.pack_into(">i", short, 8, len(short) - 12)
    async with FakeBroker() as broker:
        serve(broker, patched(57, ">i", 10, bytes(short)))
        with pytest.raises(CorruptBatch):
            await consume(broker.bootstrap)


def test_the_consumer_checks_by_default() -> None:
    assert inspect.signature(Consumer).parameters["check_crcs"].default is True
