"""Records of one or more files on their way to one partition."""

from typing import Any

from ..tailing.chunk import Chunk
from ..tailing.source import Labels
from .limits import RECORD_OVERHEAD


class PendingBatch:
    """Chunks of files, sent together.

    size: bytes of the files that they are made of. memory: about how many they take here.
    """

    __slots__ = ("_headers", "_keys", "chunks", "error", "is_settled", "memory", "size", "values")

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.values: list[bytes] = []
        self._keys: list[bytes | None] | None = None
        self._headers: list[Any] | None = None
        self.size = 0
        self.memory = 0
        self.error: Exception | None = None
        self.is_settled = False

    def __len__(self) -> int:
        return len(self.values)

    @property
    def keys(self) -> list[bytes | None] | None:
        """A key for each value; None where none has one."""
        return self._keys

    @property
    def headers(self) -> list[Any] | None:
        """Headers for each value; None where none has any."""
        return self._headers

    def add(self, chunk: Chunk, labels: Labels | None) -> None:
        """Put records in."""
        before, count = len(self.values), len(chunk.values)
        self.values += chunk.values
        keys = headers = None
        if labels is not None:
            assert chunk.offsets is not None
            offsets = [chunk.start + offset for offset in chunk.offsets]
            keys, headers = labels.keys(offsets), labels.headers(offsets)
        self._keys = _extended(self._keys, keys, before, count)
        self._headers = _extended(self._headers, headers, before, count)
        self.chunks.append(chunk._replace(values=(), offsets=None))
        self.size += chunk.end - chunk.start
        self.memory += chunk.end - chunk.start + count * RECORD_OVERHEAD

    def forget(self) -> None:
        """Let go of the records: they are delivered."""
        self.values = []
        self._keys = self._headers = None


def _extended(
    column: list[Any] | None, items: list[Any] | None, before: int, count: int
) -> list[Any] | None:
    """``column``, for ``before`` records, with ``items`` for ``count`` more; None: for none."""
    if column is None and items is None:
        return None
    return (column if column is not None else [None] * before) + (items or [None] * count)
