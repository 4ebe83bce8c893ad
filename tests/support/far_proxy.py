"""A TCP proxy before the brokers of a cluster that is far away.

What passes is held up for as long as the way takes, and now and then much longer; a way can be cut.
Brokers tell clients where the others are: that is rewritten, so that clients stay on this way.
"""

import asyncio
import random
import struct
import threading
from collections.abc import Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from qbus.wire import ApiKey, decode_response, encode_response

from .ports import free_port

_REQUEST = struct.Struct(">hhi")
_UNDER_WAY = 1000  # frames

_LISTS = {
    ApiKey.METADATA: "brokers",
    ApiKey.DESCRIBE_CLUSTER: "brokers",
    ApiKey.FIND_COORDINATOR: "coordinators",
    ApiKey.PRODUCE: "node_endpoints",
    ApiKey.FETCH: "node_endpoints",
}
"""Where answers tell of brokers."""

_Asked = dict[int, tuple[int, int]]
"""The API and version of each request without an answer, by its correlation id."""


class Ways:
    """Ways to clusters, all in a thread of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._ways: list[Way] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for way in self._ways:
            self.run(way.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def open(self, ports: Iterable[int], **options: Any) -> "Way":
        """A way to brokers on 127.0.0.1; ``options`` as those of :class:`Way`."""
        way = Way(ports, **options)
        self.run(way.listen())
        self._ways.append(way)
        return way

    def cut(self, way: "Way") -> None:
        """Drop what is on its way, and let nobody through."""
        self.run(way.cut())

    def silence(self, way: "Way") -> None:
        """Let nothing through, and nobody know."""
        self.run(way.silence())

    def mend(self, way: "Way") -> None:
        """Let everything through from now on."""
        self.run(way.mend())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Have something done in the thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)


class Way:
    """One way to all brokers of a cluster."""

    def __init__(
        self, ports: Iterable[int], *, delay: float, stalls: float, stall: float, seed: int
    ) -> None:
        """``delay``: seconds in each direction. Of the frames, a share of ``stalls`` takes up to
        ``stall`` seconds more, and holds up those behind it.
        """
        self.ports: Mapping[int, int] = {port: free_port() for port in ports}
        self._delay, self._stalls, self._stall = delay, stalls, stall
        self._random = random.Random(seed)
        self._servers: list[asyncio.Server] = []
        self._links: set[asyncio.Task[None]] = set()
        self._is_cut = False
        self._flowing = asyncio.Event()
        self._flowing.set()

    @property
    def bootstrap(self) -> str:
        """The addresses for clients."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    async def listen(self) -> None:
        """Take connections."""
        for port, near in self.ports.items():
            server = await asyncio.start_server(self._acceptor(port), "127.0.0.1", near)
            self._servers.append(server)

    async def cut(self) -> None:
        """Drop every connection, and every new one."""
        self._is_cut = True
        for link in list(self._links):
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def silence(self) -> None:
        """Hold everything up, of new connections as well."""
        self._flowing.clear()

    async def mend(self) -> None:
        """Let connections be again, and what was held up go on."""
        self._is_cut = False
        self._flowing.set()

    async def close(self) -> None:
        """End."""
        for server in self._servers:
            server.close()
        await self.cut()

    def _acceptor(self, port: int) -> Any:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            link = asyncio.current_task()
            assert link is not None
            self._links.add(link)
            try:
                if not self._is_cut:
                    await self._forward(port, reader, writer)
            except (OSError, EOFError, asyncio.CancelledError):
                pass
            finally:
                self._links.discard(link)
                writer.transport.abort()

        return accept

    async def _forward(
        self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        there, server = await asyncio.open_connection("127.0.0.1", port)
        asked: _Asked = {}
        forth: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_UNDER_WAY)
        back: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_UNDER_WAY)
        parts = [
            asyncio.create_task(part)
            for part in (
                self._take(reader, forth, lambda frame: _note(asked, frame)),
                self._deliver(forth, server),
                self._take(there, back, lambda frame: self._rewrite(asked, frame)),
                self._deliver(back, writer),
            )
        ]
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        finally:
            server.transport.abort()
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def _take(
        self, reader: asyncio.StreamReader, queue: asyncio.Queue[tuple[float, bytes]], change: Any
    ) -> None:
        """Read frames, and say when each is there."""
        loop = asyncio.get_running_loop()
        while True:
            length = int.from_bytes(await reader.readexactly(4))
            frame = change(await reader.readexactly(length))
            due = loop.time() + self._delay
            if self._random.random() < self._stalls:
                due += self._random.uniform(0, self._stall)
            await queue.put((due, frame))

    async def _deliver(
        self, queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        """Write each frame when it is there, in order."""
        loop = asyncio.get_running_loop()
        while True:
            due, frame = await queue.get()
            await asyncio.sleep(max(due - loop.time(), 0))
            await self._flowing.wait()
            writer.write(frame)
            await writer.drain()

    def _rewrite(self, asked: _Asked, frame: bytes) -> bytes:
        """The answer, with its length, telling of this way's ports."""
        key, version = asked.pop(int.from_bytes(frame[:4], signed=True))
        whole = len(frame).to_bytes(4) + frame
        if key not in _LISTS:
            return whole
        correlation, response = decode_response(ApiKey(key), version, memoryview(frame))
        nodes = list(getattr(response, _LISTS[ApiKey(key)]))
        if hasattr(response, "port"):  # of a coordinator, in old versions
            nodes.append(response)
        if not nodes:
            return whole
        for node in nodes:
            node.port = self.ports.get(node.port, node.port)
        parts = encode_response(ApiKey(key), version, correlation, response)
        return b"".join(bytes(part) for part in parts)


def _note(asked: _Asked, frame: bytes) -> bytes:
    key, version, correlation = _REQUEST.unpack_from(frame)
    asked[correlation] = key, version
    return len(frame).to_bytes(4) + frame
