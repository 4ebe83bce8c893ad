"""Producing, by the sync and the async clients, to both servers."""

import asyncio
import random
from functools import partial
from typing import Any

import pytest

from qbus.clients.producer.partitioner import partition_for_key
from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.records import Compression, TimestampType
from tests.sdk.ledger import by_partition
from tests.sdk.reading import read_topic
from tests.sdk.sdk_clients import SdkClients

THEN = 1_700_000_000_000
COMPRESSIONS = [codec.name.lower() for codec in Compression]


def lines(count: int) -> list[bytes]:
    return [b"a line of a log, number %d" % number for number in range(count)]


@pytest.mark.parametrize("acks", ["all", 1, 0])
async def test_every_compression_and_acks(
    bootstrap: str, topic: str, sdk: SdkClients, acks: Any
) -> None:
    values = lines(500)

    async def produce(compression: str) -> list[Any]:
        async with sdk.producer(bootstrap, compression=compression, acks=acks) as producer:
            key = compression.encode()
            return [await producer.send(topic, value, key=key) for value in values]

    sent = await asyncio.gather(*map(produce, COMPRESSIONS))
    records = await read_topic(bootstrap, topic, len(values) * len(COMPRESSIONS))
    for compression, deliveries in zip(COMPRESSIONS, sent, strict=True):
        stored = [record for record in records if record.key == compression.encode()]
        assert [record.value for record in stored] == values
        told = [await sdk.result(delivery) for delivery in deliveries]
        assert [place.partition for place in told] == [record.partition for record in stored]
        offsets = [record.offset for record in stored] if acks else [-1] * len(stored)
        assert [place.offset for place in told] == offsets


@pytest.mark.parametrize("idempotent", [True, False])
async def test_order_with_and_without_idempotence(
    bootstrap: str, topic: str, sdk: SdkClients, idempotent: bool
) -> None:
    async with sdk.producer(bootstrap, idempotent=idempotent, batch_bytes=500) as producer:
        deliveries = [await producer.send(topic, b"%d" % n, partition=1) for n in range(1000)]
        assert [(await sdk.result(d)).offset for d in deliveries] == list(range(1000))
    records = await read_topic(bootstrap, topic, 1000)
    assert [record.value for record in records] == [b"%d" % n for n in range(1000)]


