"""The sending side of a connection: bytes go to the system without copies in between.

asyncio copies whatever a socket does not take at once. This buffer keeps such data in place and
gives asyncio a little of it at a time, to be told when the socket takes more.
"""

import asyncio
import os
from collections import deque
from itertools import islice
from typing import ClassVar

from qbus.wire import Part

_MAX_WRITE_PARTS = 1024  # IOV_MAX of every system in use
_AT_A_TIME = 64 * 1024


class WriteBuffer:
    """The data still to be sent, in order. Its parts must not change until they are sent.

    ``is_empty`` is set while nothing waits here: the system has all of it, or asyncio a copy.
    """

    _high: ClassVar[int] = 0  # asyncio reports whenever it has sent everything

    def __init__(self, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(high=self._high, low=0)
        self.is_empty = asyncio.Event()
        self.is_empty.set()
        self._transport = transport
        self._fd: int = transport.get_extra_info("socket").fileno()
        self._parts: deque[memoryview] = deque()

    def send(self, parts: list[Part]) -> None:
        """Send ``parts`` after what waits; raise OSError when the socket is broken."""
        self._parts.extend(memoryview(part) for part in parts if len(part))
        self.flush()

    def pause(self) -> None:
        """Note that asyncio has as much as it should keep."""

    def resume(self) -> None:
        """Write on: asyncio has sent what it had. Raises OSError when the socket is broken."""
        self.flush()

    def flush(self) -> None:
        """Write as much as the system takes. Called again when it takes more. Raises OSError."""
        while self._parts and not self._transport.get_write_buffer_size():
            try:
                written = os.writev(self._fd, list(islice(self._parts, _MAX_WRITE_PARTS)))
            except (BlockingIOError, InterruptedError):
                self._hand_over(_AT_A_TIME)
            else:
                self._sent(written)
        if self._parts:
            self.is_empty.clear()
        else:
            self.is_empty.set()

    def hand_over(self) -> None:
        """Give everything to asyncio, which sends it before it closes."""
        while self._parts:
            self._hand_over(len(self._parts[0]))
        self.is_empty.set()

    def clear(self) -> None:
        """Drop what was not sent."""
        self._parts.clear()
        self.is_empty.set()

    def _hand_over(self, size: int) -> None:
        self._transport.write(self._parts[0][:size])
        self._sent(min(size, len(self._parts[0])))

    def _sent(self, count: int) -> None:
        while count:
            part = self._parts.popleft()
            if count < len(part):
                self._parts.appendleft(part[count:])
                return
            count -= len(part)


_TLS_AT_A_TIME = 128 * 1024
_TLS_JOINED = 16 * 1024
"""Bytes of one record of TLS: smaller parts are encrypted together."""


class TlsWriteBuffer(WriteBuffer):
    """A buffer whose data asyncio encrypts, a few records of TLS at a time."""

    _high = 256 * 1024

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._is_paused = False

    def pause(self) -> None:
        """Write nothing more until :meth:`resume`."""
        self._is_paused = True

    def resume(self) -> None:
        """Write on."""
        self._is_paused = False
        self.flush()

    def flush(self) -> None:
        """Write as much as asyncio should keep."""
        while self._parts and not self._is_paused:
            self._transport.write(self._next())
        if self._parts:
            self.is_empty.clear()
        else:
            self.is_empty.set()

    def _next(self) -> bytes | memoryview:
        """Take what is written next: a piece of a large part, or some small ones together."""
        first = self._parts[0]
        if len(first) >= _TLS_JOINED:
            self._sent(min(len(first), _TLS_AT_A_TIME))
            return first[:_TLS_AT_A_TIME]
        small = []
        size = 0
        while self._parts and size + len(self._parts[0]) <= _TLS_AT_A_TIME:
            part = self._parts.popleft()
            small.append(part)
            size += len(part)
            if len(part) >= _TLS_JOINED:
                break
        return b"".join(small)


def write_buffer_of(transport: asyncio.Transport) -> WriteBuffer:
    """Return the buffer for a transport: over TLS it encrypts."""
    if transport.get_extra_info("ssl_object") is not None:
        return TlsWriteBuffer(transport)
    return WriteBuffer(transport)
