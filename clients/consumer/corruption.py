"""The first readable batch behind a corrupt one."""

from qbus.errors import ApiError, ErrorCode
from qbus.records import CorruptBatch, iter_batches
from qbus.records.bounds import MAX_RECORDS_SIZE
from qbus.wire import ApiKey
from qbus.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

from ..errors import api_error, check
from ..net.cluster import Cluster
from ..net.retry import Outcomes
from ..net.routing import ask_leaders
from ..offsets import list_offsets
from ..types import LATEST, TopicPartition
from .completed_fetch import CompletedFetch

_AT_ONCE = 10_000
"""Records that are decoded at a time."""


async def readable_after(
    cluster: Cluster, partition: TopicPartition, offset: int, max_size: int = MAX_RECORDS_SIZE
) -> int:
    """Return the offset of a readable batch behind the corrupt one at ``offset``.

    Readable is one whose records take at most ``max_size`` bytes, decompressed. It is the end of
    the log if there is none. Asks for ever farther offsets, then for those between. So it takes few
    requests; of batches between two corrupt ones it may miss some. Raises
    :class:`~qbus.errors.ApiError`.
    """
    end = (await list_offsets(cluster, {partition: LATEST}))[partition].offset
    corrupt, readable, step = offset, end, 1
    while corrupt + step < end:
        found = await _readable_at(cluster, partition, corrupt + step, max_size)
        if found is not None:
            readable = max(found, corrupt + 1)
            break
        corrupt, step = corrupt + step, 2 * step
    while readable - corrupt > 1:
        middle = (corrupt + readable) // 2
        found = await _readable_at(cluster, partition, middle, max_size)
        if found is None:
            corrupt = middle
        else:
            readable = max(found, corrupt + 1)
    return max(readable, offset)


async def _readable_at(
    cluster: Cluster, partition: TopicPartition, offset: int, max_size: int
) -> int | None:
    """Return where the batch of ``offset`` begins; None: it is corrupt."""

    async def ask(node: int, led: list[TopicPartition]) -> Outcomes[TopicPartition, int | None]:
        response: FetchResponse = await cluster.ask(
            node, ApiKey.FETCH, _request_for_one_batch(cluster, led, offset)
        )
        check(response.error_code, of="fetch")
        return {
            (key := TopicPartition(topic.topic, data.partition_index)): _begin_of(
                key, data.error_code, data.records, offset, max_size
            )
            for topic in response.responses
            for data in topic.partitions
        }

    return (await ask_leaders(cluster, [partition], ask))[partition]


def _begin_of(
    partition: TopicPartition,
    error_code: int,
    records: memoryview | None,
    offset: int,
    max_size: int,
) -> int | ApiError | None:
    if error_code == ErrorCode.CORRUPT_MESSAGE:
        return None
    if error_code:
        return api_error(error_code)
    try:
        for header, batch in iter_batches(records or b"", partial_tail=True):
            if header.last_offset >= offset:
                begin = header.base_offset
                _read_all(
                    CompletedFetch(partition, begin, batch, check_crcs=True, max_size=max_size)
                )
                return header.base_offset
    except CorruptBatch:
        return None
    return offset


def _read_all(fetched: CompletedFetch) -> None:
    """Raise :class:`~qbus.records.CorruptBatch` where a consumer would: a checksum may be right
    over records that are malformed.
    """
    while fetched.decode(_AT_ONCE):
        pass


def _request_for_one_batch(
    cluster: Cluster, partitions: list[TopicPartition], offset: int
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=index,
                        current_leader_epoch=cluster.metadata.leader_epoch(topic, index),
                        fetch_offset=offset,
                        partition_max_bytes=1,
                    )
                ],
            )
            for topic, index in partitions
        ],
    )
