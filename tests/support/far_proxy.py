"""A TCP proxy in front of a remote cluster, with the delays of a long distance.

Frames are delayed by the link's latency, and sometimes much longer; a link can be cut. Addresses of
brokers in responses are rewritten, so that clients stay on the link.
"""

import asyncio
import random
import struct
import threading
from collections.abc import Coroutine, Iterable, Mapping
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
"""Where responses contain addresses of brokers."""

_Asked = dict[int, tuple[int, int]]
"""The API and version of each outstanding request, by correlation id."""


class Links:
    """Links to clusters, served by a separate thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._open_links: list[Link] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for link in self._open_links:
            self.run(link.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def open(self, ports: Iterable[int], **options: Any) -> "Link":
        """Open a link to brokers on 127.0.0.1; ``options`` are those of :class:`Link`."""
        link = Link(ports, **options)
        self.run(link.listen())
        self._open_links.append(link)
        return link

    def cut(self, link: "Link") -> None:
        """Drop what is in transit, and refuse connections."""
        self.run(link.cut())

    def silence(self, link: "Link") -> None:
        """Pass nothing, silently."""
        self.run(link.silence())

    def heal(self, link: "Link") -> None:
        """Pass everything from now on."""
        self.run(link.heal())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)


class Link:
    """A link to all brokers of a cluster."""

    def __init__(
        self, ports: Iterable[int], *, delay: float, stalls: float, stall: float, seed: int
    ) -> None:
        """``delay``: seconds in each direction. A share ``stalls`` of the frames takes up to
        ``stall`` seconds more, and delays those behind it.
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
        """Accept connections."""
        for port, near in self.ports.items():
            server = await asyncio.start_server(self._acceptor(port), "127.0.0.1", near)
            self._servers.append(server)

    async def cut(self) -> None:
        """Drop all connections, and new ones."""
        self._is_cut = True
        for link in list(self._links):
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def silence(self) -> None:
        """Hold everything back, on new connections, too."""
        self._flowing.clear()

    async def heal(self) -> None:
        """Accept connections again, and pass what was held back."""
        self._is_cut = False
        self._flowing.set()

    async def close(self) -> None:
        """Close the link."""
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
        """Read frames, and compute when each arrives."""
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
        """Write each frame at its time of arrival, in order."""
        loop = asyncio.get_running_loop()
        while True:
            due, frame = await queue.get()
            await asyncio.sleep(max(due - loop.time(), 0))
            await self._flowing.wait()
            writer.write(frame)
            await writer.drain()

    def _rewrite(self, asked: _Asked, frame: bytes) -> bytes:
        """The response, with its length and this link's ports."""
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
