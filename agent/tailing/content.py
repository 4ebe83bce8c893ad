"""The content of a file from any byte on: plain, or unpacked. All functions raise OSError."""

import errno
import os
import zlib
from typing import Protocol

_MAGIC = b"\x1f\x8b"
_GZIP = 16 + zlib.MAX_WBITS
_READ_BYTES = 64 * 1024
_PAGE_BYTES = 4096


class Content(Protocol):
    """Reads a file. ``end``: its final end; None: it may grow, or its end is not known yet."""

    end: int | None

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``offset`` on; fewer only at the end."""

    def next_data(self, offset: int) -> int | None:
        """Return where written data begin, from ``offset`` on; None: nowhere."""


class PlainContent:
    """A plain file."""

    __slots__ = ("_file", "end")

    def __init__(self, file: int) -> None:
        self.end: int | None = None
        self._file = file

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``offset`` on; fewer only at the end."""
        return os.pread(self._file, size, offset)

    def next_data(self, offset: int) -> int | None:
        """Return the end of the hole at ``offset``, if there is one (lseek(2), SEEK_DATA)."""
        try:
            return os.lseek(self._file, self._end_of_nulls(offset), os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            return offset  # a file system that knows no holes

    def _end_of_nulls(self, offset: int) -> int:
        """Return where a hole begins after NUL bytes of the same page only, else ``offset``."""
        hole = os.lseek(self._file, offset, os.SEEK_HOLE)
        if not 0 < hole - offset < _PAGE_BYTES or hole >= os.fstat(self._file).st_size:
            return offset
        return offset if os.pread(self._file, hole - offset, offset).strip(b"\0") else hole


class GzipContent:
    """The unpacked content of a gzip file (RFC 1952) of one or more members; read forward.

    Only what was read last can be read again; going back further unpacks from the start.
    """

    def __init__(self, file: int) -> None:
        self.end: int | None = None
        self._file = file
        self._packed_offset = 0
        self._member = zlib.decompressobj(_GZIP)
        self._start = 0
        self._buffer = bytearray()

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``offset`` on; fewer only at the end or if incomplete.

        Raises OSError for damaged files.
        """
        if offset < self._start:
            self._rewind()
        while self._start + len(self._buffer) < offset + size and self._unpack():
            surplus = min(offset - self._start, len(self._buffer))
            if surplus > 0:
                del self._buffer[:surplus]
                self._start += surplus
        surplus = min(offset - self._start, len(self._buffer))
        del self._buffer[:surplus]
        self._start += surplus
        return bytes(self._buffer[:size]) if self._start == offset else b""

    def next_data(self, offset: int) -> int:
        """Return ``offset``: there are no holes."""
        return offset

    def _rewind(self) -> None:
        self.end = None
        self._packed_offset = self._start = 0
        self._member = zlib.decompressobj(_GZIP)
        self._buffer.clear()

    def _unpack(self) -> bool:
        """Unpack the next part; return whether there was any."""
        packed = self._member.unconsumed_tail
        if not packed:
            packed = os.pread(self._file, _READ_BYTES, self._packed_offset)
            self._packed_offset += len(packed)
            if not packed:
                return False
        if self._member.eof:
            self._member = zlib.decompressobj(_GZIP)
        try:
            self._buffer += self._member.decompress(packed, _READ_BYTES)
        except zlib.error as error:
            raise OSError(f"damaged gzip file: {error}") from error
        if self._member.eof:
            self._packed_offset -= len(self._member.unused_data)
        if self._member.eof and not os.pread(self._file, 1, self._packed_offset):
            self.end = self._start + len(self._buffer)
        return True


def open_regular(path: str) -> int:
    """Open a file for reading without blocking, whatever its type."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def is_packed(file: int) -> bool:
    """Whether a file is empty or begins like gzip (RFC 1952)."""
    return os.pread(file, len(_MAGIC), 0) in (_MAGIC, b"")
