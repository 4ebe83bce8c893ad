"""What was fetched of one partition, lent to whoever reads its records."""

import time
from collections.abc import Callable, Iterable, Iterator
from operator import length_hint
from typing import Any, NamedTuple, Protocol, TypeVar

from qbus.records import CorruptBatch, RecordColumns, to_arrow

from ..types import ConsumerRecord, PartitionRecords
from .completed_fetch import CompletedFetch


class Taken(Protocol):
    """A record, or some; ``offset`` is that of the last."""

    @property
    def offset(self) -> int: ...


class ArrowRecords(NamedTuple):
    """Records as a ``pyarrow.RecordBatch``, and what is before the position behind them."""

    offset: int
    batch: Any


T = TypeVar("T", bound=Taken)


class _Given:
    """Records on their way to the borrower, who had everything up to ``begin`` before."""

    def __init__(self, begin: int, records: list[Any]) -> None:
        # The list's own iterator: there is none that is quicker, and it knows how far it is.
        self.rest = iter(records)
        self._begin = begin
        self._records = records

    @property
    def end(self) -> int:
        """The offset after the last one that the borrower has."""
        given = len(self._records) - length_hint(self.rest)
        return self._records[given - 1].offset + 1 if given > 0 else self._begin

    def cut(self) -> int:
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
        self._given = _Given(fetched.position, [])
        self._is_taking = False
        self._is_cut = False

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Some records, up to ``limit``, which are then given by :meth:`give`; none: it is over.

        For the borrower.
        """
        return self._take(lambda: self.fetched.take(limit))

    def take_arrow(self, columns: RecordColumns, limit: int) -> list[ArrowRecords]:
        """Whole batches of about ``limit`` records, decoded to ``columns``; as :meth:`take`."""

        def take() -> list[ArrowRecords]:
            self.fetched.take_columns(columns, limit)
            if not columns.rows:
                return []
            batch = to_arrow(columns, *self.fetched.partition)
            return [ArrowRecords(self.fetched.position - 1, batch)]

        return self._take(take)

    def _take(self, take: Callable[[], list[T]]) -> list[T]:
        was_taking, self._is_taking = self._is_taking, True
        taken: list[T] = []
        if not self._is_cut and self.error is None:
            try:
                taken = take()
            except CorruptBatch as error:
                self.error = error
        self._is_taking = was_taking or bool(taken)
        return taken

    def give(self, records: list[T]) -> Iterator[T]:
        """What was taken, one by one. For the borrower, who reads it to the end."""
        begin = self.read_to
        self._given = given = _Given(begin, records)
        self._is_taking = False
        if self._is_cut:
            self._given = given = _Given(begin, [])
        return given.rest

    def finish(self) -> None:
        """All of it was given. For the borrower, in whose thread it is forgotten."""
        if not self._is_cut:  # or it ended before all was given
            self._given = _Given(self.read_to, [])

    @property
    def read_to(self) -> int:
        """The offset after the last record that was given."""
        return self._given.end

    def cut(self) -> bool:
        """Give no more; whether all that was taken was given.

        It was not if the borrower was interrupted meanwhile, or is still about to take it.
        """
        self._is_cut = True
        was_taking = self._is_taking  # what it takes from now on it is not given
        return not self._given.cut() and not was_taking


def records_of(loans: Iterable[FetchCursor], limit: int) -> Iterator[Iterator[ConsumerRecord]]:
    """What the loans give, one after the other: up to ``limit`` records.

    Each is to be read to its end before the next is asked for.
    """
    for loan in loans:
        while limit > 0 and (records := loan.take(limit)):
            limit -= len(records)
            yield loan.give(records)
            del records  # while they are in the cache
            loan.finish()


def is_over(loans: Iterable[FetchCursor], deadline: float) -> bool:
    """Whether a poll that was given nothing tries no more: what was damaged is yet to be told."""
    return time.monotonic() >= deadline and all(loan.error is None for loan in loans)


def batches_of(loans: Iterable[FetchCursor], limit: int) -> list[PartitionRecords]:
    """What the loans give, at once: up to ``limit`` records, partition by partition."""
    taken: list[tuple[FetchCursor, list[ConsumerRecord]]] = []
    for loan in loans:
        records: list[ConsumerRecord] = []
        while limit > 0 and (some := loan.take(limit)):
            limit -= len(some)
            records += some
        if records:
            taken.append((loan, records))
    batches: list[PartitionRecords] = []
    for loan, records in taken:  # nobody has any, should one of them fail
        if given := list(loan.give(records)):
            batches.append(PartitionRecords(*loan.fetched.partition, given))
        loan.finish()
    return batches
