"""A long way to a server: ``python -m perf.long_way PORT SERVER_PORT DELAY``.

A TCP proxy on 127.0.0.1 that holds every byte back for ``DELAY`` seconds, each way, however many
are on their way. It stands in for distance where the kernel has no netem; there is no bound on
bandwidth but what it costs to copy.
"""

import asyncio
import sys
from collections import deque

_ON_THE_WAY = 64 * 1024 * 1024
"""Bytes of one connection and direction: a window as large as that of a tuned system."""


class End(asyncio.Protocol):
    """One end of a connection: what comes in here goes out at the ``other`` one, later."""

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._loop = asyncio.get_running_loop()
        self._line: deque[tuple[float, bytes]] = deque()
        self._held = 0
        self._timer: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport | None = None
        self.other: End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self.other is not None:
            self.other.go_on()

    def data_received(self, data: bytes) -> None:
        self._line.append((self._loop.time() + self._delay, data))
        self._held += len(data)
        if self._held > _ON_THE_WAY and self.transport is not None:
            self.transport.pause_reading()
        self.go_on()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()

    def go_on(self) -> None:
        """Pass on what has been held back for long enough."""
        if self._timer is None and self._line:
            self._timer = self._loop.call_at(self._line[0][0], self._pass_on)

    def _pass_on(self) -> None:
        self._timer = None
        other = self.other.transport if self.other is not None else None
        if other is None:
            return  # until it is connected
        due = []
        while self._line and self._line[0][0] <= self._loop.time():
            due.append(self._line.popleft()[1])
        self._held -= sum(map(len, due))
        if not other.is_closing():
            other.writelines(due)
        if self._held <= _ON_THE_WAY and self.transport is not None:
            self.transport.resume_reading()
        self.go_on()


async def serve(port: int, server_port: int, delay: float) -> None:
    """Forward connections to ``port`` until cancelled."""
    loop = asyncio.get_running_loop()
    dialling: set[asyncio.Task[object]] = set()

    def accept() -> End:
        near, far = End(delay), End(delay)
        near.other, far.other = far, near
        task: asyncio.Task[object] = loop.create_task(
            loop.create_connection(lambda: far, "127.0.0.1", server_port)
        )
        dialling.add(task)
        task.add_done_callback(dialling.discard)
        return near

    server = await loop.create_server(accept, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
