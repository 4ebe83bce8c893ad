"""A journal: lines on disk that survive a crash at any point.

Each line is ``<CRC-32 of the payload, 8 hexadecimal digits> <payload>``. Lines are appended with
one write; a crash leaves whole lines and at most one torn end, which the next start cuts off. A
journal that has grown is replaced atomically by one that says the same in fewer lines.
"""

import os
import zlib
from collections.abc import Iterable
from pathlib import Path

from qbus.service.files import rename_over, sync_directory, write_all
from qbus.service.lock import DirectoryLock


class Journal:
    """An open journal; one process at a time has it open. All methods raise OSError."""

    def __init__(self, path: Path) -> None:
        """Raises :class:`~qbus.service.lock.DirectoryInUse` as well."""
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = DirectoryLock(path.with_suffix(".lock"), "another agent")
        self._lock.acquire()
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            self._lock.release()
            raise
        self.size = 0
        """Bytes of whole lines."""

    def read(self) -> list[bytes]:
        """Return all payloads; cut off whatever follows the last whole line."""
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
        """Add lines, all or none; until :meth:`sync`, a crash of the system may lose them."""
        data = b"".join(map(_line, payloads))
        try:
            write_all(self._file, self.size, data)
        except OSError:
            os.ftruncate(self._file, self.size)
            raise
        self.size += len(data)

    def sync(self) -> None:
        """Return when all lines are on stable storage; blocks."""
        os.fdatasync(self._file)

    def replace(self, payloads: Iterable[bytes]) -> None:
        """Replace all lines; a crash leaves the old ones or the new ones."""
        data = b"".join(map(_line, payloads))
        file = rename_over(self._path, data)
        os.dup2(file, self._file, inheritable=False)  # a thread may be about to sync the old one
        os.close(file)
        self.size = len(data)
        sync_directory(self._path.parent)

    def close(self) -> None:
        """Close the file and release the lock."""
        os.close(self._file)
        self._lock.release()


def _line(payload: bytes) -> bytes:
    return b"%08x %b\n" % (zlib.crc32(payload), payload)


def _payload(line: bytes) -> bytes | None:
    payload = line[9:]
    return payload if line[:9] == b"%08x " % zlib.crc32(payload) else None
