"""Columns in and out: Arrow tables to topics, and topics to record batches."""

from typing import Any

import pytest

from qbus.clients.partitioner import partition_for_key
from tests.sdk.faces import Face
from tests.sdk.reading import read_topic

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


async def test_a_table_becomes_records(bootstrap: str, topic: str, face: Face) -> None:
    async with face.producer(bootstrap, batch_bytes=5000) as producer:
        delivery = await producer.send_arrow(
            topic, table(1000), value="value", key="key", timestamp="time"
        )
        await face.result(delivery)
    records = await read_topic(bootstrap, topic, 1000)
    numbers = sorted(int((record.value or b"").split()[1]) for record in records)
    assert numbers == list(range(1000))
    for record in records:
        number = int((record.value or b"").split()[1])
        assert record.key == (None if number % 3 == 0 else b"key-%d" % (number % 10))
        assert record.timestamp == THEN + number
        if record.key is not None:
            assert record.partition == partition_for_key(record.key, 3)


async def test_a_slice_of_a_batch_to_one_partition(bootstrap: str, topic: str, face: Face) -> None:
    (batch,) = table(1000).to_batches()
    async with face.producer(bootstrap) as producer:
        await face.result(await producer.send_arrow(topic, batch.slice(100, 50), partition=1))
    records = await read_topic(bootstrap, topic, 50)
    assert [record.value for record in records] == [b"value %d" % n for n in range(100, 150)]
    assert {record.partition for record in records} == {1}
