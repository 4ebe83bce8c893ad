"""Rows of Arrow tables become records of the right partitions, in their order."""

from typing import Any

import pyarrow as pa
import pytest

from qbus.clients import Producer
from qbus.clients.producer.arrow_delays import with_due_times
from qbus.clients.producer.partitioner import partition_for_key
from qbus.errors import ApiError
from qbus.records import iter_records
from tests.support.fake_broker import FakeBroker

TABLE = pa.table(
    {
        "line": [b"line %d" % number for number in range(1000)],
        "host": [f"host-{number % 7}" if number % 5 else None for number in range(1000)],
        "at": pa.array(range(1000), pa.timestamp("ms")),
    }
)


async def test_values_alone() -> None:
    async with FakeBroker() as broker, Producer(broker.bootstrap, batch_bytes=2000) as producer:
        bulk = await producer.send_arrow("t", TABLE, value="line")
        assert sum(run.records_count for run in await bulk) == len(bulk) == 1000
        assert broker.logs["t", 0].values() == TABLE["line"].to_pylist()
        assert len(broker.logs["t", 0].batches) > 5


async def test_keys_and_times() -> None:
    async with FakeBroker({"t": 3}) as broker:
        async with Producer(broker.bootstrap, batch_bytes=2000) as producer:
            await producer.send_arrow("t", TABLE, value="line", key="host", timestamp="at")
        seen = []
        for partition in range(3):
            for batch in broker.logs["t", partition].batches:
                for record in iter_records(batch):
                    number = record.timestamp
                    assert record.value == b"line %d" % number
                    expected = TABLE["host"][number].as_py()
                    assert record.key == (expected and expected.encode())
                    if record.key is not None:
                        assert partition_for_key(record.key, 3) == partition
                    seen.append(number)
        assert sorted(seen) == list(range(1000))


async def test_a_partition_of_choice_and_a_function() -> None:
    async with FakeBroker({"t": 3}) as broker:
        async with Producer(broker.bootstrap) as producer:
            await producer.send_arrow("t", TABLE.slice(0, 10), value="line", partition=2)
        assert len(broker.logs["t", 2].values()) == 10
        by_value = {"partitioner": lambda _topic, _key, value: int(value[-1:]) % 2}
        options: Any = by_value
        async with Producer(broker.bootstrap, **options) as producer:
            await producer.send_arrow("t", TABLE.slice(0, 10), value="line")
        assert broker.logs["t", 0].values() == [b"line %d" % n for n in range(0, 10, 2)]


async def test_what_is_split_is_whole() -> None:
    async with FakeBroker() as broker, Producer(broker.bootstrap) as producer:
        bulk = await producer.send_arrow("t", TABLE, value="line")
        ((batch, _, _),) = bulk._parts
        assert [half.count for half in batch.cut()] == [500, 500]
        await bulk


async def test_what_cannot_be_sent_is_refused_at_once() -> None:
    async with FakeBroker() as broker, Producer(broker.bootstrap) as producer:
        with pytest.raises(KeyError):
            await producer.send_arrow("t", TABLE, value="missing")
        with pytest.raises(TypeError):
            await producer.send_arrow("t", TABLE, value="at")
        with pytest.raises(ApiError):
            await producer.send_arrow("t", TABLE, value="line", partition=7)
        assert (await producer.send_arrow("t", TABLE.slice(0, 0), value="line")).result() == []


def test_names_and_values_of_headers_are_told_apart_by_their_names() -> None:
    fields = [pa.field("value", pa.binary()), pa.field("key", pa.string())]
    own = pa.array([[{"key": "a", "value": b"1"}], []], pa.list_(pa.struct(fields)))
    table = pa.table({"own": own, "due": pa.array([7, None], pa.int64())})
    made, added = with_due_times(table, "own", "due")
    due = {"key": "qbus-deliver-at", "value": b"7"}
    assert made[added].to_pylist() == [[{"key": "a", "value": b"1"}, due], []]
