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


class ColumnPool:
    """Columns whose Arrow batches nobody has any more are handed out again."""

    def __init__(self) -> None:
        self._released: deque[tuple[RecordColumns, int]] = deque(maxlen=_MANY)

    def acquire(self) -> RecordColumns:
        """Empty columns."""
        for index, (columns, _) in enumerate(self._released):
            if columns.reuse():
                del self._released[index]
                return columns
        return RecordColumns()

    def release(self, columns: RecordColumns) -> None:
        """Let columns be taken again once the Arrow batch is gone that was made of them, if any."""
        self._released.append((columns, columns.nbytes))
        while sum(nbytes for _, nbytes in self._released) > _LARGE:
            self._released.popleft()


_MUCH = 256 * 1024
"""Bytes that take longer to decode than it takes to have another thread do it."""


class ArrowDecoder:
    """Takes of each cursor what fits one Arrow batch; decoding needs no GIL most of the time.

    Made, and told to give, by whoever has ``spare``; any thread may decode between.
    """

    def __init__(self, cursors: Iterable[FetchCursor], pool: ColumnPool) -> None:
        self._pool = pool
        self._open = [(cursor, pool.acquire()) for cursor in cursors]
        self._decoded: list[tuple[FetchCursor, list[ArrowRecords]]] = []

    def decode(self, limit: int) -> None:
        """Take whole batches, until they hold about ``limit`` records."""
        for cursor, columns in self._open:
            if limit > 0:
                self._decoded.append((cursor, cursor.decode_arrow(columns, limit)))
                limit -= columns.rows

    async def decode_beside(self, limit: int) -> None:
        """As :meth:`decode`, in a thread if it is much: a loop has to receive what comes next."""
        if sum(cursor.fetched.nbytes for cursor, _ in self._open) > _MUCH:
            await asyncio.to_thread(self.decode, limit)
        else:
            self.decode(limit)

    def batches(self) -> list[Any]:
        """What was taken, of each partition one ``pyarrow.RecordBatch``."""
        delivered = [
            records.batch for cursor, some in self._decoded for records in cursor.deliver(some)
        ]
        for cursor, columns in self._open:
            cursor.finish()
            self._pool.release(columns)
        return delivered
