"""Memory for columns that was used before: fresh memory takes as long to touch as to fill."""

from collections import deque

from qbus.records import RecordColumns

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
