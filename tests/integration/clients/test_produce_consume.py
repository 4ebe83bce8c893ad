"""What is produced is consumed, by a real broker in between."""

from typing import Any

import pytest

from qbus.clients import (
    EARLIEST,
    LATEST,
    Admin,
    Consumer,
    NoOffset,
    Producer,
    TopicPartition,
)
from qbus.clients.producer.partitioner import partition_for_key
from qbus.errors import ApiError, ErrorCode
from qbus.records import TimestampType

from .reading import read, read_topic

pytestmark = pytest.mark.integration

HOUR = 3_600_000
THEN = 1_700_000_000_000


@pytest.mark.parametrize("acks", ["all", 1, 0])
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_every_compression_and_acks(
    bootstrap: str, topic: str, compression: str, acks: Any
) -> None:
    values = [b"a line of a log, number %d" % number for number in range(2000)]
    async with Producer(bootstrap, compression=compression, acks=acks) as producer:
        batches = await (await producer.send_many(topic, values, partition=1))
    if acks != 0:
        assert batches[0].base_offset == 0
    assert [record.value for record in await read_topic(bootstrap, topic, 2000)] == values


async def test_everything_a_record_can_have(bootstrap: str, topic: str) -> None:
    headers = (("trace", b"\x00\xff"), ("none", None), ("empty", b""), ("ünï", b"x"))
    async with Producer(bootstrap) as producer:
        await producer.send(topic, None, key=b"k", partition=0, timestamp=THEN)
        await producer.send(topic, b"", key=b"", partition=0, timestamp=THEN + 1)
        await producer.send(topic, b"v", headers=headers, partition=0, timestamp=THEN + 2)
    assert await read_topic(bootstrap, topic, 3) == [
        (topic, 0, 0, THEN, b"k", None, (), TimestampType.CREATE_TIME),
        (topic, 0, 1, THEN + 1, b"", b"", (), TimestampType.CREATE_TIME),
        (topic, 0, 2, THEN + 2, None, b"v", headers, TimestampType.CREATE_TIME),
    ]


async def test_keys_find_their_partitions_and_keep_their_order(bootstrap: str, topic: str) -> None:
    keys = [b"key-%d" % (number % 20) for number in range(1000)]
    values = [b"%d" % number for number in range(1000)]
    async with Producer(bootstrap, batch_bytes=2000) as producer:
        await producer.send_many(topic, values, keys=keys)
    records = await read_topic(bootstrap, topic, 1000)
    for record in records:
        assert record.key is not None
        assert record.partition == partition_for_key(record.key, 3)
    for key in set(keys):
        assert [r.value for r in records if r.key == key] == [
            value for k, value in zip(keys, values, strict=True) if k == key
        ]


async def test_keyless_records_use_every_partition(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap, batch_bytes=1000) as producer:
        await producer.send_many(topic, [bytes(100)] * 1000)
    assert {record.partition for record in await read_topic(bootstrap, topic, 1000)} == {0, 1, 2}


async def test_one_by_one_and_all_at_once_arrive_in_order(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap, batch_bytes=500) as producer:
        deliveries = [
            await producer.send(topic, b"%d" % number, partition=2) for number in range(2000)
        ]
        assert [(await delivery).offset for delivery in deliveries] == list(range(2000))
    records = await read_topic(bootstrap, topic, 2000)
    assert [record.value for record in records] == [b"%d" % number for number in range(2000)]


async def test_a_record_as_large_as_a_topic_takes(bootstrap: str, topic: str) -> None:
    large = bytes(1024 * 1024 - 200)
    async with Producer(bootstrap) as producer:
        await (await producer.send(topic, large))
        refused = await producer.send(topic, bytes(1024 * 1024 + 200))
        with pytest.raises(ApiError) as caught:
            await refused
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    (record,) = await read_topic(bootstrap, topic, 1)
    assert record.value == large


async def test_a_topic_is_created_for_its_first_record(bootstrap: str, name: str) -> None:
    async with Producer(bootstrap) as producer:
        assert (await (await producer.send(name, b"first"))).offset == 0


async def test_reading_from_the_middle_the_ends_and_a_time(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(10):
            await producer.send(topic, b"%d" % number, partition=0, timestamp=THEN + number * HOUR)
        await producer.flush()
        async with Consumer(bootstrap) as consumer:
            consumer.assign([(topic, 0, 4)])
            assert (await read(consumer, 1))[0].value == b"4"
            consumer.seek(topic, 0, EARLIEST)
            assert (await read(consumer, 1))[0].value == b"0"
            partition = TopicPartition(topic, 0)
            found = await consumer.offsets_for_times({partition: THEN + 6 * HOUR - 1})
            assert found[partition] == (6, THEN + 6 * HOUR)
            consumer.seek(topic, 0, found[partition].offset)
            assert (await read(consumer, 1))[0].value == b"6"
            assert (await consumer.offsets_for_times({partition: THEN + 99 * HOUR}))[partition] == (
                -1,
                -1,
            )
            consumer.seek(topic, 0, LATEST)
            assert await consumer.poll(0.3) == []
            await producer.send(topic, b"new", partition=0)
            assert (await read(consumer, 1))[0].value == b"new"


async def test_an_offset_that_is_gone(bootstrap: str, topic: str, admin: Admin) -> None:
    async with Producer(bootstrap) as producer:
        await producer.send_many(topic, [b"%d" % number for number in range(10)], partition=0)
    await admin.delete_records({TopicPartition(topic, 0): 7})
    async with Consumer(bootstrap, offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0, 2)])
        assert (await read(consumer, 3))[0].offset == 7
    async with Consumer(bootstrap, offset_reset="none") as consumer:
        consumer.assign([(topic, 0, 2)])
        with pytest.raises(NoOffset):
            await read(consumer, 1)


async def test_a_small_fetch_limit_still_brings_everything(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap, batch_bytes=5000) as producer:
        await producer.send_many(topic, [bytes(1000)] * 500)
    async with Consumer(
        bootstrap, offset_reset="earliest", partition_max_bytes=1, fetch_max_bytes=1
    ) as consumer:
        consumer.subscribe([topic])
        assert len(await read(consumer, 500)) == 500
