"""Batches: what was added is what is encoded, and everyone who waits is told."""

import asyncio

import pytest

from qbus.clients.producer.batch import Batch, BulkDelivery, ProducerIdentity
from qbus.clients.types import BatchMetadata, RecordMetadata, TopicPartition
from qbus.errors import QbusError
from qbus.records import Compression, check_crc, iter_records, read_header

PARTITION = TopicPartition("t", 3)
CREATED = 1_700_000_000_000


def batch() -> Batch:
    return Batch(PARTITION, CREATED, 0.0)


def encoded(made: Batch) -> list[tuple[bytes | None, bytes | None, object, int]]:
    made.encode(Compression.NONE)
    assert made.encoded is not None
    check_crc(made.encoded, read_header(made.encoded))
    return [(r.key, r.value, r.headers, r.timestamp) for r in iter_records(made.encoded)]


async def test_values_alone_get_the_batchs_time() -> None:
    made = batch()
    made.add(None, b"a", (), None)
    made.add_bulk([b"b", b"c"], None, None, BulkDelivery())
    assert made.count == 3
    assert encoded(made) == [(None, value, (), CREATED) for value in (b"a", b"b", b"c")]


async def test_records_of_every_kind_keep_their_order() -> None:
    made = batch()
    made.add(None, b"a", (), None)
    made.add(b"k", None, (("h", b"x"),), 5)
    made.add(None, b"b", (), None)
    made.add_bulk([b"c"], None, None, BulkDelivery())
    made.add_bulk([b"d", b"e"], [b"k", None], 6, BulkDelivery())
    assert made.count == 6
    assert encoded(made) == [
        (None, b"a", (), CREATED),
        (b"k", None, (("h", b"x"),), 5),
        (None, b"b", (), CREATED),
        (None, b"c", (), CREATED),
        (b"k", b"d", (), 6),
        (None, b"e", (), 6),
    ]


async def test_the_header_carries_identity_sequence_and_codec() -> None:
    made = batch()
    made.add(None, b"a", (), None)
    made.identity, made.sequence = ProducerIdentity(7, 2), 41
    made.encode(Compression.LZ4)
    assert made.encoded is not None
    header = read_header(made.encoded)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 41)
    assert header.compression is Compression.LZ4


async def test_without_identity_there_are_no_sequences() -> None:
    made = batch()
    made.add(b"k", b"a", (), None)
    made.encode(Compression.NONE)
    assert made.encoded is not None
    header = read_header(made.encoded)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)


async def test_everyone_is_told_where_their_records_are() -> None:
    made, bulk = batch(), BulkDelivery()
    first = made.add(None, b"a", (), None)
    made.add_bulk([b"b", b"c"], None, None, bulk)
    last = made.add(b"k", b"d", (), 5)
    bulk.complete()
    made.delivered(100, -1)
    assert await first == RecordMetadata("t", 3, 100, CREATED)
    assert await bulk.future == [BatchMetadata("t", 3, 101, 2, CREATED)]
    assert await last == RecordMetadata("t", 3, 103, 5)
    assert made.done.done()


async def test_the_brokers_time_wins() -> None:
    made = batch()
    delivery = made.add(None, b"a", (), 5)
    made.delivered(1, CREATED + 9)
    assert (await delivery).timestamp == CREATED + 9


async def test_without_acks_offsets_are_unknown() -> None:
    made, bulk = batch(), BulkDelivery()
    made.add(None, b"a", (), None)
    second = made.add(None, b"b", (), None)
    made.add_bulk([b"b", b"c"], None, None, bulk)
    bulk.complete()
    made.delivered(-1, -1)
    assert (await second).offset == -1
    assert (await bulk.future)[0].base_offset == -1


async def test_everyone_is_told_of_a_failure() -> None:
    made, bulk = batch(), BulkDelivery()
    single = made.add(None, b"a", (), None)
    made.add_bulk([b"b"], None, None, bulk)
    made.failed(QbusError("no"))
    bulk.complete()
    for delivery in (single, bulk.future):
        with pytest.raises(QbusError, match="no"):
            await delivery
    assert made.done.done()


async def test_who_no_longer_waits_does_not_disturb() -> None:
    made, bulk = batch(), BulkDelivery()
    made.add(None, b"a", (), None).cancel()
    made.add_bulk([b"b"], None, None, bulk)
    bulk.future.cancel()
    bulk.complete()
    made.delivered(1, -1)
    assert made.done.done()


async def test_a_bulk_is_delivered_with_its_last_part() -> None:
    bulk, parts = BulkDelivery(), [batch(), batch()]
    for part in parts:
        part.add_bulk([b"a"], None, None, bulk)
    bulk.complete()
    parts[1].delivered(10, -1)
    await asyncio.sleep(0)
    assert not bulk.future.done()
    parts[0].delivered(5, -1)
    assert sorted(part.base_offset for part in await bulk.future) == [5, 10]


async def test_a_bulk_of_nothing_is_delivered_at_once() -> None:
    bulk = BulkDelivery()
    bulk.complete()
    assert await bulk.future == []


async def test_a_bulk_whose_first_part_arrives_early_waits_for_the_others() -> None:
    bulk, part = BulkDelivery(), batch()
    part.add_bulk([b"a"], None, None, bulk)
    part.delivered(0, -1)
    assert not bulk.future.done()
    bulk.complete()
    assert len(await bulk.future) == 1
