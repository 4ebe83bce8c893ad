"""Lines on disk that survive a crash at any point.

A file of lines, each ``<CRC-32 of what follows, 8 hexadecimal digits> <payload>``. Lines are added
with one write; a crash leaves whole lines and at most one torn end, which is cut off at the next
start. When the file has grown it is replaced by one that says the same in fewer lines: temporary
file, fsync, rename, fsync of the directory.
"""

import fcntl
import os
import zlib
from collections.abc import Iterable
from pathlib import Path

from qbus.errors import QbusError


class PositionsLocked(QbusError):  # noqa: N818 - what happened
    """Another agent uses the directory."""


class Journal:
    """An open journal, of one process at a time. Everything raises OSError."""

    def __init__(self, path: Path) -> None:
        """Raises :class:`PositionsLocked` as well."""
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(
            path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
        )
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise PositionsLocked(f"another agent uses {path.parent}") from None
        self.is_new = not path.exists()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.size = 0
        """Bytes of whole lines."""

    def read(self) -> list[bytes]:
        """All payloads; whatever is behind the last whole line is cut off."""
        content = self._path.read_bytes()
        payloads = []
        end = 0
        while (newline := content.find(b"\n", end)) >= 0:
            payload = _payload(content[end:newline])
            if payload is None:
                break
            payloads.append(payload)
            end = newline + 1
        if end < len(content):
            os.ftruncate(self._file, end)
        self.size = end
        return payloads

    def append(self, payloads: Iterable[bytes]) -> None:
        """Add lines, all or none; a crash of the system may lose them until :meth:`sync`."""
        data = b"".join(map(_line, payloads))
        try:
            _write(self._file, data, self.size)
        except OSError:
            os.ftruncate(self._file, self.size)
            raise
        self.size += len(data)

    def sync(self) -> None:
        """Return when all lines are on stable storage. For a thread."""
        os.fdatasync(self._file)

    def replace(self, payloads: Iterable[bytes]) -> None:
        """Let these be all the lines; a crash leaves the old ones or these."""
        data = b"".join(map(_line, payloads))
        temporary = self._path.with_suffix(".tmp")
        file = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            _write(file, data, 0)
            os.fsync(file)
            temporary.replace(self._path)
        except OSError:
            os.close(file)
            raise
        os.dup2(file, self._file, inheritable=False)  # a thread may be about to sync the old one
        os.close(file)
        self.size = len(data)
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def close(self) -> None:
        """Let go of the file, and let others have it."""
        os.close(self._file)
        os.close(self._lock)


def _line(payload: bytes) -> bytes:
    return b"%08x %b\n" % (zlib.crc32(payload), payload)


def _payload(line: bytes) -> bytes | None:
    payload = line[9:]
    return payload if line[:9] == b"%08x " % zlib.crc32(payload) else None


def _write(file: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, at)
        at += written
        view = view[written:]
