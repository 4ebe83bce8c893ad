"""What the lean readers make of a request's frame, beside what the general decoder makes of it."""

from collections.abc import Callable
from typing import Any, Final

from qbus.errors import ErrorCode
from qbus.wire import API, ApiKey, decode, decode_request_header, decode_response, lean
from qbus.wire.messages.end_txn import EndTxnRequest
from qbus.wire.messages.fetch import FetchRequest
from qbus.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from qbus.wire.messages.produce import ProduceRequest

from .positions import packed


def lean_forms(frame: bytes) -> dict[str, Any]:
    """What each reader that takes the frame makes of it, by the reader's name."""
    found = {name: read(memoryview(frame)) for name, (read, _, _) in _READERS.items()}
    return {name: _comparable(name, form) for name, form in found.items() if form is not None}


def general_form(name: str, frame: bytes) -> Any:
    """What the general decoder makes of a frame, in the form of the reader of that name.

    Raises WireError for what it refuses, and AssertionError or ValueError for a request that is not
    of the form the reader is for.
    """
    _, key, make = _READERS[name]
    header, position = decode_request_header(frame)
    assert header.api_key == key
    request = decode(API[key].request, header.api_version, memoryview(frame), position)
    return (header.api_version, header.correlation_id, *make(request, header))


def stored(version: int, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """What answers a commit of which everything is stored."""
    by_id = version >= _FIRST_COMMIT_BY_ID
    topics = []
    for topic in request.topics:
        partitions = [
            OffsetCommitResponsePartition(
                partition_index=position.partition_index, error_code=ErrorCode.NONE
            )
            for position in topic.partitions
        ]
        naming: dict[str, Any] = {"topic_id": topic.topic_id} if by_id else {"name": topic.name}
        topics.append(OffsetCommitResponseTopic(partitions=partitions, **naming))
    return OffsetCommitResponse(topics=topics)


_FIRST_BY_ID: Final = 13  # of Produce and Fetch
_FIRST_COMMIT_BY_ID: Final = 10
_MAX_UINT32: Final = 0xFFFFFFFF


def _comparable(name: str, form: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same with bytes for views, and with the message for an answer that was prepared."""
    if name == "commit":
        answer: bytes = form[-1]
        assert int.from_bytes(answer[:4]) == len(answer) - 4
        return (*form[:-1], decode_response(ApiKey.OFFSET_COMMIT, form[0], answer[4:]))
    return tuple(bytes(part) if isinstance(part, memoryview) else part for part in form)


def _produce(request: ProduceRequest, header: Any) -> tuple[Any, ...]:
    assert request.transactional_id is None
    return _produced(request, header)


def _transactional(request: ProduceRequest, header: Any) -> tuple[Any, ...]:
    assert request.transactional_id is not None
    return (*_produced(request, header), request.transactional_id)


def _produced(request: ProduceRequest, header: Any) -> tuple[Any, ...]:
    (topic,) = request.topic_data
    (data,) = topic.partition_data
    assert data.records is not None
    assert (topic.mirror_source, topic.mirror_topic_id) == ("", "")
    assert (data.mirror_follows, data.mirror_log_start_offset) == (-1, -1)
    name = topic.topic_id if header.api_version >= _FIRST_BY_ID else topic.name
    return request.acks, request.timeout_ms, name, data.index, bytes(data.records)


def _fetch(request: FetchRequest, header: Any) -> tuple[Any, ...]:
    assert max(request.replica_id, request.replica_state.replica_id) == -1
    assert request.session_epoch in {-1, 0}
    assert (request.rack_id, request.forgotten_topics_data) == ("", [])
    assert (request.cluster_id, request.hidden) == (None, False)
    (topic,) = request.topics
    (wanted,) = topic.partitions
    return (
        request.min_bytes,
        request.max_bytes,
        request.isolation_level == 1,
        topic.topic_id if header.api_version >= _FIRST_BY_ID else topic.topic,
        wanted.partition,
        wanted.current_leader_epoch,
        wanted.fetch_offset,
        wanted.partition_max_bytes,
    )


def _commit(request: OffsetCommitRequest, header: Any) -> tuple[Any, ...]:
    by_id = header.api_version >= _FIRST_COMMIT_BY_ID
    topics = []
    for topic in request.topics:
        positions = [
            (
                position.partition_index,
                position.committed_offset,
                position.committed_leader_epoch,
                position.committed_metadata or "",
            )
            for position in topic.partitions
        ]
        topics.append(
            (
                topic.topic_id if by_id else topic.name,
                packed(positions),
                len(positions),
                max(index & _MAX_UINT32 for index, *_ in positions),
                max(len(text) for *_, text in positions),
            )
        )
    answer = header.correlation_id, stored(header.api_version, request)
    return (
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        topics,
        answer,
    )


def _end(request: EndTxnRequest, _: Any) -> tuple[Any, ...]:
    return (
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
    )


_READERS: Final[
    dict[str, tuple[Callable[[memoryview], Any], ApiKey, Callable[[Any, Any], tuple[Any, ...]]]]
] = {
    "produce": (lean.read_produce, ApiKey.PRODUCE, _produce),
    "transactional": (lean.read_transactional, ApiKey.PRODUCE, _transactional),
    "fetch": (lean.read_fetch, ApiKey.FETCH, _fetch),
    "commit": (lean.read_commit, ApiKey.OFFSET_COMMIT, _commit),
    "end": (lean.read_end, ApiKey.END_TXN, _end),
}
