"""Fetched records as Arrow batches."""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

from qbus.records import RecordColumns

from .fetch_cursor import ArrowRecords, FetchCursor

_MANY = 32
"""Columns kept for reuse. Of each partition one is filled, one is with the user, one about to be
freed.
"""
_LARGE = 32 * 1024 * 1024
"""Bytes of columns kept for reuse, together."""


class ColumnPool:
    """Reuses columns whose Arrow batches nobody holds any more: fresh memory is slow to touch."""

    def __init__(self) -> None:
        self._released: deque[tuple[RecordColumns, int]] = deque(maxlen=_MANY)

    def acquire(self) -> RecordColumns:
        """Return empty columns."""
        for index, (columns, _) in enumerate(self._released):
            if columns.reuse():
                del self._released[index]
                return columns
        return RecordColumns()

    def release(self, columns: RecordColumns) -> None:
        """Allow reuse once the Arrow batch made of ``columns``, if any, is gone."""
        self._released.append((columns, columns.nbytes))
        while sum(nbytes for _, nbytes in self._released) > _LARGE:
            self._released.popleft()


_MUCH = 256 * 1024
"""Fetched bytes from which decoding in another thread pays off."""


class ArrowDecoder:
    """Decodes of each cursor what fits one Arrow batch, mostly without the GIL.

    The thread that owns ``pool`` creates it and calls :meth:`batches`; any thread may decode.
    """

    def __init__(self, cursors: Iterable[FetchCursor], pool: ColumnPool) -> None:
        self._pool = pool
        self._open = [(cursor, pool.acquire()) for cursor in cursors]
        self._decoded: list[tuple[FetchCursor, list[ArrowRecords]]] = []

    def decode(self, limit: int) -> None:
        """Decode whole batches, until they hold about ``limit`` records."""
        for cursor, columns in self._open:
            if limit > 0:
                self._decoded.append((cursor, cursor.decode_arrow(columns, limit)))
                limit -= columns.rows

    async def decode_beside(self, limit: int) -> None:
        """Decode as :meth:`decode` does, in a thread if it is much: the loop goes on receiving."""
        if sum(cursor.fetched.nbytes for cursor, _ in self._open) > _MUCH:
            await asyncio.to_thread(self.decode, limit)
        else:
            self.decode(limit)

    def batches(self) -> list[Any]:
        """Return one ``pyarrow.RecordBatch`` for each partition with decoded records."""
        delivered = [
            records.batch for cursor, some in self._decoded for records in cursor.deliver(some)
        ]
        for cursor, columns in self._open:
            cursor.finish()
            self._pool.release(columns)
        return delivered
