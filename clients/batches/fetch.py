"""Fetching the raw batches of many partitions from one broker."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from qbus.errors import ApiError, ErrorCode
from qbus.records import BatchHeader, Buffer, CorruptBatch, check_crc, iter_batches
from qbus.wire import ApiKey
from qbus.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    NodeEndpoint,
    PartitionData,
)

from ..errors import REFUSED_AS_CORRUPT, api_error, check, corrupt_at
from ..net.cluster import Cluster
from ..net.pool import ConnectionGroup, ConnectionGroupKey
from ..net.retry import Outcomes
from ..types import NO_ID, TopicPartition, by_topic


class FetchLimits(NamedTuple):
    """Limits of a response, in bytes, and of the broker's wait for it, in seconds.

    A broker exceeds ``max_bytes`` by one batch rather than return none.
    """

    max_bytes: int
    partition_max_bytes: int
    max_wait: float = 0.0
    min_bytes: int = 1


class FetchedBatches(NamedTuple):
    """What was fetched of one partition: a view that keeps the whole response in memory.

    ``records`` may begin with batches before the requested offset, and end with a partial one: see
    :func:`~qbus.clients.batches.whole_batches`. The partition holds records from ``start_offset``
    on, and those before ``high_watermark`` are acknowledged: consumers see them, unless hidden.
    """

    records: memoryview
    start_offset: int
    high_watermark: int


async def fetch_batches(
    cluster: Cluster,
    node: int,
    offsets: Mapping[TopicPartition, int],
    limits: FetchLimits,
    *,
    connection_group: ConnectionGroupKey = ConnectionGroup.FETCH,
    topic_ids: Mapping[str, UUID] | None = None,
    leader_epochs: Mapping[TopicPartition, int] | None = None,
    hidden: bool = False,
) -> Outcomes[TopicPartition, FetchedBatches]:
    """Fetch once from partitions that broker ``node`` leads, each from an offset on.

    topic_ids: refuses another topic of the same name with UNKNOWN_TOPIC_ID, on brokers of Kafka 3.1
        and later. Without the ids of all topics, topics go by name.
    leader_epochs: the expected leader epochs, by default the last known ones; later ones are
        refused with FENCED_LEADER_EPOCH.
    hidden: also the batches that Qbus hides from consumers; then the high watermark is behind them.

    A refusal is the outcome of that partition; a new leader that it names is kept in the cluster's
    metadata. Raises as :class:`~qbus.clients.net.cluster.Cluster` does.
    """
    topics = by_topic(offsets)
    ids = {topic: (topic_ids or {}).get(topic, NO_ID) for topic in topics}
    names = {topic_id.bytes: topic for topic, topic_id in ids.items()}
    epochs = leader_epochs or {}
    known_epoch = cluster.metadata.leader_epoch
    request = FetchRequest(
        max_wait_ms=int(limits.max_wait * 1000),
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        hidden=hidden,
        topics=[
            FetchTopic(
                topic=topic,
                topic_id=ids[topic].bytes,
                partitions=[
                    FetchPartition(
                        partition=key.partition,
                        current_leader_epoch=epochs.get(key, known_epoch(*key)),
                        fetch_offset=offsets[key],
                        partition_max_bytes=limits.partition_max_bytes,
                    )
                    for key in (TopicPartition(topic, index) for index in indexes)
                ],
            )
            for topic, indexes in topics.items()
        ],
    )
    response: FetchResponse = await cluster.ask(
        node,
        ApiKey.FETCH,
        request,
        connection_group=connection_group,
        timeout=cluster.request_timeout + limits.max_wait,
        by_id=NO_ID not in ids.values(),
    )
    check(response.error_code, of="fetch")
    endpoints = {endpoint.node_id: endpoint for endpoint in response.node_endpoints}
    answers = [
        (topic.topic or names.get(topic.topic_id, ""), data)
        for topic in response.responses
        for data in topic.partitions
    ]
    return {
        (key := TopicPartition(topic, data.partition_index)): _outcome(
            cluster, node, key, offsets.get(key, -1), data, endpoints
        )
        for topic, data in answers
    }


def _outcome(
    cluster: Cluster,
    node: int,
    partition: TopicPartition,
    offset: int,
    data: PartitionData,
    endpoints: Mapping[int, NodeEndpoint],
) -> FetchedBatches | ApiError:
    topic, index = partition
    if not data.error_code:
        records = memoryview(data.records or b"")
        return FetchedBatches(records, data.log_start_offset, data.high_watermark)
    if data.error_code == ErrorCode.CORRUPT_MESSAGE:
        return corrupt_at(topic, index, offset, REFUSED_AS_CORRUPT)
    error = api_error(data.error_code, of=f"{topic}-{index}", broker=node)
    leader = data.current_leader
    if error.retriable and not cluster.apply_leader_hint(
        topic,
        index,
        leader.leader_id,
        leader.leader_epoch,
        endpoints.get(leader.leader_id),
    ):
        cluster.metadata.forget([topic])
    return error


def whole_batches(
    records: Buffer, start: int, end: int | None = None
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the whole batches that reach into ``start`` to ``end`` (None: the last), in order.

    Leaves out a partial batch at the end. Raises :class:`~qbus.records.CorruptBatch` at the first
    batch with a wrong checksum or impossible offsets.
    """
    reached = start
    for header, batch in iter_batches(records, partial_tail=True):
        if header.last_offset_delta < 0:
            raise CorruptBatch(f"impossible last offset delta {header.last_offset_delta}")
        if header.last_offset < start:
            continue
        if end is not None and header.base_offset >= end:
            return
        if header.base_offset < reached and reached > start:
            raise CorruptBatch(f"a batch at {header.base_offset} after one to {reached - 1}")
        check_crc(batch, header)
        reached = header.last_offset + 1
        yield header, batch
