"""Columns in and out: Arrow tables to topics, and topics to record batches."""

from collections import defaultdict
from typing import Any

import pytest

from qbus.clients.producer.partitioner import partition_for_key
from tests.sdk.reading import read_topic
from tests.sdk.sdk_clients import SdkClients
from tests.sdk.test_consuming import fill

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

THEN = 1_700_000_000_000


def table(count: int) -> Any:
    return pa.table(
        {
            "value": pa.array([b"value %d" % n for n in range(count)], pa.binary()),
            "key": pa.array([None if n % 3 == 0 else f"key-{n % 10}" for n in range(count)]),
            "time": pa.array([THEN + n for n in range(count)], pa.timestamp("ms")),
        }
    )


async def test_a_table_becomes_records(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    async with sdk.producer(bootstrap, batch_bytes=5000) as producer:
        delivery = await producer.send_arrow(
            topic, table(1000), value="value", key="key", timestamp="time"
        )
        await sdk.result(delivery)
    records = await read_topic(bootstrap, topic, 1000)
    numbers = sorted(int((record.value or b"").split()[1]) for record in records)
    assert numbers == list(range(1000))
    for record in records:
        number = int((record.value or b"").split()[1])
        assert record.key == (None if number % 3 == 0 else b"key-%d" % (number % 10))
        assert record.timestamp == THEN + number
        if record.key is not None:
            assert record.partition == partition_for_key(record.key, 3)


async def test_a_slice_of_a_batch_to_one_partition(
    bootstrap: str, topic: str, sdk: SdkClients
) -> None:
    (batch,) = table(1000).to_batches()
    async with sdk.producer(bootstrap) as producer:
        await sdk.result(await producer.send_arrow(topic, batch.slice(100, 50), partition=1))
    records = await read_topic(bootstrap, topic, 50)
    assert [record.value for record in records] == [b"value %d" % n for n in range(100, 150)]
    assert {record.partition for record in records} == {1}


async def test_a_topic_becomes_record_batches(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    await fill(bootstrap, topic, 300, partition=None)
    found: defaultdict[int, list[Any]] = defaultdict(list)
    async with sdk.consumer(bootstrap, offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        while sum(batch.num_rows for part in found.values() for batch in part) < 300:
            for batch in await consumer.poll_arrow(1.0):
                found[batch.column("partition")[0].as_py()].append(batch)
    for partition, batches in found.items():
        rows = pa.Table.from_batches(batches).to_pydict()
        assert rows["offset"] == list(range(100))
        assert rows["value"] == [b"%d" % n for n in range(partition, 300, 3)]
        assert set(rows["topic"]) == {topic}
        assert set(rows["partition"]) == {partition}
        assert set(rows["key"]) == {None}
        assert set(rows["timestamp_type"]) == {0}
        assert rows["headers"] == [[]] * 100
        assert [int(time.timestamp() * 1000) for time in rows["timestamp"]] == [
            THEN + n * 3_600_000 for n in range(partition, 300, 3)
        ]


async def test_columns_come_and_go_whole(bootstrap: str, topic: str, sdk: SdkClients) -> None:
    """send_arrow takes what poll_arrow returns, with headers, nulls and times."""
    async with sdk.producer(bootstrap) as producer:
        for number in range(10):
            await producer.send(
                topic,
                None if number == 3 else b"v%d" % number,
                key=None if number % 2 else b"k",
                headers=[("h", b"%d" % number), ("n", None)] if number > 4 else None,
                partition=0,
                timestamp=THEN + number,
            )
        await producer.flush()
        async with sdk.consumer(bootstrap, offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0, None)])
            batches: list[Any] = []
            while sum(batch.num_rows for batch in batches) < 10:
                batches += await consumer.poll_arrow(1.0)
        for batch in batches:
            await sdk.result(
                await producer.send_arrow(
                    topic,
                    batch,
                    value="value",
                    key="key",
                    headers="headers",
                    timestamp="timestamp",
                    partition=1,
                )
            )
    records = await read_topic(bootstrap, topic, 20)
    without_place = [record[3:] for record in records]
    assert without_place[:10] == without_place[10:]
