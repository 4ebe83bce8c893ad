"""Writing to a spool."""

import os
import secrets
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from qbus.records import read_header, set_base_offset
from qbus.service.files import sync_directory, write_all
from qbus.service.lock import DirectoryLock

from .layout import LOCK, UNFINISHED, QueueName, segment_name

SEGMENT_BYTES = 64 * 1024 * 1024
"""Size from which a queue continues in another file."""


class SpoolWriter:
    """One process's part of a spool. Thread-safe; blocks for the disk; created at the first
    batch.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """``directory``: the spool's, created if it is missing."""
        self._spool = Path(directory)
        self._directory: Path | None = None
        self._held: DirectoryLock | None = None
        self._segments: dict[QueueName, _Segment] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def check(self) -> None:
        """Raise OSError unless something can be kept there now; leaves no trace."""
        nearest = next(path for path in (self._spool, *self._spool.parents) if path.exists())
        Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=nearest)).rmdir()

    def append(self, topic: str, partition: int | None, batch: bytes | bytearray) -> None:
        """Append a record batch; it is on stable storage on return.

        ``partition`` None: whoever delivers it chooses. Raises OSError, with nothing kept then;
        :class:`~qbus.errors.ApiError` for an invalid topic name, and
        :class:`~qbus.records.CorruptBatch` for what is no batch.
        """
        queue = QueueName(topic, partition)
        with self._lock:
            if self._is_closed:
                raise ValueError("the spool is closed for writing")
            segment = self._segments.get(queue)
            if segment is None or segment.size >= SEGMENT_BYTES:
                segment = self._next(queue, segment)
            segment.append(bytearray(batch))

    def close(self) -> None:
        """Close the files; the batches stay until they are delivered."""
        with self._lock:
            self._is_closed = True
            for segment in self._segments.values():
                segment.close()
            self._segments.clear()
            if self._held is not None:
                self._held.release()
                self._held = None

    def _next(self, queue: QueueName, last: "_Segment | None") -> "_Segment":
        directory = self._own_directory() / queue.to_path()
        if not directory.exists():
            directory.mkdir()
            sync_directory(directory.parent)
        segment = _Segment(directory, last.end_offset if last else 0)
        if last:
            last.close()
        self._segments[queue] = segment
        return segment

    def _own_directory(self) -> Path:
        if self._directory is None:
            self._spool.mkdir(parents=True, exist_ok=True)
            name = f"{time.time_ns():020d}-{os.getpid()}-{secrets.token_hex(4)}"
            made = self._spool / f"{UNFINISHED}{name}"
            made.mkdir()
            self._held = DirectoryLock(made / LOCK)
            self._held.acquire()
            self._directory = made.rename(self._spool / name)
            sync_directory(self._spool)
        return self._directory


class _Segment:
    """The file that a queue is written to."""

    def __init__(self, directory: Path, first_offset: int) -> None:
        self.end_offset = first_offset
        self.size = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(directory / segment_name(first_offset), flags, 0o644)
        sync_directory(directory)

    def append(self, batch: bytearray) -> None:
        header = read_header(batch)
        set_base_offset(batch, self.end_offset, leader_epoch=0)
        try:
            write_all(self._file, self.size, batch)
            os.fdatasync(self._file)
        except OSError:
            os.ftruncate(self._file, self.size)
            raise
        self.size += len(batch)
        self.end_offset += header.last_offset_delta + 1

    def close(self) -> None:
        os.close(self._file)
