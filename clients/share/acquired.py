"""The records that one fetch acquired in one partition, decoded bit by bit."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from qbus.records import (
    BatchHeader,
    ConsumerRecord,
    CorruptBatch,
    RecordColumns,
    check_crc,
    decode_some,
    iter_batches,
    to_arrow,
)
from qbus.records.arrow_buffers import import_pyarrow
from qbus.records.bounds import MAX_RECORDS_SIZE
from qbus.records.codec import with_item

from ..errors import corrupt_at
from ..types import TopicPartition
from .acknowledgements import NO_DELAY, Ack, AckType
from .types import ShareRecord

_AT_ONCE = 64 * 1024
"""Bytes of records that are decoded at a time."""
_OFFSET = attrgetter("offset")


class AcquiredRange(NamedTuple):
    """Offsets, both included, that were acquired, and how often the group was given them so far."""

    first: int
    last: int
    deliveries: int


class AcquiredRecords:
    """Whole batches, of which some offsets were acquired; decoded only as they are read.

    ``leftovers`` are acknowledgements that it makes by itself as it decodes: offsets without a
    record are gaps, and what cannot be read is released.
    """

    def __init__(
        self,
        partition: TopicPartition,
        data: memoryview,
        ranges: Sequence[AcquiredRange],
        *,
        check_crcs: bool,
        max_size: int = MAX_RECORDS_SIZE,
    ) -> None:
        """``max_size``: how many bytes the records of a batch may take, decompressed."""
        self._max_size = max_size
        self.partition = partition
        self.leftovers: list[Ack] = []
        self._ranges = sorted(ranges)
        self._check_crcs = check_crcs
        self._batches = iter_batches(data, partial_tail=True)
        self._batch: tuple[BatchHeader, memoryview] | None = None
        self._rest: list[ShareRecord] = []
        self._error: CorruptBatch | None = None
        self._seen_to = 0  # what was acquired before this offset is accounted for

    def look_ahead(self) -> bool:
        """Return whether there is more to take, or to raise; decodes until it knows."""
        if self._rest or self._error is not None or self._advance():
            return True
        return self._error is not None  # which advancing may have met

    @property
    def is_damaged(self) -> bool:
        """Whether the next take raises an error."""
        return not self._rest and self._error is not None

    def take(self, limit: int) -> list[ShareRecord]:
        """Return up to ``limit`` records; none when there are no more.

        Raises :class:`~qbus.records.CorruptBatch` behind the records before the damage; those
        behind it follow.
        """
        taken: list[ShareRecord] = []
        while limit > len(taken) and (self._rest or self._advance()):
            more = limit - len(taken)
            taken += self._rest[:more]
            del self._rest[:more]
        if not taken:
            self._raise_error()
        return taken

    def take_arrow(self, columns: RecordColumns, limit: int) -> tuple[Any, list[int]] | None:
        """Decode whole batches of about ``limit`` records into ``columns``; None: no more.

        Returns a ``pyarrow.RecordBatch`` of the acquired records, and their offsets. Raises as
        :meth:`take`.
        """
        deliveries: dict[int, int] = {}
        while columns.rows < limit and (self._rest or self._advance()):
            assert self._batch is not None
            header, batch = self._batch
            try:
                columns.append(batch, header, self._rest[0].offset, self._max_size)
            except OverflowError:  # no room beside the batches before
                if not columns.rows:
                    raise
                break
            except CorruptBatch as error:  # behind what was acquired: it was not decoded before
                self.leftovers += [Ack(one.offset, AckType.RELEASE, 0) for one in self._rest]
                self._fail(self._rest[0].offset, error)
                self._rest = []
                break
            deliveries.update((record.offset, record.deliveries) for record in self._rest)
            self._rest = []
        if not deliveries:
            self._raise_error()
            return None
        return _with_deliveries(to_arrow(columns, *self.partition), deliveries)

    def drop(self) -> list[int]:
        """Return the offsets of all records that were not taken, which nobody can take then."""
        dropped: list[int] = []
        while self.look_ahead():
            dropped += [record.offset for record in self._rest]
            self._rest, self._error = [], None
        return dropped

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _advance(self) -> bool:
        """Decode until there are records or an error; return whether there are records."""
        while not self._rest and self._error is None:
            try:
                self._batch = next(self._batches, None)
            except CorruptBatch as error:  # no batch can be found behind it
                self._damaged(self._last, error)
                return False
            if self._batch is None:
                self._account(self._last, (), AckType.RELEASE)
                return False
            header, batch = self._batch
            try:
                self._rest = self._decode(header, batch)
            except CorruptBatch as error:
                self._damaged(max(header.base_offset, header.last_offset), error)
        return self._error is None

    def _decode(self, header: BatchHeader, batch: memoryview) -> list[ShareRecord]:
        first, last = header.base_offset, header.last_offset
        spans = [span for span in self._ranges if span.first <= last and span.last >= first]
        if not spans:
            return []
        if header.last_offset_delta < 0:
            raise CorruptBatch(f"impossible last offset delta {header.last_offset_delta}")
        if self._check_crcs:
            check_crc(batch, header)
        records: list[ShareRecord] = []
        if not header.is_control:
            for some in self._records(header, batch, spans[0].first, spans[-1].last):
                records += _acquired_of(some, spans)
        self._account(last, records, AckType.GAP)
        return records

    def _records(
        self, header: BatchHeader, batch: memoryview, first: int, last: int
    ) -> Iterator[list[ConsumerRecord]]:
        """Yield the batch's records from ``first`` on, and perhaps some behind ``last``.

        The broker sends whole batches, of which a member that takes records has few.
        """
        is_rest = last >= header.last_offset  # is decoded to its end, where damage may be
        for some in decode_some(batch, header, *self.partition, first, _AT_ONCE, self._max_size):
            yield some
            if not is_rest and some[-1].offset >= last:
                return

    def _damaged(self, last: int, error: CorruptBatch) -> None:
        """Release what was acquired up to ``last``, and raise the error behind what is before."""
        first = max(self._seen_to, self._ranges[0].first if self._ranges else 0)
        self._account(last, (), AckType.RELEASE)
        self._fail(first, error)

    def _fail(self, offset: int, error: CorruptBatch) -> None:
        """Have the next take raise that the records from ``offset`` on are damaged."""
        self._error = corrupt_at(*self.partition, offset, str(error))
        self._error.__cause__ = error

    @property
    def _last(self) -> int:
        return max((span.last for span in self._ranges), default=-1)

    def _account(self, last: int, records: Sequence[ShareRecord], otherwise: AckType) -> None:
        """Account for what was acquired up to ``last`` and is not among ``records``."""
        spans = [(max(span.first, self._seen_to), min(span.last, last)) for span in self._ranges]
        self._seen_to = max(self._seen_to, last + 1)
        if sum(max(end - first + 1, 0) for first, end in spans) == len(records):
            return  # as nearly always
        there = {record.offset for record in records}
        delay = 0 if otherwise is AckType.RELEASE else NO_DELAY
        self.leftovers += [
            Ack(offset, otherwise, delay)
            for first, end in spans
            for offset in range(first, end + 1)
            if offset not in there
        ]


def _acquired_of(some: list[ConsumerRecord], spans: Sequence[AcquiredRange]) -> list[ShareRecord]:
    """Those of some records, in the order of their offsets, that were acquired."""
    first, last = some[0].offset, some[-1].offset
    found: list[ShareRecord] = []
    for span in spans:
        if span.first <= last and span.last >= first:
            start = bisect_left(some, span.first, key=_OFFSET)
            stop = bisect_right(some, span.last, lo=start, key=_OFFSET)
            found += with_item(some[start:stop], ShareRecord, span.deliveries)
    return found


def _with_deliveries(batch: Any, deliveries: dict[int, int]) -> tuple[Any, list[int]]:
    """The rows of a batch that have a number of deliveries, with that as a last column."""
    pa = import_pyarrow()
    offsets: list[int] = batch.column("offset").to_pylist()
    if len(offsets) != len(deliveries):
        rows = [row for row, offset in enumerate(offsets) if offset in deliveries]
        batch = batch.take(pa.array(rows, pa.int64()))
        offsets = [offsets[row] for row in rows]
    counts = pa.array([deliveries[offset] for offset in offsets], pa.int16())
    return batch.append_column("deliveries", counts), offsets
