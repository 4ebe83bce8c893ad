"""The jobs of a queue that are not done, read from its log."""

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from qbus import jobs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qbus.clients import Admin
    from qbus.clients.net.cluster import Cluster
    from qbus.clients.types import TopicPartition
    from qbus.records import Record

_DEFAULT_RETRY_S = 30
_KEPT = 2_000  # records, at least, that are kept before it is known whether they are done


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


async def not_due(admin: "Admin", topic: str) -> dict[str, Any]:
    """How many delayed jobs of a queue are not due, and when the next one is, in milliseconds."""
    described = await admin.describe_topic(topic)
    places = [(topic, partition.index) for partition in described.partitions]
    found = (await admin.describe_delayed(places)).values()
    return {
        "delayed": sum(one.pending for one in found),
        "next_due": min((one.next_due for one in found if one.next_due is not None), default=None),
    }


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
    left = Unfinished(max(start, earliest), limit, newest=newest)
    while left.is_unread:
        async for header, batch in read_batches(cluster, place, left.start, end, hidden=True):
            if is_control(header):
                for change in settlement(batch, group).changes:
                    left.settle(change.first, change.last)
            elif not header.is_control and not left.add(iter_records(batch)):
                break
        left.end_of_log()
    return left.records


class Unfinished:
    """The first or the last records of a log that are not done, as it is read from ``start`` on.

    What settles a record comes after it, anywhere; so more are kept at first than are wanted, and
    the log is read a second time only if too many of these were done in the end.
    """

    def __init__(self, start: int, limit: int, *, newest: bool) -> None:
        self.start = start
        self.is_unread = True
        self._limit = limit
        self._newest = newest
        self._most = max(_KEPT, 4 * limit)
        self._done = OffsetRanges()
        self._kept: list[Record] = []
        self._is_cut = False
        self._knows_all = False

    @property
    def records(self) -> "list[Record]":
        """What was found, ascending."""
        found = [record for record in self._kept if record.offset not in self._done]
        return found[-self._limit :] if self._newest else found[: self._limit]

    def settle(self, first: int, last: int) -> None:
        """The records from ``first`` to ``last`` are done."""
        self._done.add(first, last)

    def add(self, records: "Iterable[Record]") -> bool:
        """Take the records of the next batch; whether any more are wanted."""
        if not self._newest and self._is_cut:
            return True  # the rest is read for what it settles
        self._kept += [
            record
            for record in records
            if record.offset >= self.start and record.offset not in self._done
        ]
        if self._knows_all:
            if self._newest:
                del self._kept[: -self._limit]
                return True
            return len(self._kept) < self._limit
        if len(self._kept) > 2 * self._most:
            self._kept = [record for record in self._kept if record.offset not in self._done]
            self._cut(self._most)
        return True

    def _cut(self, most: int) -> None:
        if len(self._kept) > most:
            self._is_cut = True
            self._kept = self._kept[-most:] if self._newest else self._kept[:most]

    def end_of_log(self) -> None:
        """It was read to its end: all that is done is known."""
        found = self.records
        self.is_unread = self._is_cut and len(found) < self._limit and not self._knows_all
        if self.is_unread:
            self._knows_all = True
            self._is_cut = False
            if self._newest:
                self._kept = []
            else:
                self.start = self._kept[-1].offset + 1
                self._kept = found


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
