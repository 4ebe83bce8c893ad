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
    cluster: Cluster, partition: TopicPartition, start: int, end: int, *, hidden: bool = False
) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
    """Yield every batch that reaches into ``start`` to ``end``, in order, its checksum verified.

    ``end`` is at most the high watermark. ``hidden``: also those that Qbus hides from consumers, up
    to the first fetch's high watermark where that is behind ``end``. Each view keeps its whole
    response in memory. Raises :class:`~qbus.errors.ApiError` (OFFSET_OUT_OF_RANGE when ``start`` is
    gone), :class:`~qbus.clients.errors.RequestTimedOut` when the log does not reach ``end`` within
    a request's time, and :class:`~qbus.records.CorruptBatch`.
    """
    position = start
    if hidden:  # what is behind the last record that consumers see, and may be nothing
        first = await _fetch(cluster, partition, start, hidden=True, wait=False)
        end = max(end, first.high_watermark)
    while position < end:
        fetched = await _fetch(cluster, partition, position, hidden=hidden)
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
    found = read_batches(cluster, partition, start, end, hidden=True)
    return [header async for header, _ in found if header.producer_id == producer_id]


async def _fetch(
    cluster: Cluster,
    partition: TopicPartition,
    position: int,
    *,
    hidden: bool = False,
    wait: bool = True,
) -> FetchedBatches:
    """Fetch from ``position`` on, waiting as long as a request may take, or not at all."""
    longest = min(cluster.request_timeout / 2, _LONGEST_WAIT) if wait else 0.0
    limits = FetchLimits(_FETCH_BYTES, _FETCH_BYTES, max_wait=longest)

    async def ask(node: int, led: list[TopicPartition]) -> Outcomes[TopicPartition, FetchedBatches]:
        offsets = dict.fromkeys(led, position)
        return await fetch_batches(cluster, node, offsets, limits, hidden=hidden)

    return (await ask_leaders(cluster, [partition], ask))[partition]
