"""What was lent, as Arrow batches."""

import asyncio
from collections.abc import Iterable
from typing import Any

from .fetch_cursor import ArrowRecords, FetchCursor
from .spare import SpareColumns

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
