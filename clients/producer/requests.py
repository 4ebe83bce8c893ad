"""Produce requests made of batches, and the answers for each batch."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.produce import (
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

from ..errors import RequestTimedOut, api_error
from ..types import TopicPartition, by_topic
from .batch import Batch, BatchRefused, Stored


class Hint(NamedTuple):
    """The new leader of a partition (KIP-951)."""

    leader_id: int
    epoch: int
    endpoint: NodeEndpoint | None


class Answer(NamedTuple):
    """A broker's answer for one batch."""

    batch: Batch
    outcome: Stored | ApiError
    hint: Hint | None = None


def produce_request(
    batches: Sequence[Batch], acks: int, timeout: float, transactional_id: str | None = None
) -> ProduceRequest:
    """Return a request with these batches, one per partition. ``timeout``: the broker's, in
    seconds.
    """
    by_partition = {batch.partition: batch for batch in batches}
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=milliseconds(timeout),
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(
                        index=index, records=by_partition[TopicPartition(topic, index)].encoded
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(by_partition).items()
        ],
    )


def milliseconds(timeout: float) -> int:
    """Return what requests tell of a time-out in seconds."""
    return max(1, int(timeout * 1000))


def answers(batches: Sequence[Batch], response: ProduceResponse) -> Iterator[Answer]:
    """Yield the answer for each batch of a request, also for those left out."""
    unanswered = {batch.partition: batch for batch in batches}
    endpoints = {endpoint.node_id: endpoint for endpoint in response.node_endpoints}
    for topic in response.responses:
        for part in topic.partition_responses:
            batch = unanswered.pop(TopicPartition(topic.name, part.index), None)
            if batch is not None:
                yield Answer(batch, _outcome(batch, part), _hint(part, endpoints))
    for batch in unanswered.values():
        yield Answer(batch, RequestTimedOut("the broker did not answer for this partition"))


def _outcome(batch: Batch, part: PartitionProduceResponse) -> Stored | ApiError:
    if part.error_code == ErrorCode.NONE:
        late = frozenset(part.orders_late)
        return Stored(part.base_offset, part.log_append_time_ms, late, part.orders_done)
    if part.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        return Stored(-1, -1)  # stored once, too long ago to know where
    error = api_error(part.error_code, part.error_message, of="{}-{}".format(*batch.partition))
    if part.record_errors:
        reasons = {
            one.batch_index: one.batch_index_error_message or str(error)
            for one in part.record_errors
        }
        return BatchRefused(error.code, batch.count, reasons)
    return error


def _hint(part: PartitionProduceResponse, endpoints: Mapping[int, NodeEndpoint]) -> Hint | None:
    leader = part.current_leader
    if leader.leader_id < 0:
        return None
    return Hint(leader.leader_id, leader.leader_epoch, endpoints.get(leader.leader_id))
