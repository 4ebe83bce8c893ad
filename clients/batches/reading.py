"""Reading the raw batches of a range of offsets of one partition."""

from collections.abc import AsyncIterator

from qbus.records import BatchHeader

from ..errors import RequestTimedOut
from ..net.cluster import Cluster
from ..net.retry import Outcomes
from ..net.routing import ask_leaders
from ..types import TopicPartition
from .fetch import FetchedBatches, FetchLimits, fetch_batches, whole_batches

_FETCH_BYTES = 4 * 1024 * 1024
_LONGEST_WAIT = 5.0


async def read_batches(
    cluster: Cluster, partition: TopicPartition, start: int, end: int
) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
    """Yield every batch that reaches into ``start`` to ``end``, in order, its checksum verified.

    ``end`` is at most the high watermark. Each view keeps its whole response in memory. Raises
    :class:`~qbus.errors.ApiError` (OFFSET_OUT_OF_RANGE when ``start`` is gone),
    :class:`~qbus.clients.errors.RequestTimedOut` when the log does not reach ``end`` within a
    request's time, and :class:`~qbus.records.CorruptBatch`.
    """
    position = start
    while position < end:
        fetched = await _fetch(cluster, partition, position)
        before = position
        for header, batch in whole_batches(fetched.records, position):
            position = header.last_offset + 1
            if header.base_offset >= end:
                return
            yield header, batch
        if position == before:
            raise RequestTimedOut(
                f"{partition.topic}-{partition.partition} has no records from {position}"
                f" to {end} for consumers to see; its high watermark is {fetched.high_watermark}"
            )


async def find_producer(
    cluster: Cluster, partition: TopicPartition, start: int, end: int, producer_id: int
) -> list[BatchHeader]:
    """Return the headers of the batches from ``start`` to ``end`` that ``producer_id`` wrote.

    Raises as :func:`read_batches` does.
    """
    found = read_batches(cluster, partition, start, end)
    return [header async for header, _ in found if header.producer_id == producer_id]


async def _fetch(cluster: Cluster, partition: TopicPartition, position: int) -> FetchedBatches:
    """Fetch from ``position`` on, waiting as long as a request may take."""
    wait = min(cluster.request_timeout / 2, _LONGEST_WAIT)
    limits = FetchLimits(_FETCH_BYTES, _FETCH_BYTES, max_wait=wait)

    async def ask(node: int, led: list[TopicPartition]) -> Outcomes[TopicPartition, FetchedBatches]:
        return await fetch_batches(cluster, node, dict.fromkeys(led, position), limits)

    return (await ask_leaders(cluster, [partition], ask))[partition]
