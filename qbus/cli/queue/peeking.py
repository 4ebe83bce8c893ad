"""The jobs of a queue that are not done, read from its log."""

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from qbus import jobs

if TYPE_CHECKING:
    from qbus.clients import Admin
    from qbus.clients.net.cluster import Cluster
    from qbus.clients.types import TopicPartition
    from qbus.records import Record

_DEFAULT_RETRY_S = 30


class OffsetRanges:
    """Ranges of offsets, merged as they come."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def add(self, first: int, last: int) -> None:
        """Add the offsets from ``first`` to ``last``, both included."""
        begin = bisect_right(self._lasts, first - 2)
        end = bisect_right(self._firsts, last + 1)
        if begin < end:
            first = min(first, self._firsts[begin])
            last = max(last, self._lasts[end - 1])
        self._firsts[begin:end] = [first]
        self._lasts[begin:end] = [last]

    def __contains__(self, offset: int) -> bool:
        index = bisect_right(self._firsts, offset) - 1
        return index >= 0 and offset <= self._lasts[index]


async def peek_jobs(
    admin: "Admin", topic: str, group: str, limit: int, *, newest: bool
) -> list[dict[str, Any]]:
    """Up to ``limit`` jobs that ``group`` has not done: the oldest, or the newest, first."""
    described = await admin.describe_topic(topic)
    places = [(topic, partition.index) for partition in described.partitions]
    states = await admin.describe_queues(group, places)
    found: list[dict[str, Any]] = []
    for place, state in states.items():
        records = await _left(admin._cluster, place, state.start_offset, group, limit, newest)
        found += [
            _document(record, described.topic_id.bytes, place.partition) for record in records
        ]
    found.sort(key=lambda job: (job["added"], job["partition"], job["offset"]), reverse=newest)
    return found[:limit]


async def _left(
    cluster: "Cluster", place: "TopicPartition", start: int, group: str, limit: int, newest: bool
) -> "list[Record]":
    """Records of a partition that are not done, up to ``limit``: the first or the last ones."""
    from qbus.clients.batches.reading import read_batches
    from qbus.clients.offsets import list_offsets
    from qbus.clients.queue.history import is_control, settlement
    from qbus.clients.types import EARLIEST, LATEST
    from qbus.records import iter_records

    earliest = (await list_offsets(cluster, {place: EARLIEST}))[place].offset
    end = (await list_offsets(cluster, {place: LATEST}))[place].offset
    start = max(start, earliest)
    done = OffsetRanges()
    async for header, batch in read_batches(cluster, place, start, end, hidden=True):
        if is_control(header):
            for change in settlement(batch, group).changes:
                done.add(change.first, change.last)
    left: list[Record] = []
    async for header, batch in read_batches(cluster, place, start, end, hidden=True):
        if header.is_control:
            continue
        left += [
            record
            for record in iter_records(batch)
            if record.offset >= start and record.offset not in done
        ]
        if newest:
            del left[:-limit]
        elif len(left) >= limit:
            break
    return left[:limit]


def _document(record: "Record", topic_id: bytes, partition: int) -> dict[str, Any]:
    from qbus.clients.queue.history import job_id

    options = jobs.read_options(record.headers, _DEFAULT_RETRY_S)
    value = record.value or b""
    return {
        "id": job_id(topic_id, partition, record, options),
        "partition": partition,
        "offset": record.offset,
        "added": record.timestamp,
        "key": None if record.key is None else record.key.decode(errors="replace"),
        "body": value.decode(errors="replace"),
        "size": len(value),
    }
