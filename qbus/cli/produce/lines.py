"""Lines of a byte stream, exactly: a line is what stands before a newline, whatever its bytes.

A carriage return, a NUL or an empty line is data; a last line without a newline counts.
"""

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

CHUNK = 1024 * 1024

#: A line that no broker would take: reading on would only fill the memory.
MAX_LINE = 100 * 1024 * 1024


class LineTooLongError(ValueError):
    """A line is longer than `MAX_LINE`; the message says which."""


class LineSplitter:
    """Cuts chunks of bytes into lines; keeps the unfinished last one for the next chunk."""

    def __init__(self) -> None:
        self._unfinished: list[bytes] = []
        self._unfinished_size = 0
        self.count = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that ``chunk`` finishes; LineTooLongError when one never ends."""
        lines = chunk.split(b"\n")
        if len(lines) == 1:
            self._keep(chunk)
            return []
        if self._unfinished:
            lines[0] = b"".join([*self._unfinished, lines[0]])
            self._unfinished.clear()
        self._unfinished_size = 0
        self._keep(lines.pop())
        self.count += len(lines)
        return lines

    def finish(self) -> list[bytes]:
        """Return the last line if it had no newline."""
        last = b"".join(self._unfinished)
        self._unfinished.clear()
        self.count += bool(last)
        return [last] if last else []

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._unfinished.append(piece)
        self._unfinished_size += len(piece)
        if self._unfinished_size > MAX_LINE:
            raise LineTooLongError(f"line {self.count + 1} is longer than {MAX_LINE} bytes")


@dataclass(frozen=True, slots=True)
class Source:
    """An open file, pipe or terminal; ``size`` is None unless it is a regular file."""

    descriptor: int
    size: int | None
    is_terminal: bool


@contextmanager
def opened(path: str) -> Iterator[Source]:
    """Open ``path``, or stdin for ``-``; OSError when that is impossible."""
    descriptor = sys.stdin.fileno() if path == "-" else os.open(path, os.O_RDONLY)
    try:
        status = os.fstat(descriptor)
        size = status.st_size if stat.S_ISREG(status.st_mode) else None
        yield Source(descriptor, size, os.isatty(descriptor))
    finally:
        if path != "-":
            os.close(descriptor)


async def read_lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Yield the lines of a file, pipe or terminal as they arrive, many at a time."""
    splitter = LineSplitter()
    async for chunk in read_chunks(descriptor):
        if lines := splitter.feed(chunk):
            yield lines
    if lines := splitter.finish():
        yield lines


async def read_chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Yield what can be read without blocking the loop.

    A thread that blocks in a read of a terminal cannot be cancelled, so pipes and terminals are
    read when they are readable; files always are, and cannot be polled.
    """
    try:
        while True:
            await _readable(descriptor)
            chunk = os.read(descriptor, CHUNK)
            if not chunk:
                return
            yield chunk
    except PermissionError:  # of epoll, which takes no files
        for chunk in _read_file(descriptor):
            yield chunk
            await asyncio.sleep(0)


async def _readable(descriptor: int) -> None:
    """Return when a read would not block.

    The reader is there for one notice only: a second one, of the same bytes, would outlive them.
    """
    loop = asyncio.get_running_loop()
    noticed: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _notice, noticed)
    try:
        await noticed
    finally:
        loop.remove_reader(descriptor)


def _notice(noticed: "asyncio.Future[None]") -> None:
    if not noticed.done():
        noticed.set_result(None)


def _read_file(descriptor: int) -> Iterator[bytes]:
    while chunk := os.read(descriptor, CHUNK):
        yield chunk
