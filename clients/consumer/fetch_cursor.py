"""A cursor on the fetched records of one partition, for a reader in any thread."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from operator import length_hint
from typing import Any, NamedTuple, Protocol, TypeVar

from qbus.records import CorruptBatch, RecordColumns, to_arrow

from ..types import ConsumerRecord, PartitionRecords
from .completed_fetch import AT_ONCE, CompletedFetch


class Positioned(Protocol):
    """A record, or several; ``offset`` is that of the last."""

    @property
    def offset(self) -> int: ...


class ArrowRecords(NamedTuple):
    """Records as a ``pyarrow.RecordBatch``, and the offset of the last."""

    offset: int
    batch: Any


T = TypeVar("T", bound=Positioned)


class _Delivered:
    """Records on their way to the reader, who had everything before ``begin``."""

    def __init__(self, begin: int, records: list[Any]) -> None:
        # The list's own iterator is the quickest, and knows how far it is.
        self.rest = iter(records)
        self._begin = begin
        self._records = records

    @property
    def end(self) -> int:
        """The offset after the last record that the reader has."""
        delivered = len(self._records) - length_hint(self.rest)
        return self._records[delivered - 1].offset + 1 if delivered > 0 else self._begin

    def close(self) -> int:
        """Deliver no more; return the number of records withheld."""
        rest = list(self.rest)  # at once: the reader gets nothing more
        del self._records[len(self._records) - len(rest) :]
        return len(rest)


class FetchCursor:
    """Decodes records in the reader's thread, so that they are read while in its cache.

    The owner, in another thread, sees in ``read_to`` how far the reader is, may close the cursor at
    any time, and then handles ``error``, a batch that could not be decoded.
    """

    def __init__(self, fetched: CompletedFetch) -> None:
        self.fetched = fetched
        self.error: CorruptBatch | None = None
        self._delivered = _Delivered(fetched.position, [])
        self._is_decoding = False
        self._is_closed = False

    def decode(self, limit: int) -> list[ConsumerRecord]:
        """Return up to ``limit`` records, for :meth:`deliver`; none at the end. For the reader."""
        return self._decode(lambda: self.fetched.decode(limit))

    def decode_arrow(self, columns: RecordColumns, limit: int) -> list[ArrowRecords]:
        """Decode whole batches of about ``limit`` records into ``columns``. For the reader."""

        def decode() -> list[ArrowRecords]:
            self.fetched.decode_columns(columns, limit)
            if not columns.rows:
                return []
            batch = to_arrow(columns, *self.fetched.partition)
            return [ArrowRecords(self.fetched.position - 1, batch)]

        return self._decode(decode)

    def _decode(self, decode: Callable[[], list[T]]) -> list[T]:
        was_decoding, self._is_decoding = self._is_decoding, True
        decoded: list[T] = []
        if not self._is_closed and self.error is None:
            try:
                decoded = decode()
            except CorruptBatch as error:
                self.error = error
        self._is_decoding = was_decoding or bool(decoded)
        return decoded

    def deliver(self, records: list[T]) -> Iterator[T]:
        """Yield decoded records one by one; the reader exhausts it. For the reader."""
        begin = self.read_to
        self._delivered = delivered = _Delivered(begin, records)
        self._is_decoding = False
        if self._is_closed:
            self._delivered = delivered = _Delivered(begin, [])
        return delivered.rest

    def finish(self) -> None:
        """Forget the delivered records, in the reader's thread. For the reader."""
        if not self._is_closed:  # else some records were withheld
            self._delivered = _Delivered(self.read_to, [])

    @property
    def read_to(self) -> int:
        """The offset after the last record delivered."""
        return self._delivered.end

    def close(self) -> bool:
        """Deliver no more; return whether everything decoded was delivered.

        It was not if the reader was interrupted, or is about to read it.
        """
        self._is_closed = True
        was_decoding = self._is_decoding  # later decoding is not delivered
        return not self._delivered.close() and not was_decoding


TURN = 0.005
"""Seconds for which opened cursors are read on before the consumer looks after all else."""
_POLLED = AT_ONCE
"""Bytes that a poll decodes, about: its records are in the cache when they are read."""


def records_of(
    cursors: Iterable[FetchCursor], limit: int, ends: float
) -> Iterator[Iterator[ConsumerRecord]]:
    """Yield the records of the cursors in runs of up to ``limit``, until the time ``ends``.

    The caller exhausts each run before it asks for the next.
    """
    for cursor in cursors:
        while records := cursor.decode(limit):
            yield cursor.deliver(records)
            del records  # while they are in the cache
            cursor.finish()
            if time.monotonic() >= ends:
                return


class Turn:
    """The cursors that a poll has opened, for the polls right after it. For the reader."""

    def __init__(self, cursors: Iterable[FetchCursor] = ()) -> None:
        self._cursors = list(cursors)
        self._ends = time.monotonic() + TURN

    def more(self, limit: int) -> list[PartitionRecords]:
        """Return up to ``limit`` more records; none once the turn is over."""
        if not self._cursors or time.monotonic() >= self._ends:
            return []
        return self.take(limit)

    def take(self, limit: int) -> list[PartitionRecords]:
        """Return up to ``limit`` records of the cursors, by partition."""
        cursors, self._cursors = self._cursors, []  # the turn is over if decoding fails
        polled = batches_of(cursors, limit, _POLLED)
        self._cursors = [cursor for cursor in cursors if not cursor.fetched.is_exhausted]
        return polled


def is_over(cursors: Iterable[FetchCursor], deadline: float) -> bool:
    """Whether a poll without records ends; it goes on to report damage."""
    return time.monotonic() >= deadline and all(cursor.error is None for cursor in cursors)


def batches_of(
    cursors: Iterable[FetchCursor], limit: int, enough: int = sys.maxsize
) -> list[PartitionRecords]:
    """Return the records of the cursors, up to ``limit`` and about ``enough`` bytes, by
    partition.
    """
    decoded: list[tuple[FetchCursor, list[ConsumerRecord]]] = []
    for cursor in cursors:
        records: list[ConsumerRecord] = []
        while limit > 0 and enough > 0 and (some := cursor.decode(limit)):
            limit -= len(some)
            enough -= min(AT_ONCE, cursor.fetched.nbytes)
            records = records + some if records else some
        if records:
            decoded.append((cursor, records))
    batches: list[PartitionRecords] = []
    for cursor, records in decoded:  # after all decoding: none is lost if one fails
        if delivered := list(cursor.deliver(records)):
            fetched = cursor.fetched
            batches.append(PartitionRecords(*fetched.partition, delivered, fetched.topic_id))
        cursor.finish()
    return batches
