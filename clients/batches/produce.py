"""Producing raw batches: to one broker, or to all leaders; and preparing them for that."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from qbus.errors import ApiError, ErrorCode
from qbus.records import Buffer, read_header, set_base_offset
from qbus.records.header import write_header
from qbus.wire import ApiKey
from qbus.wire.messages.produce import (
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

from ..errors import api_error
from ..net.cluster import Cluster
from ..net.pool import ConnectionGroup, ConnectionGroupKey
from ..net.retry import Outcomes
from ..net.routing import ask_leaders
from ..types import TopicPartition, by_topic

_ACKS_ALL = -1
_STORED = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})


class StoredBatch(NamedTuple):
    """Where a batch is stored, acknowledged by all in-sync replicas.

    ``base_offset`` is -1 if the batch was stored before, and the broker does not say where.
    """

    base_offset: int
    log_start_offset: int


async def produce_batches(
    cluster: Cluster,
    node: int,
    batches: Mapping[TopicPartition, Buffer],
    *,
    connection_group: ConnectionGroupKey = ConnectionGroup.MAIN,
) -> Outcomes[TopicPartition, StoredBatch]:
    """Send each batch once, with ``acks=all``, to the broker ``node``, without copying it.

    A refusal is the outcome of that partition; a new leader that it names is kept in the cluster's
    metadata. Raises as :class:`~qbus.clients.net.cluster.Cluster` does; then it is unknown what was
    stored.
    """
    topics = [
        TopicProduceData(
            name=topic,
            partition_data=[
                PartitionProduceData(index=index, records=batches[TopicPartition(topic, index)])
                for index in indexes
            ],
        )
        for topic, indexes in by_topic(batches).items()
    ]
    return await produce_topics(cluster, node, topics, connection_group=connection_group)


async def produce_topics(
    cluster: Cluster,
    node: int,
    topics: list[TopicProduceData],
    *,
    connection_group: ConnectionGroupKey = ConnectionGroup.MAIN,
) -> Outcomes[TopicPartition, StoredBatch]:
    """Produce as :func:`produce_batches` does, given the protocol's own structures."""
    request = ProduceRequest(
        transactional_id=None,
        acks=_ACKS_ALL,
        timeout_ms=int(cluster.request_timeout * 1000),
        topic_data=topics,
    )
    response: ProduceResponse = await cluster.ask(
        node, ApiKey.PRODUCE, request, connection_group=connection_group
    )
    endpoints = {endpoint.node_id: endpoint for endpoint in response.node_endpoints}
    return {
        TopicPartition(topic.name, answer.index): _outcome(cluster, topic.name, answer, endpoints)
        for topic in response.responses
        for answer in topic.partition_responses
    }


async def store_batches(
    cluster: Cluster, batches: Mapping[TopicPartition, Buffer]
) -> dict[TopicPartition, StoredBatch]:
    """Store one batch in each of some partitions, wherever their leaders are.

    Retries retriable errors: a batch with a producer's sequence is stored once, any other perhaps
    more than once. :func:`~qbus.clients.batches.as_produced` prepares a stored batch. Raises
    :class:`~qbus.errors.ApiError`, or :class:`~qbus.clients.PartialFailure` when some were stored.
    """

    async def ask(node: int, led: list[TopicPartition]) -> Outcomes[TopicPartition, StoredBatch]:
        return await produce_batches(cluster, node, _chosen(batches, led))

    return await ask_leaders(cluster, batches, ask)


def _chosen(
    batches: Mapping[TopicPartition, Buffer], partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Buffer]:
    return {partition: batches[partition] for partition in partitions}


def _outcome(
    cluster: Cluster,
    topic: str,
    answer: PartitionProduceResponse,
    endpoints: Mapping[int, NodeEndpoint],
) -> StoredBatch | ApiError:
    if answer.error_code in _STORED:
        return StoredBatch(answer.base_offset, answer.log_start_offset)
    error = api_error(answer.error_code, answer.error_message, of=f"{topic}-{answer.index}")
    leader = answer.current_leader
    if error.retriable and not cluster.apply_leader_hint(
        topic, answer.index, leader.leader_id, leader.leader_epoch, endpoints.get(leader.leader_id)
    ):
        cluster.metadata.forget([topic])
    return error


_NO_EPOCH = -1


class ProducerSequence(NamedTuple):
    """The producer of a batch, and the sequence of its first record (KIP-98)."""

    producer_id: int
    epoch: int
    base_sequence: int


def as_produced(batch: Buffer) -> bytearray:
    """Return a copy of a whole batch without its offset and leader epoch; its producer stays."""
    copy = bytearray(batch)
    set_base_offset(copy, 0, _NO_EPOCH)
    return copy


def with_sequence(batch: Buffer, sequence: ProducerSequence) -> bytearray:
    """Return a copy of a whole batch under another producer's ``sequence``, with a new checksum.

    The records stay as they are, compressed or not. Raises :class:`~qbus.records.CorruptBatch` for
    bytes without a header.
    """
    copy = as_produced(batch)
    producer_id, epoch, base_sequence = sequence
    header = read_header(copy)._replace(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=base_sequence
    )
    write_header(copy, header)
    return copy
