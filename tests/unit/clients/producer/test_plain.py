"""The plain Produce request and its answer: what the codec writes and reads, byte for byte."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.clients.producer.batch import Stored
from qbus.clients.producer.plain import is_plain, plain_answer, plain_request
from qbus.clients.types import TopicPartition
from qbus.errors import WireError
from qbus.wire import ApiKey, decode_response, encode_request, encode_response
from qbus.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tests.unit.wire.strategies import messages

PREFIX = 4

versions = st.integers(9, 12)
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
partitions = st.builds(TopicPartition, texts, st.integers(0, 2**31 - 1))
int32 = st.integers(0, 2**31 - 1)
int64 = st.integers(-1, 2**63 - 1)


def test_flexible_versions_that_name_topics_are_plain() -> None:
    assert [version for version in range(20) if is_plain(version)] == [9, 10, 11, 12]


@given(
    version=versions,
    correlation_id=int32,
    client_id=texts,
    transactional_id=st.none() | texts,
    acks=st.sampled_from([-1, 1, 0]),
    timeout_ms=int32,
    partition=partitions,
    size=st.integers(0, 3000),
)
def test_requests_are_those_of_the_codec(
    version: int,
    correlation_id: int,
    client_id: str,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    partition: TopicPartition,
    size: int,
) -> None:
    records = bytearray(size)
    place = (acks, timeout_ms, partition, records)
    parts = plain_request(version, correlation_id, client_id, transactional_id, *place)
    data = PartitionProduceData(index=partition.partition, records=records)
    message = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=partition.topic, partition_data=[data])],
    )
    whole = encode_request(ApiKey.PRODUCE, version, correlation_id, client_id, message)
    assert b"".join(parts) == b"".join(whole)


def test_large_records_are_not_copied() -> None:
    records = bytearray(2000)
    parts = plain_request(9, 1, "c", None, 1, 1000, TopicPartition("t", 0), records)
    assert any(part is records for part in parts)


@pytest.mark.parametrize(
    ("client_id", "topic", "timeout_ms"),
    [("c" * 2**15, "t", 1), ("c", "t" * 2**15, 1), ("c", "t", 2**31), ("\ud800", "t", 1)],
)
def test_what_does_not_fit_is_refused_as_the_codec_does(
    client_id: str, topic: str, timeout_ms: int
) -> None:
    records = bytearray(10)
    with pytest.raises(WireError):
        plain_request(9, 1, client_id, None, 1, timeout_ms, TopicPartition(topic, 0), records)


def frame_of(response: ProduceResponse, version: int) -> memoryview:
    return memoryview(b"".join(encode_response(ApiKey.PRODUCE, version, 7, response)))[PREFIX:]


@given(
    version=versions,
    partition=partitions,
    offset=int64,
    time=int64,
    start=int64,
    throttle_ms=int32,
)
def test_answers_are_those_of_the_codec(
    version: int, partition: TopicPartition, offset: int, time: int, start: int, throttle_ms: int
) -> None:
    part = PartitionProduceResponse(
        index=partition.partition,
        error_code=0,
        base_offset=offset,
        log_append_time_ms=time,
        log_start_offset=start,
    )
    topic = TopicProduceResponse(name=partition.topic, partition_responses=[part])
    frame = frame_of(ProduceResponse(responses=[topic], throttle_time_ms=throttle_ms), version)
    assert plain_answer(frame, partition) == (Stored(offset, time), throttle_ms)


@given(st.data(), versions)
def test_any_other_answer_goes_the_general_way(data: Any, version: int) -> None:
    response = data.draw(messages(ProduceResponse, version))
    found = plain_answer(frame_of(response, version), TopicPartition("t", 0))
    if found is None:
        return
    ((part,),) = [topic.partition_responses for topic in response.responses]
    assert found == (Stored(part.base_offset, part.log_append_time_ms), response.throttle_time_ms)


@given(st.data(), st.integers(0, 60), st.integers(0, 255))
def test_a_changed_answer_is_read_as_ever_or_not_at_all(data: Any, at: int, byte: int) -> None:
    partition = TopicPartition("t", 0)
    part = PartitionProduceResponse(index=0, error_code=0, base_offset=5, log_append_time_ms=-1)
    topic = TopicProduceResponse(name="t", partition_responses=[part])
    frame = bytearray(frame_of(ProduceResponse(responses=[topic], throttle_time_ms=0), 9))
    if at < len(frame):
        frame[at] = byte
    cut = data.draw(st.integers(0, len(frame)) | st.just(len(frame)))
    found = plain_answer(memoryview(frame)[:cut], partition)
    if found is None:
        return
    try:
        response = decode_response(ApiKey.PRODUCE, 9, frame[:cut])[1]
    except WireError as error:
        raise AssertionError("it was read") from error
    ((told,),) = [topic.partition_responses for topic in response.responses]
    assert (told.index, told.error_code) == (0, 0)
    stored = Stored(told.base_offset, told.log_append_time_ms)
    assert found == (stored, response.throttle_time_ms)
