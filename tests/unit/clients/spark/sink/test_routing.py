"""Rows go where the SDK would send them, and wrong ones nowhere."""

from collections import Counter
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from qbus.clients import TopicPartition
from qbus.clients.producer.partitioner import partition_for_key
from qbus.clients.spark.sink.routing import BadRow, Router
from qbus.clients.types import PartitionDescription, TopicDescription

SIZES = {"t": 5, "one": 1, "growing": 2}


def described(topic: str, partitions: int = 1) -> TopicDescription:
    count = max(SIZES[topic], partitions if topic == "growing" else 0)
    parts = tuple(PartitionDescription(i, 1, 0, (1,), (1,), ()) for i in range(count))
    return TopicDescription(topic, None, False, parts)  # type: ignore[arg-type]


def routed(to: str | None = "t", **columns: Any) -> dict[TopicPartition, list[Any]]:
    """The values that go to each partition, in their order."""
    rows = pa.record_batch(columns)
    return {
        where: run.column("value").to_pylist() for where, run in Router(to, described).route(rows)
    }


def ints(*numbers: int | None) -> pa.Array:
    return pa.array(numbers, pa.int32())


def test_keys_decide_as_in_the_sdk() -> None:
    keys = [f"key-{number % 40}" for number in range(1000)]
    found = routed(value=[str(number) for number in range(1000)], key=keys)
    for where, values in found.items():
        assert all(partition_for_key(keys[int(v)].encode(), 5) == where.partition for v in values)
        assert values == sorted(values, key=int)
    assert sum(map(len, found.values())) == 1000


def test_rows_without_a_key_stay_together_and_move_on() -> None:
    router = Router("t", described)
    rows = pa.record_batch({"value": [b"v"] * 10})
    visited = [where.partition for _ in range(20) for where, _ in router.route(rows)]
    assert len(visited) == 20
    assert all(one != other for one, other in pairwise(visited))


def test_null_keys_go_with_the_rows_without() -> None:
    found = routed(value=["a", "b", "c"], key=pa.array([None, None, None], pa.string()))
    assert list(found.values()) == [["a", "b", "c"]]


def test_a_rows_own_partition_overrides_its_key() -> None:
    found = routed(value=["a", "b", "c"], key=["k", "k", None], partition=ints(4, None, 0))
    assert "a" in found[TopicPartition("t", 4)]
    assert "c" in found[TopicPartition("t", 0)]
    assert "b" in found[TopicPartition("t", partition_for_key(b"k", 5))]


@pytest.mark.parametrize(("partition", "message"), [(5, "0 to 4"), (-1, "it must be 0 or more")])
def test_a_partition_that_is_not_there(partition: int, message: str) -> None:
    with pytest.raises(BadRow, match=message):
        routed(value=["a"], partition=ints(partition))


def test_a_topic_that_grew_is_looked_up_again() -> None:
    assert routed("growing", value=["a"], partition=ints(7)) == {("growing", 7): ["a"]}


def test_rows_name_their_topics() -> None:
    found = routed(None, value=["a", "b", "c"], topic=["one", "t", "one"], partition=ints(0, 3, 0))
    assert found == {("one", 0): ["a", "c"], ("t", 3): ["b"]}


def test_the_option_overrides_the_column() -> None:
    assert routed("one", value=["a"], topic=["t"]) == {("one", 0): ["a"]}


def test_a_null_topic() -> None:
    with pytest.raises(BadRow, match="topic is null"):
        routed(None, value=["a", "b"], topic=["t", None])


def test_slices_and_no_rows_at_all() -> None:
    whole = pa.record_batch({"value": ["a", "b", "c"], "key": ["x", "y", "z"]})
    assert list(Router("t", described).route(whole.slice(3))) == []
    parts = list(Router("t", described).route(whole.slice(1, 1)))
    assert [(where.partition, run.column("value").to_pylist()) for where, run in parts] == [
        (partition_for_key(b"y", 5), ["b"])
    ]


def test_every_row_is_routed_once() -> None:
    count = 500
    found = routed(
        None,
        value=[str(number) for number in range(count)],
        key=[None if number % 3 else "k" for number in range(count)],
        topic=["t" if number % 2 else "one" for number in range(count)],
        partition=ints(*(0 if number % 7 == 0 else None for number in range(count))),
    )
    values = Counter(value for run in found.values() for value in run)
    assert values == Counter(str(number) for number in range(count))
