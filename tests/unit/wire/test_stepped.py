"""Large messages are read and written in steps, as they are at once."""

from collections.abc import Generator
from typing import Any

import pytest

from qbus.errors import WireError
from qbus.wire import API, ApiKey, decode, encode, encode_response
from qbus.wire.messages.fetch import FetchRequest
from qbus.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from qbus.wire.primitives import MAX_TAGS, STEP
from qbus.wire.stepped import decode_in_steps, encode_response_in_steps


def run(work: Generator[None, None, Any]) -> tuple[int, Any]:
    """How many times it paused, and what it returned."""
    pauses = 0
    while True:
        try:
            next(work)
            pauses += 1
        except StopIteration as end:
            return pauses, end.value


def written(message: Any, version: int) -> memoryview:
    return memoryview(b"".join(map(bytes, encode(message, version))))


@pytest.mark.parametrize("version", [4, 12])
def test_a_request_is_read_as_it_is_at_once(version: int) -> None:
    topics = [MetadataRequestTopic(name=f"topic-{number}") for number in range(5 * STEP + 1)]
    data = written(MetadataRequest(topics=topics), version)
    pauses, read = run(decode_in_steps(MetadataRequest, version, data))
    assert pauses == 5
    assert read == decode(MetadataRequest, version, data)


def test_items_of_inner_arrays_count() -> None:
    partition = MetadataResponsePartition(replica_nodes=[1, 2, 3])
    topics = [MetadataResponseTopic(name="t", partitions=[partition] * 9)] * STEP
    response = MetadataResponse(topics=topics)
    pauses, parts = run(encode_response_in_steps(ApiKey.METADATA, 12, 7, response))
    assert pauses == 10
    assert parts == encode_response(ApiKey.METADATA, 12, 7, response)


@pytest.mark.parametrize("key", list(API), ids=lambda key: key.name)
def test_every_message_has_both_forms(key: ApiKey) -> None:
    api = API[key]
    for version in (api.min_version, api.max_version):
        request = written(api.request(), version)
        assert run(decode_in_steps(api.request, version, request)) == (
            0,
            decode(api.request, version, request),
        )
        answer = api.response()
        stepped = run(encode_response_in_steps(key, version, 7, answer))
        assert stepped == (0, encode_response(key, version, 7, answer))


def test_malformed_bytes_are_refused() -> None:
    data = written(MetadataRequest(topics=[MetadataRequestTopic(name="topic")]), 9)
    for size in range(1, len(data)):
        with pytest.raises(WireError):
            run(decode_in_steps(MetadataRequest, 9, data[:size]))


def test_an_answer_that_cannot_be_written_is_refused() -> None:
    response = MetadataResponse(controller_id=2**40)
    with pytest.raises(WireError, match="cannot be written"):
        run(encode_response_in_steps(ApiKey.METADATA, 12, 7, response))


def test_a_struct_has_no_more_tagged_fields_than_in_kafka() -> None:
    whole = bytes(written(FetchRequest(), 12))
    assert whole[-1:] == b"\0"

    def tagged(count: int) -> memoryview:
        number = bytes([count & 0x7F | 0x80, count >> 7 & 0x7F | 0x80, count >> 14])
        return memoryview(whole[:-1] + number + b"\x63\0" * count)

    assert run(decode_in_steps(FetchRequest, 12, tagged(MAX_TAGS)))[0] == 1
    with pytest.raises(WireError):
        run(decode_in_steps(FetchRequest, 12, tagged(MAX_TAGS + 1)))
    with pytest.raises(WireError):
        decode(FetchRequest, 12, tagged(MAX_TAGS + 1))
