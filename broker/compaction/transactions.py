"""Which batches belong to aborted transactions, and which markers have nothing left to end.

The rules are Kafka's (KIP-98): the data of an aborted transaction go at once. The marker that ends
a transaction stays as long as a batch of its is there, so that no reader takes aborted records for
committed ones, or the other way round. Only a later compaction, which finds none of the
transaction's batches any more, gives the marker a delete horizon, and one after that removes it.
"""

from collections import deque
from collections.abc import Iterable
from typing import Protocol

from qbus.records import BatchHeader
from qbus.records.control import read_marker


class Aborted(Protocol):
    """An aborted transaction: its producer, its first record, and the marker at its end."""

    @property
    def producer_id(self) -> int:
        """The producer's id."""

    @property
    def first_offset(self) -> int:
        """The offset of its first record."""

    @property
    def last_offset(self) -> int:
        """The offset of its marker."""


class Transactions:
    """Follows the transactional batches of a log, in their order."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        """``aborted``: all aborted transactions that reach into the part that is read."""
        self._coming = deque(sorted(aborted, key=_first_offset))
        self._aborted: dict[int, bool] = {}  # by producer: whether a batch of it was seen
        self._others: set[int] = set()  # producers with batches that are not aborted
        self.aborted_at: set[int] = set()
        """The offsets of the markers of aborted transactions of which batches were seen."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the next batch, which is transactional, is of an aborted transaction."""
        self._begin_up_to(header.base_offset)
        if header.producer_id in self._aborted:
            self._aborted[header.producer_id] = True
            return True
        self._others.add(header.producer_id)
        return False

    def has_data(self, header: BatchHeader, *, committed: bool) -> bool:
        """Whether batches of the transaction came before the marker that ends it, which is next."""
        self._begin_up_to(header.last_offset)
        if committed:
            found = header.producer_id in self._others
            self._others.discard(header.producer_id)
            return found
        found = self._aborted.pop(header.producer_id, False)
        if found:
            self.aborted_at.add(header.last_offset)
        return found

    def follow(self, header: BatchHeader, batch: bytes) -> None:
        """Take in the next batch, whatever it is. Raises CorruptBatch."""
        if header.is_marker:
            marker = read_marker(batch)
            if marker is not None:
                self.has_data(header, committed=marker.is_commit)
        elif header.in_transaction:
            self.is_aborted(header)

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            self._aborted.setdefault(self._coming.popleft().producer_id, False)


def _first_offset(aborted: Aborted) -> int:
    return aborted.first_offset
