"""What was fetched of one partition, lent to whoever reads its records."""

import time
from collections.abc import Callable, Iterable, Iterator
from operator import length_hint
from typing import Any, NamedTuple, Protocol, TypeVar

from qbus.records import CorruptBatch, RecordColumns, to_arrow

from ..types import ConsumerRecord, PartitionRecords
from .completed_fetch import CompletedFetch


class Positioned(Protocol):
    """A record, or some; ``offset`` is that of the last."""

    @property
    def offset(self) -> int: ...


class ArrowRecords(NamedTuple):
    """Records as a ``pyarrow.RecordBatch``, and what is before the position behind them."""

    offset: int
    batch: Any


T = TypeVar("T", bound=Positioned)


class _Delivered:
    """Records on their way to the borrower, who had everything up to ``begin`` before."""

    def __init__(self, begin: int, records: list[Any]) -> None:
        # The list's own iterator: there is none that is quicker, and it knows how far it is.
        self.rest = iter(records)
        self._begin = begin
        self._records = records

    @property
    def end(self) -> int:
        """The offset after the last one that the borrower has."""
        delivered = len(self._records) - length_hint(self.rest)
        return self._records[delivered - 1].offset + 1 if delivered > 0 else self._begin

    def close(self) -> int:
        """Give no more; how many would have been."""
        rest = list(self.rest)  # all at once: what the borrower does not have by now it never gets
        del self._records[len(self._records) - len(rest) :]
        return len(rest)


class FetchCursor:
    """Its borrower decodes, in a thread of its own perhaps, and uses what is still in its cache.

    Its lender is told by ``read_to`` how far it is, may cut it short at any time, and acts on
    ``error``, what could not be decoded, when it takes it back.
    """

    def __init__(self, fetched: CompletedFetch) -> None:
        self.fetched = fetched
        self.error: CorruptBatch | None = None
        self._delivered = _Delivered(fetched.position, [])
        self._is_decoding = False
        self._is_closed = False

    def decode(self, limit: int) -> list[ConsumerRecord]:
        """Some records, up to ``limit``, which :meth:`deliver` then hands out; none: it is over.

        For the borrower.
        """
        return self._decode(lambda: self.fetched.decode(limit))

    def decode_arrow(self, columns: RecordColumns, limit: int) -> list[ArrowRecords]:
        """Whole batches of about ``limit`` records, decoded to ``columns``; as :meth:`take`."""

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
        """What was decoded, one by one. For the borrower, who reads it to the end."""
        begin = self.read_to
        self._delivered = delivered = _Delivered(begin, records)
        self._is_decoding = False
        if self._is_closed:
            self._delivered = delivered = _Delivered(begin, [])
        return delivered.rest

    def finish(self) -> None:
        """All of it was delivered. For the borrower, in whose thread it is forgotten."""
        if not self._is_closed:  # or it ended before all was delivered
            self._delivered = _Delivered(self.read_to, [])

    @property
    def read_to(self) -> int:
        """The offset after the last record that was delivered."""
        return self._delivered.end

    def close(self) -> bool:
        """Give no more; whether all that was decoded was delivered.

        It was not if the borrower was interrupted meanwhile, or is still about to take it.
        """
        self._is_closed = True
        was_decoding = self._is_decoding  # what it takes from now on it is not delivered
        return not self._delivered.close() and not was_decoding


def records_of(cursors: Iterable[FetchCursor], limit: int) -> Iterator[Iterator[ConsumerRecord]]:
    """What the cursors give, one after the other: up to ``limit`` records.

    Each is to be read to its end before the next is asked for.
    """
    for cursor in cursors:
        while limit > 0 and (records := cursor.decode(limit)):
            limit -= len(records)
            yield cursor.deliver(records)
            del records  # while they are in the cache
            cursor.finish()


def is_over(cursors: Iterable[FetchCursor], deadline: float) -> bool:
    """Whether a poll that got nothing stops; it goes on to report damage."""
    return time.monotonic() >= deadline and all(cursor.error is None for cursor in cursors)


def batches_of(cursors: Iterable[FetchCursor], limit: int) -> list[PartitionRecords]:
    """What the cursors give, at once: up to ``limit`` records, partition by partition."""
    decoded: list[tuple[FetchCursor, list[ConsumerRecord]]] = []
    for cursor in cursors:
        records: list[ConsumerRecord] = []
        while limit > 0 and (some := cursor.decode(limit)):
            limit -= len(some)
            records += some
        if records:
            decoded.append((cursor, records))
    batches: list[PartitionRecords] = []
    for cursor, records in decoded:  # nobody has any, should one of them fail
        if delivered := list(cursor.deliver(records)):
            batches.append(PartitionRecords(*cursor.fetched.partition, delivered))
        cursor.finish()
    return batches
