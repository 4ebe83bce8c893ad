"""A TCP proxy that injects faults: it cuts, stalls, swallows, delays and trickles.

Each direction, ``to_server`` and ``to_client``, has its own faults, which apply to all connections,
open and new ones.
"""

import asyncio
import socket
import struct
from enum import Enum
from typing import Self
from weakref import WeakSet

from .frame_cutter import FrameCutter
from .ports import free_port

_CHUNK = 64 * 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Ending(Enum):
    """The end of one direction of a connection."""

    END = "the sender closed"
    CUT = "cut"
    RESET = "cut, and the unsent rest discarded"


class Direction:
    """One direction through the proxy, and its faults."""

    def __init__(self) -> None:
        self.passed = 0
        """Bytes forwarded so far."""
        self.swallowed = 0
        """Bytes received and never forwarded."""
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._swallows = False
        self._delay = 0.0
        self._chunk = _CHUNK
        self._cut_in: int | None = None
        self._cut = Ending.CUT

    def stall(self) -> None:
        """Forward nothing until healed; the bytes are kept."""
        self._flowing.clear()

    def swallow(self) -> None:
        """Receive everything and forward nothing, as for a host that vanished."""
        self._swallows = True

    def delay(self, seconds: float) -> None:
        """Forward everything after a delay."""
        self._delay = seconds

    def trickle(self, count: int, every: float) -> None:
        """Forward ``count`` bytes at a time, every ``every`` seconds."""
        self._chunk, self._delay = count, every

    def cut_after(self, count: int, *, reset: bool = False) -> None:
        """Cut the connection that carries the ``count``-th byte from now on, within a frame."""
        self._cut_in, self._cut = count, Ending.RESET if reset else Ending.CUT

    @property
    def will_cut(self) -> bool:
        """Whether a requested cut is still to come."""
        return self._cut_in is not None

    def heal(self) -> None:
        """Forward everything from now on; swallowed bytes are lost."""
        self._swallows = False
        self._delay, self._chunk, self._cut_in = 0.0, _CHUNK, None
        self._flowing.set()

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Ending:
        """Forward the bytes of one connection until it ends or is cut."""
        frames = FrameCutter()
        while data := await reader.read(self._chunk):
            if self._delay:
                await asyncio.sleep(self._delay)
            await self._flowing.wait()
            if self._swallows:
                self.swallowed += len(data)
                continue
            allowed = frames.advance(data, self._cut_in)
            writer.write(data[:allowed])
            await writer.drain()
            self.passed += allowed
            if self._cut_in is not None:
                self._cut_in = max(self._cut_in - allowed, 0)
                if allowed < len(data) or (self._cut_in == 0 and frames.is_inside):
                    self._cut_in = None
                    return self._cut
        return Ending.END


class FaultProxy:
    """Listens on 127.0.0.1 and connects to ``target_port`` there for every client."""

    def __init__(self, target_port: int, port: int | None = None) -> None:
        self.port = port or free_port()
        self.to_server = Direction()
        self.to_client = Direction()
        self.accepted = 0
        """Connections accepted so far."""
        self.cuts = 0
        """Connections cut so far."""
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._links: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, ...]] = {}
        self._writers: WeakSet[asyncio.StreamWriter] = WeakSet()

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._links)

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.refuse()
        for link in list(self._links):
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)
        for writer in list(self._writers):  # some may still wait for what nobody reads
            writer.transport.abort()
        await asyncio.sleep(0)

    async def listen(self) -> None:
        """Accept connections."""
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def refuse(self) -> None:
        """Refuse new connections; open ones stay open."""
        if self._server is not None:
            self._server.close()
            self._server = None
            await asyncio.sleep(0)

    def cut(self, *, reset: bool = False) -> int:
        """Cut every connection now; return their number."""
        for writers in self._links.values():
            self._sever(writers, reset=reset)
        return len(self._links)

    def heal(self) -> None:
        """Forward everything from now on."""
        self.to_server.heal()
        self.to_client.heal()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.current_task()
        assert link is not None
        self.accepted += 1
        self._links[link] = (writer,)
        self._writers.add(writer)
        try:
            there, server = await asyncio.open_connection("127.0.0.1", self._target_port)
            self._links[link] = (writer, server)
            self._writers.add(server)
            await self._forward(reader, writer, there, server)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._sever(self._links.pop(link), reset=False)

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        server: asyncio.StreamWriter,
    ) -> None:
        """Forward both directions until one ends."""
        pumps = [
            asyncio.create_task(self.to_server.pump(reader, server)),
            asyncio.create_task(self.to_client.pump(there, writer)),
        ]
        try:
            done, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            endings = {pump.result() for pump in done if not pump.exception()}
            if endings & {Ending.CUT, Ending.RESET}:
                self.cuts += 1
                self._sever((writer, server), reset=Ending.RESET in endings)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    @staticmethod
    def _sever(writers: tuple[asyncio.StreamWriter, ...], *, reset: bool) -> None:
        for writer in writers:
            if reset:
                sock: socket.socket = writer.get_extra_info("socket")
                if sock.fileno() >= 0:  # or it was closed, and its link is about to notice
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                writer.transport.abort()
            else:
                writer.close()
