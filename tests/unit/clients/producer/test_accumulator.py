"""Records find their partitions and fill their batches."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.clients.partitioner import partition_for_key
from qbus.clients.producer.accumulator import Accumulator
from qbus.clients.producer.batch import RECORD_OVERHEAD, Batch, BulkDelivery
from qbus.clients.producer.options import ProducerOptions
from qbus.clients.types import PartitionDescription, TopicDescription
from qbus.clock import ManualClock
from qbus.errors import ApiError, ErrorCode
from qbus.records import Compression, iter_records


def topic(partitions: int = 4) -> TopicDescription:
    described = (PartitionDescription(i, 1, 0, (1,), (1,), ()) for i in range(partitions))
    return TopicDescription("t", UUID(int=0), False, tuple(described))


def accumulator(batch_bytes: int = 1000) -> Accumulator:
    options = ProducerOptions(
        acks=-1,
        compression=Compression.NONE,
        is_idempotent=True,
        linger=0.0,
        batch_bytes=batch_bytes,
        buffer_bytes=1 << 30,
        delivery_timeout=1.0,
        topic_timeout=1.0,
    )
    return Accumulator(options, ManualClock())


def values_of(batch: Batch) -> list[bytes | None]:
    batch.encode(Compression.NONE)
    assert batch.encoded is not None
    return [record.value for record in iter_records(batch.encoded)]


async def test_a_key_goes_to_its_partition() -> None:
    made = accumulator()
    for number in range(50):
        made.add(topic(), b"key-%d" % number, b"v")
    assert {
        record.key: partition.partition
        for partition, queue in made.queues.items()
        for batch in queue.flush()
        for record in _records(batch)
    } == {b"key-%d" % n: partition_for_key(b"key-%d" % n, 4) for n in range(50)}


async def test_an_explicit_partition_wins() -> None:
    made = accumulator()
    made.add(topic(), b"key", b"v", partition=2)
    made.add(topic(), None, b"v", partition=2)
    (batch,) = made.flush()
    assert (batch.partition.partition, batch.count) == (2, 2)


@pytest.mark.parametrize("partition", [-1, 4])
async def test_a_partition_that_does_not_exist_is_refused(partition: int) -> None:
    with pytest.raises(ApiError) as caught:
        accumulator().add(topic(), None, b"v", partition=partition)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_keyless_records_fill_one_batch_then_move_on() -> None:
    made = accumulator(batch_bytes=10 * (8 + RECORD_OVERHEAD))
    for _ in range(10):
        made.add(topic(), None, bytes(8))
    (first,) = made.flush()
    for _ in range(10):
        made.add(topic(), None, bytes(8))
    assert [batch.count for batch in made.flush()] == [10, 10]
    (second,) = {batch.partition for batch in made.flush()} - {first.partition}
    assert second != first.partition


async def test_bytes_are_counted_until_released() -> None:
    made = accumulator()
    made.add(topic(), b"key", b"value", (("h", b"x"),))
    (batch,) = made.flush()
    assert made.buffered_bytes == batch.size == 3 + 5 + 1 + 1 + 2 * RECORD_OVERHEAD
    made.release(batch)
    assert made.buffered_bytes == 0


@given(
    st.lists(st.integers(0, 700), max_size=40),
    st.sampled_from([None, 1]),
    st.booleans(),
)
async def test_many_values_come_out_whole_and_in_batches_that_fit(
    sizes: list[int], partition: int | None, with_keys: bool
) -> None:
    made, bulk = accumulator(batch_bytes=1000), BulkDelivery()
    values = [b"%d:" % number + bytes(size) for number, size in enumerate(sizes)]
    keys = [b"k%d" % (number % 3) if number % 4 else None for number in range(len(values))]
    for _ in made.add_many(
        topic(),
        values,
        keys if with_keys else None,
        partition=partition,
        timestamp=None,
        bulk=bulk,
    ):
        pass
    batches = made.flush()
    assert all(batch.size <= 1000 or batch.count == 1 for batch in batches)
    assert made.buffered_bytes == sum(batch.size for batch in batches)
    found = [value for batch in batches for value in values_of(batch)]
    assert sorted(found, key=str) == sorted(values, key=str)
    if partition is not None:
        assert found == values
        assert {batch.partition.partition for batch in batches} <= {partition}
    if with_keys and partition is None:
        for batch in batches:
            for record in _records(batch):
                if record.key is not None:
                    assert partition_for_key(record.key, 4) == batch.partition.partition


async def test_many_pauses_after_each_batch() -> None:
    made, bulk = accumulator(batch_bytes=100), BulkDelivery()
    steps = made.add_many(topic(), [bytes(88)] * 5, None, partition=0, timestamp=None, bulk=bulk)
    next(steps)
    assert made.buffered_bytes == 100


def _records(batch: Batch) -> list:
    if batch.encoded is None:
        batch.encode(Compression.NONE)
    assert batch.encoded is not None
    return list(iter_records(batch.encoded))
