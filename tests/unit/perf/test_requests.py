"""The load of requests: frames that say what they are to say, and the place of an error's code."""

import shutil
from typing import Any

import pytest

from perf import requests
from perf.report import Figure
from qbus.records import build_batch, iter_batches, iter_records
from qbus.wire import API, ApiKey, decode, decode_request_header, encode_response
from qbus.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

BATCH = build_batch([(None, b"x" * 100, (), 1)] * 3)


def test_a_produce_frame_holds_the_batch() -> None:
    frame = memoryview(requests.produce_frame("t", 2, BATCH, -1))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, position = decode_request_header(frame[4:])
    assert (header.api_key, header.api_version) == (ApiKey.PRODUCE, requests.PRODUCE_VERSION)
    request: Any = decode(API[ApiKey.PRODUCE].request, header.api_version, frame[4:], position)
    (topic,) = request.topic_data
    (data,) = topic.partition_data
    assert (topic.name, data.index, request.acks) == ("t", 2, -1)
    values = [
        record.value for _, batch in iter_batches(data.records) for record in iter_records(batch)
    ]
    assert values == [b"x" * 100] * 3


def test_a_fetch_frame_asks_for_one_batch() -> None:
    frame = memoryview(requests.fetch_frame("t", 1))
    header, position = decode_request_header(frame[4:])
    request: Any = decode(API[ApiKey.FETCH].request, header.api_version, frame[4:], position)
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (request.max_bytes, request.session_epoch) == (1, -1)
    assert (topic.topic, partition.partition, partition.fetch_offset) == ("t", 1, 0)


def test_an_errors_code_is_where_it_is_looked_for() -> None:
    partition = PartitionProduceResponse(index=0, error_code=0x0102, base_offset=7)
    response = ProduceResponse(
        responses=[TopicProduceResponse(name="t", partition_responses=[partition])]
    )
    parts = encode_response(ApiKey.PRODUCE, requests.PRODUCE_VERSION, 9, response)
    frame = b"".join(map(bytes, parts))
    at = 4 + requests.error_position("t")
    assert frame[at : at + 2] == b"\1\2"


def test_the_worst_comes_first() -> None:
    slow = Figure("slow", "requests/s", [1.0], [2.0])
    late = Figure("late", "ms", [9.0], [3.0], lower_is_better=True)
    fast = Figure("fast", "requests/s", [3.0], [2.0])
    assert [figure.case for figure in requests.worst_first([fast, slow, late])] == [
        "late",
        "slow",
        "fast",
    ]


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("does", ["produce", "fetch"])
def test_the_least_server_answers_as_the_load_expects(does: str) -> None:
    frames = [requests.produce_frame("t", index, BATCH, 1) for index in range(requests.PARTITIONS)]
    at, length = frames[0].index(bytes(BATCH)), 60
    if does == "fetch":
        at, length = 0, len(BATCH) + 90
    asked = requests.Load(b"".join(frames), (), length, -1, at, len(BATCH))
    with requests.floor(asked) as (load, _):
        found = requests.drive(load, requests.Row(6, 3, 100, 1), 0.2, lambda: 0.0)
    assert found["rate"] > 0
