"""What was lent, as Arrow batches."""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

from qbus.records import RecordColumns

from .fetch_cursor import ArrowRecords, FetchCursor

_MANY = 32
"""Of each partition one is filled, one is the user's, and that before may be a moment longer."""
_LARGE = 32 * 1024 * 1024
"""Bytes of columns that are kept, together."""


class SpareColumns:
    """Columns whose Arrow batches nobody has any more are handed out again."""

    def __init__(self) -> None:
        self._lent: deque[tuple[RecordColumns, int]] = deque(maxlen=_MANY)

    def take(self) -> RecordColumns:
        """Empty columns."""
        for index, (columns, _) in enumerate(self._lent):
            if columns.reuse():
                del self._lent[index]
                return columns
        return RecordColumns()

    def lend(self, columns: RecordColumns) -> None:
        """Let columns be taken again once the Arrow batch is gone that was made of them, if any."""
        self._lent.append((columns, columns.nbytes))
        while sum(nbytes for _, nbytes in self._lent) > _LARGE:
            self._lent.popleft()


_MUCH = 256 * 1024
"""Bytes that take longer to decode than it takes to have another thread do it."""


class ArrowTaking:
    """Takes of each loan what fits one Arrow batch; decoding needs no GIL most of the time.

    Made, and told to give, by whoever has ``spare``; any thread may decode between.
    """

    def __init__(self, loans: Iterable[FetchCursor], spare: SpareColumns) -> None:
        self._spare = spare
        self._each = [(loan, spare.take()) for loan in loans]
        self._taken: list[tuple[FetchCursor, list[ArrowRecords]]] = []

    def decode(self, limit: int) -> None:
        """Take whole batches, until they hold about ``limit`` records."""
        for loan, columns in self._each:
            if limit > 0:
                self._taken.append((loan, loan.take_arrow(columns, limit)))
                limit -= columns.rows

    async def decode_beside(self, limit: int) -> None:
        """As :meth:`decode`, in a thread if it is much: a loop has to receive what comes next."""
        if sum(loan.fetched.nbytes for loan, _ in self._each) > _MUCH:
            await asyncio.to_thread(self.decode, limit)
        else:
            self.decode(limit)

    def give(self) -> list[Any]:
        """What was taken, of each partition one ``pyarrow.RecordBatch``."""
        given = [records.batch for loan, taken in self._taken for records in loan.give(taken)]
        for loan, columns in self._each:
            loan.finish()
            self._spare.lend(columns)
        return given
