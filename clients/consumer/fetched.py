"""What one fetch brought from one partition, handed out bit by bit."""

from collections.abc import Iterator
from itertools import dropwhile, islice

from qbus.records import BatchHeader, CorruptBatch, Record, check_crc, iter_batches, iter_records


class Fetched:
    """Whole batches, decoded only as records are taken.

    ``position`` is the offset to go on at after what was taken.
    """

    def __init__(self, position: int, data: memoryview, *, check_crcs: bool) -> None:
        self.position = position
        self.is_exhausted = False
        self._batches = iter_batches(data, partial_tail=True)
        self._check_crcs = check_crcs
        self._header: BatchHeader | None = None
        self._records: Iterator[Record] = iter(())
        self._error: CorruptBatch | None = None

    def take(self, limit: int) -> list[Record]:
        """Up to ``limit`` records; none when there are no more.

        Raises :class:`~qbus.records.CorruptBatch` once all records before the damage are taken.
        """
        taken: list[Record] = []
        try:
            while len(taken) < limit and not self.is_exhausted:
                self._take_from_batch(taken, limit - len(taken))
        except CorruptBatch as error:
            self._error = error
        if self._error is not None and not taken:
            self.is_exhausted = True
            raise self._error
        return taken

    def _take_from_batch(self, taken: list[Record], limit: int) -> None:
        if self._error is not None:
            raise self._error
        if self._header is None and not self._next_batch():
            self.is_exhausted = True
            return
        assert self._header is not None
        before = len(taken)
        try:
            taken.extend(islice(self._records, limit))
        finally:  # what precedes the damage is taken
            if len(taken) > before:
                self.position = taken[-1].offset + 1
        if len(taken) - before < limit:
            self.position = max(self.position, self._header.last_offset + 1)
            self._header = None

    def _next_batch(self) -> bool:
        for header, batch in self._batches:
            if self._check_crcs:
                check_crc(batch, header)
            if header.is_control or header.last_offset < self.position:
                self.position = max(self.position, header.last_offset + 1)
                continue
            self._header = header
            # A batch may begin before the offset that was asked for.
            self._records = dropwhile(self._is_before, iter_records(batch))
            return True
        return False

    def _is_before(self, record: Record) -> bool:
        return record.offset < self.position