async def test_everything_a_record_can_have(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    headers = (("trace", b"\x00\xff"), ("none", None), ("empty", b""), ("ünï", b"x"))
    async with sdk.producer(bootstrap) as producer:
        await producer.send(topic, None, key=b"k", partition=0, timestamp=THEN)
        await producer.send(topic, b"", key=b"", partition=0, timestamp=THEN + 1)
        await producer.send(topic, b"v", headers=headers, partition=0, timestamp=THEN + 2)
        await producer.send(topic, memoryview(b"view"), key=bytearray(b"k"), partition=0)
    *known, last = await read_topic(bootstrap, topic, 4)
    assert known == [
        (topic, 0, 0, THEN, b"k", None, (), TimestampType.CREATE_TIME),
        (topic, 0, 1, THEN + 1, b"", b"", (), TimestampType.CREATE_TIME),
        (topic, 0, 2, THEN + 2, None, b"v", headers, TimestampType.CREATE_TIME),
    ]
    assert (last.key, last.value, type(last.value)) == (b"k", b"view", bytes)
    assert last.timestamp > THEN


async def test_records_of_every_form_keep_their_parts_and_their_order(
    bootstrap: str, topic: str, sdk: SdkClients
) -> None:
    """Batches of 2 kB hold records with and without each part, of plain and of other types."""
    chance = random.Random(16)
    sent: dict[bytes, dict[str, Any]] = {}
    told: set[bytes] = set()

    def tell(name: bytes, delivery: Any) -> None:
        if delivery.exception() is None:
            told.add(name)

    async with sdk.producer(bootstrap, batch_bytes=2000) as producer:
        deliveries = {}
        for number in range(3000):
            name = b"%d" % number
            key = b"k%d" % chance.randrange(20)
            parts: dict[str, Any] = {
                "key": chance.choice([None, key, bytearray(key)]),
                "headers": chance.choice([None, [], [("h", b"x"), ("none", None)], (("ü", b""),)]),
                "partition": chance.choice([None, None, 0, 1, 2]),
                "timestamp": chance.choice([None, THEN + number]),
            }
            sent[name] = parts
            value = chance.choice([bytes, memoryview])(name)
            callback = partial(tell, name)
            delivery = await producer.send(topic, value, on_delivery=callback, **parts)
            deliveries[name] = delivery
    records = await read_topic(bootstrap, topic, len(sent))
    assert {record.value for record in records} == told == set(sent)
    for record in records:
        assert record.value is not None
        parts, place = sent[record.value], await sdk.result(deliveries[record.value])
        assert (record.key, record.headers) == (parts["key"], tuple(parts["headers"] or ()))
        assert parts["timestamp"] in {None, record.timestamp}
        assert parts["partition"] in {None, record.partition}
        if parts["partition"] is None and record.key is not None:
            assert record.partition == partition_for_key(record.key, 3)
        assert (place.partition, place.offset) == (record.partition, record.offset)
        assert place.timestamp == record.timestamp
    for found in by_partition(records).values():
        bound = [
            int(record.value or b"")
            for record in found
            if record.key is not None or sent[record.value or b""]["partition"] is not None
        ]
        assert bound == sorted(bound)


async def test_a_delivery_tells_where_and_when(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    async with sdk.producer(bootstrap) as producer:
        delivery = await producer.send(topic, b"v", partition=2, timestamp=THEN)
        told = await sdk.result(delivery)
    assert (told.topic, told.partition, told.offset, told.timestamp) == (topic, 2, 0, THEN)
    assert delivery.done()


async def test_the_broker_may_set_the_time(bootstrap: str, name: str, sdk: SdkClients) -> None:
    async with sdk.admin(bootstrap) as admin:
        await admin.create_topic(
            name, partitions=1, config={"message.timestamp.type": "LogAppendTime"}
        )
    async with sdk.producer(bootstrap) as producer:
        told = await sdk.result(await producer.send(name, b"v", timestamp=THEN))
    (record,) = await read_topic(bootstrap, name, 1)
    assert record.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert record.timestamp == told.timestamp > THEN


async def test_keys_find_their_partitions_and_keep_their_order(
    bootstrap: str, topic: str, sdk: SdkClients
) -> None:
    keys = [b"key-%d" % (number % 20) for number in range(1000)]
    async with sdk.producer(bootstrap, batch_bytes=2000) as producer:
        for number, key in enumerate(keys):
            await producer.send(topic, b"%d" % number, key=key)
    records = await read_topic(bootstrap, topic, 1000)
    for partition, found in by_partition(records).items():
        assert {partition_for_key(record.key or b"", 3) for record in found} == {partition}
        numbers = [int(record.value or b"") for record in found]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("at_once", [False, True])
async def test_keyless_records_use_every_partition(
    bootstrap: str, topic: str, sdk: SdkClients, at_once: bool
) -> None:
    async with sdk.producer(bootstrap, batch_bytes=1000) as producer:
        if at_once:
            await producer.send_many(topic, [bytes(100)] * 1000)
        else:
            for _ in range(1000):
                await producer.send(topic, bytes(100))
    assert {record.partition for record in await read_topic(bootstrap, topic, 1000)} == {0, 1, 2}


@pytest.mark.parametrize("acks", ["all", 1, 0])
@pytest.mark.parametrize("compression", COMPRESSIONS)
async def test_many_values_at_once(
    bootstrap: str, topic: str, sdk: SdkClients, compression: str, acks: Any
) -> None:
    options = {"batch_bytes": 5000, "compression": compression, "acks": acks}
    async with sdk.producer(bootstrap, **options) as producer:
        batches = await sdk.result(await producer.send_many(topic, lines(2000), partition=1))
    assert batches[0].base_offset == (0 if acks else -1)
    assert [record.value for record in await read_topic(bootstrap, topic, 2000)] == lines(2000)


async def test_many_values_with_keys(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    keys = [None if number % 7 == 0 else b"key-%d" % (number % 20) for number in range(2000)]
    async with sdk.producer(bootstrap, batch_bytes=5000) as producer:
        await sdk.result(await producer.send_many(topic, lines(2000), keys=keys))
    records = await read_topic(bootstrap, topic, 2000)
    assert sorted(zip(keys, lines(2000), strict=True), key=str) == sorted(
        ((record.key, record.value) for record in records), key=str
    )
    for record in records:
        if record.key is not None:
            assert record.partition == partition_for_key(record.key, 3)
    for key in set(keys) - {None}:
        assert [record.value for record in records if record.key == key] == [
            value for its_key, value in zip(keys, lines(2000), strict=True) if its_key == key
        ]


async def test_flush_waits_for_everything(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    async with sdk.producer(bootstrap, linger_ms=60_000) as producer:
        deliveries = [await producer.send(topic, b"v", partition=0) for _ in range(10)]
        assert not any(delivery.done() for delivery in deliveries)
        await producer.flush()
        assert all(delivery.done() for delivery in deliveries)


async def test_a_closed_producer_takes_nothing(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    async with sdk.producer(bootstrap) as producer:
        await producer.send(topic, b"v")
    with pytest.raises(QbusError):
        await producer.send(topic, b"late")
    assert len(await read_topic(bootstrap, topic, 1)) == 1


async def test_a_record_that_is_too_large(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    large = bytes(1024 * 1024 - 200)
    async with sdk.producer(bootstrap) as producer:
        await sdk.result(await producer.send(topic, large))
        refused = await producer.send(topic, bytes(1024 * 1024 + 200))
        with pytest.raises(ApiError) as caught:
            await sdk.result(refused)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert not caught.value.retriable
    (record,) = await read_topic(bootstrap, topic, 1)
    assert record.value == large


async def test_a_topic_is_created_for_its_first_record(
    bootstrap: str, name: str, sdk: SdkClients
) -> None:
    async with sdk.producer(bootstrap) as producer:
        assert (await sdk.result(await producer.send(name, b"first"))).offset == 0


@pytest.mark.parametrize("partition", [3, -2, 2**31 - 1])
async def test_a_partition_that_does_not_exist(
    bootstrap: str, topic: str, sdk: SdkClients, partition: int
) -> None:
    async with sdk.producer(bootstrap) as producer:
        with pytest.raises(ApiError) as caught:
            await producer.send(topic, b"v", partition=partition)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await sdk.result(await producer.send(topic, b"v", partition=2))


@pytest.mark.parametrize(
    "record",
    [
        {"value": "text"},
        {"value": b"v", "key": 7},
        {"value": b"v", "headers": [("name", "text")]},
        {"value": b"v", "headers": [(b"name", b"v")]},
        {"value": b"v", "timestamp": -2},
        {"value": b"v", "timestamp": 2**63},
    ],
    ids=str,
)
async def test_invalid_records_are_refused(
    bootstrap: str, topic: str, sdk: SdkClients, record: dict[str, Any]
) -> None:
    async with sdk.producer(bootstrap) as producer:
        with pytest.raises((TypeError, ValueError)):
            await producer.send(topic, **record)
        await sdk.result(await producer.send(topic, b"v"))


async def test_many_values_with_everything(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    headers = [[("n", b"%d" % number)] if number % 2 else None for number in range(100)]
    async with sdk.producer(bootstrap) as producer:
        delivery = await producer.send_many(
            topic,
            lines(100),
            headers=headers,
            timestamps=[THEN + number for number in range(100)],
            partition=0,
        )
        await sdk.result(delivery)
    for number, record in enumerate(await read_topic(bootstrap, topic, 100)):
        assert record.timestamp == THEN + number
        assert record.headers == ((("n", b"%d" % number),) if number % 2 else ())


async def test_callbacks_hear_of_every_delivery(
    bootstrap: str, topic: str, sdk: SdkClients
) -> None:
    told: list[tuple[str, int]] = []
    async with sdk.producer(
        bootstrap, on_delivery=lambda delivery: told.append(("any", delivery.offset))
    ) as producer:
        for _ in range(3):
            await producer.send(topic, b"v", partition=0)
        await producer.flush()
        assert sorted(told) == [("any", 0), ("any", 1), ("any", 2)]
        await producer.send(
            topic,
            b"v",
            partition=0,
            on_delivery=lambda delivery: told.append(("own", delivery.offset)),
        )
        await producer.flush()
        assert ("own", 3) in told


async def test_a_custom_partitioner_chooses_partitions(
    bootstrap: str, topic: str, sdk: SdkClients
) -> None:
    def by_length(topic: Any, key: Any, value: Any) -> int:
        return len(value) % 3

    async with sdk.producer(bootstrap, partitioner=by_length) as producer:
        await producer.send_many(topic, [bytes(number) for number in range(30)])
        for number in range(30):
            await producer.send(topic, bytes(number))
    for record in await read_topic(bootstrap, topic, 60):
        assert record.partition == len(record.value or b"") % 3


async def test_a_full_buffer_is_told_or_waited_for(
    bootstrap: str, topic: str, sdk: SdkClients
) -> None:
    async def fill(producer: Any) -> None:
        for _ in range(100):
            await producer.send(topic, bytes(1000), partition=0)

    # A batch that is neither full nor due stays in the buffer, however fast the broker is.
    options = {"buffer_bytes": 10_000, "batch_bytes": 50_000, "linger_ms": 60_000}
    async with sdk.producer(bootstrap, on_full="raise", **options) as producer:
        with pytest.raises(QbusError) as caught:
            await fill(producer)
        assert caught.value.retriable
        await producer.flush()
        await producer.send(topic, bytes(1000), partition=0)
    options = {"buffer_bytes": 10_000, "batch_bytes": 5_000, "linger_ms": 200}
    async with sdk.producer(bootstrap, on_full="block", **options) as producer:
        await fill(producer)
