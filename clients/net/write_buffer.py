"""The sending side of a connection: bytes go to the system without copies in between.

asyncio copies whatever a socket does not take at once. This buffer keeps such data in place and
gives asyncio a little of it at a time, to be told when the socket takes more.
"""

import asyncio
import os
from collections import deque
from itertools import islice

from qbus.wire import Part

_MAX_WRITE_PARTS = 1024  # IOV_MAX of every system in use
_AT_A_TIME = 64 * 1024


class WriteBuffer:
    """The data still to be sent, in order. Its parts must not change until they are sent.

    ``is_empty`` is set while nothing waits here: the system has all of it, or asyncio a copy.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(high=0)  # reports whenever it is empty
        self.is_empty = asyncio.Event()
        self.is_empty.set()
        self._transport = transport
        self._fd: int = transport.get_extra_info("socket").fileno()
        self._parts: deque[memoryview] = deque()

    def send(self, parts: list[Part]) -> None:
        """Send ``parts`` after what waits; raise OSError when the socket is broken."""
        self._parts.extend(memoryview(part) for part in parts if len(part))
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
