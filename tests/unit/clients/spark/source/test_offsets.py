"""What is in a query's checkpoint: the same text for the same offsets, and read back strictly."""

import json
from typing import Any

import pytest

from qbus.clients.spark.errors import CheckpointError
from qbus.clients.spark.source.offsets import QueryOffsets
from qbus.clients.types import TopicPartition

A0, A10, B0 = TopicPartition("a", 0), TopicPartition("a", 10), TopicPartition("b", 0)
IDS = {"b": "id of b", "a": "id of a"}


def test_offsets_look_as_those_of_spark_s_kafka_connector() -> None:
    written = QueryOffsets("q", IDS, {B0: 3, A10: 2, A0: 1}).to_json()
    assert {name: at for name, at in written.items() if name[0] != "#"} == {
        "a": {"0": 1, "10": 2},
        "b": {"0": 3},
    }


def test_the_same_offsets_are_the_same_text() -> None:
    one = QueryOffsets("q", IDS, {B0: 3, A10: 2, A0: 1}, {A0: 0, B0: 3})
    other = QueryOffsets("q", dict(reversed(IDS.items())), {A0: 1, A10: 2, B0: 3}, {B0: 3, A0: 0})
    assert json.dumps(one.to_json()) == json.dumps(other.to_json())


@pytest.mark.parametrize("begin", [None, {A0: 0}, {}])
def test_written_offsets_can_be_read(begin: dict[TopicPartition, int] | None) -> None:
    offsets = QueryOffsets("q", IDS, {A0: 1, B0: 3}, begin)
    assert QueryOffsets.from_json(json.loads(json.dumps(offsets.to_json()))) == offsets


def test_a_query_that_has_read_nothing_knows_it() -> None:
    assert QueryOffsets("q", IDS, {A0: 1}, {A0: 1}).is_initial
    assert not QueryOffsets("q", IDS, {A0: 2}, {A0: 1}).is_initial
    assert not QueryOffsets("q", IDS, {A0: 2}).is_initial


@pytest.mark.parametrize(
    "written",
    [
        None,
        [],
        {"a": {"0": 1}},
        {"#ids": {}, "a": {"0": 1}},
        {"#ids": {}, "#query": "q", "a": {"0": 1}},
        {"#ids": {"a": "i"}, "#query": "q", "a": {"x": 1}},
        {"#ids": {"a": "i"}, "#query": "q", "a": 5},
        {"#ids": {}, "#query": "q", "#begin": [5]},
        {"#ids": {}, "#query": "q", "#epochs": {}},
    ],
)
def test_offsets_of_another_source_are_refused(written: Any) -> None:
    with pytest.raises(CheckpointError, match="checkpoint"):
        QueryOffsets.from_json(written)
