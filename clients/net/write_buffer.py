"""The sending side of a connection: bytes to the system as they are, without copies in between.

asyncio copies what a socket does not take at once, all of it, however large. Here it stays where it
is, and asyncio is given a little at a time: for its notice that the socket takes more again.
"""

import asyncio
import os
from collections import deque
from itertools import islice

from qbus.wire import Part

_MAX_WRITE_PARTS = 1024  # IOV_MAX of every system in use
_AT_A_TIME = 64 * 1024


class WriteBuffer:
    """What is still to be sent, in order. The parts must not change until they are.

    ``is_empty`` is set while nothing waits here: the system has it all, or asyncio a copy of it.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(high=0)  # so that it tells whenever it has nothing left
        self.is_empty = asyncio.Event()
        self.is_empty.set()
        self._transport = transport
        self._fd: int = transport.get_extra_info("socket").fileno()
        self._parts: deque[memoryview] = deque()

    def send(self, parts: list[Part]) -> None:
        """Send ``parts`` after what waits; raises OSError when the socket is broken."""
        self._parts.extend(memoryview(part) for part in parts if len(part))
        self.flush()

    def flush(self) -> None:
        """Give the system what it takes; called again when it takes more. Raises OSError."""
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
        """Leave everything to asyncio, which sends it before it closes."""
        while self._parts:
            self._hand_over(len(self._parts[0]))
        self.is_empty.set()

    def clear(self) -> None:
        """Forget what was not sent."""
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
