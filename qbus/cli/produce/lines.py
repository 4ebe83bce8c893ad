"""Splits a byte stream into lines at newlines, and at nothing else.

Carriage returns, NULs and empty lines are data; the last line may lack its newline.
"""

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

CHUNK = 1024 * 1024

#: No broker accepts a longer line; reading on would only fill the memory.
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
        """Return the lines that ``chunk`` completes; raises LineTooLongError."""
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
    """Yield the content of a file, pipe or terminal without blocking the loop.

    Pipes and terminals are read when they are readable, because a thread that blocks in a read
    cannot be cancelled. Files cannot be polled and are always readable.
    """
    try:
        while True:
            await _readable(descriptor)
            chunk = os.read(descriptor, CHUNK)
            if not chunk:
                return
            yield chunk
    except PermissionError:  # epoll does not accept files
        for chunk in _read_file(descriptor):
            yield chunk
            await asyncio.sleep(0)


async def _readable(descriptor: int) -> None:
    """Return when a read would not block.

    The reader is removed after one notification, so that none remains for bytes already read.
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
