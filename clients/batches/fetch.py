"""One Fetch to one broker: the bytes of the batches of many partitions."""

from collections.abc import Mapping
from typing import NamedTuple

from qbus.errors import ApiError
from qbus.wire import ApiKey
from qbus.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

from ..cluster import Cluster
from ..errors import api_error, check
from ..grouping import by_topic
from ..outcomes import Outcomes
from ..pool import Lane, LaneKey
from ..types import TopicPartition

_NO_EPOCH = -1


class FetchLimits(NamedTuple):
    """What an answer may hold, in bytes, and for how many seconds the broker may wait for it.

    Brokers exceed ``max_bytes`` by one batch rather than answer with none.
    """

    max_bytes: int
    partition_max_bytes: int
    max_wait: float = 0.0
    min_bytes: int = 1


class FetchedBatches(NamedTuple):
    """What came of one partition: a view of the answer, whose memory it keeps.

    ``records`` may begin with batches before the offset that was asked for, and end with one that
    is cut: see :func:`~qbus.clients.batches.whole_batches`. The partition holds what is from
    ``start_offset`` on, and consumers see what is before ``high_watermark``.
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
    lane: LaneKey = Lane.FETCH,
) -> Outcomes[TopicPartition, FetchedBatches]:
    """Fetch once, from each of the partitions that broker ``node`` leads, from an offset on.

    What the broker refuses is an error of that partition; who leads it now is noted in the
    cluster's metadata. Raises as :class:`~qbus.clients.cluster.Cluster` does.
    """
    request = FetchRequest(
        max_wait_ms=int(limits.max_wait * 1000),
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=index,
                        current_leader_epoch=_leader_epoch(cluster, topic, index),
                        fetch_offset=offsets[TopicPartition(topic, index)],
                        partition_max_bytes=limits.partition_max_bytes,
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(offsets).items()
        ],
    )
    timeout = cluster.request_timeout + limits.max_wait
    response: FetchResponse = await cluster.ask(
        node, ApiKey.FETCH, request, lane=lane, timeout=timeout
    )
    check(response.error_code, of="fetch")
    return {
        TopicPartition(topic.topic, data.partition_index): _outcome(cluster, topic.topic, data)
        for topic in response.responses
        for data in topic.partitions
    }


def _leader_epoch(cluster: Cluster, topic: str, index: int) -> int:
    known = cluster.metadata.topics.get(topic)
    if known is None or index >= len(known.partitions):
        return _NO_EPOCH
    return known.partitions[index].leader_epoch


def _outcome(cluster: Cluster, topic: str, data: PartitionData) -> FetchedBatches | ApiError:
    if not data.error_code:
        records = memoryview(data.records or b"")
        return FetchedBatches(records, data.log_start_offset, data.high_watermark)
    error = api_error(data.error_code, of=f"{topic}-{data.partition_index}")
    leader = data.current_leader
    if error.retriable and not cluster.apply_leader_hint(
        topic, data.partition_index, leader.leader_id, leader.leader_epoch
    ):
        cluster.metadata.forget([topic])
    return error
