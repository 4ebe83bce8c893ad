"""Hiding the batches of aborted transactions (KIP-98).

A read_committed fetch names each aborted transaction that reaches into it: its producer and its
first offset. From there on, the producer's transactional batches are hidden, up to the control
batch that ends the transaction.
"""

from collections.abc import Sequence
from struct import Struct

from qbus.records import BatchHeader, iter_records
from qbus.wire.messages.fetch import AbortedTransaction

_MARKER = Struct(">hh")  # version, type: the key of a control record
_ABORT = 0


class AbortedProducers:
    """Tracks aborted transactions over the batches of one fetch, in order."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._producers: set[int] = set()

    def hides(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether the next batch is a marker, or part of an aborted transaction.

        Raises :class:`~qbus.records.CorruptBatch` for a malformed marker.
        """
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._producers.add(self._coming.pop().producer_id)
        if header.is_control:
            if header.producer_id in self._producers and _is_abort(batch):
                self._producers.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._producers


def _is_abort(batch: memoryview) -> bool:
    for record in iter_records(batch):
        key = record.key or b""
        return len(key) >= _MARKER.size and _MARKER.unpack_from(key)[1] == _ABORT
    return False
