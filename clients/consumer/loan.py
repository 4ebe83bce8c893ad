"""What was fetched of one partition, lent to whoever iterates over its records."""

from collections.abc import Iterable, Iterator
from operator import length_hint

from qbus.records import CorruptBatch

from ..types import ConsumerRecord
from .fetched import Fetched


class Loan:
    """Its borrower decodes, in a thread of its own perhaps, and uses what is still in its cache.

    Its lender is told by ``read_to`` how far it is, may cut it short at any time, and acts on
    ``error``, what could not be decoded, when it takes it back.
    """

    def __init__(self, fetched: Fetched) -> None:
        self.fetched = fetched
        self.error: CorruptBatch | None = None
        self._begin = fetched.position
        # One attribute, which changes at once: the records that were taken, and their rest.
        self._given: tuple[list[ConsumerRecord], Iterator[ConsumerRecord]] = [], iter(())
        self._is_taking = False
        self._is_cut = False

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Some records, up to ``limit``, which are then given by :meth:`give`; none: it is over.

        For the borrower.
        """
        if self._is_cut or self.error is not None:
            return []
        self._is_taking = True
        records: list[ConsumerRecord] = []
        try:
            records = self.fetched.take_some(limit)
        except CorruptBatch as error:
            self.error = error
        self._is_taking = bool(records)
        return records

    def give(self, records: list[ConsumerRecord]) -> Iterator[ConsumerRecord]:
        """What was taken, one by one. For the borrower, who reads it to the end."""
        # The list's own iterator: there is none that is quicker, and it knows how far it is.
        rest = iter(records)
        self._given = records, rest
        self._is_taking = False
        if self._is_cut:
            self.cut()
        return rest

    def finish(self) -> None:
        """All of it was given. For the borrower, in whose thread it is forgotten."""
        self._begin = self.fetched.position
        self._given = [], iter(())

    @property
    def read_to(self) -> int:
        """The offset after the last record that was given. For the lender."""
        records, rest = self._given
        given = len(records) - length_hint(rest)
        return records[given - 1].offset + 1 if given > 0 else self._begin

    @property
    def is_used_up(self) -> bool:
        """Whether all that was taken was given; not if the borrower was interrupted meanwhile."""
        return not self._is_taking and not length_hint(self._given[1])

    def cut(self) -> None:
        """Give no more."""
        self._is_cut = True
        self._given[0].clear()


def records_of(loans: Iterable[Loan], limit: int) -> Iterator[Iterator[ConsumerRecord]]:
    """What the loans give, one after the other: up to ``limit`` records.

    Each is to be read to its end before the next is asked for.
    """
    for loan in loans:
        while limit > 0 and (records := loan.take(limit)):
            limit -= len(records)
            yield loan.give(records)
            del records  # while they are in the cache
            loan.finish()
