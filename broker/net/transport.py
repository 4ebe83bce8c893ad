"""Bytes to and from one client: the transport, and the buffer of what is still to be sent.

A connection reads and writes through a :class:`Transport`, and knows no socket. What it sends are
bytes and file regions, in order, without copies. Measured on two cores: a small region goes out
fastest read and sent together with its header, a large one by ``sendfile`` straight on the
non-blocking socket (asyncio's own ``loop.sendfile`` reaches a quarter of that).
"""

import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

Buffer = bytes | bytearray | memoryview
_BUFFERS: Final = (bytes, bytearray, memoryview)

SENDFILE_FROM: Final = 48 * 1024
"""Regions of at least so many bytes are sent by ``sendfile``."""

_MAX_BUFFERS: Final = 64
_SENDFILE_MAX: Final = 1 << 30
_ENDED: Final = "a file region ended before its length"


class Region(Protocol):
    """A range of a file that is sent as it lies there."""

    @property
    def position(self) -> int:
        """Where the region starts in the file, in bytes."""

    def __len__(self) -> int: ...

    def fileno(self) -> int:
        """The file's descriptor."""

    def read(self) -> bytes:
        """The region's bytes."""

    def close(self) -> None:
        """Let go of the file."""


Part = Buffer | Region


class Transport(Protocol):
    """A non-blocking byte stream to one client.

    Every function does what can be done now, and raises BlockingIOError when that is nothing, and
    OSError when the stream is broken. Functions are attributes, so that a plain transport hands out
    those of its socket without a call in between.

    An encrypted transport has to keep three promises besides: what a receive leaves behind in its
    own buffers it tells of as ``pending``, and leaves nothing there when it returns fewer bytes
    than there was room for, since the connection waits for the descriptor then; its handshake is
    over (:mod:`.handshakes`); and it ignores flags. What a send has taken and not sent it tells of
    as ``unsent``, and sends with ``flush``.
    """

    @property
    def fd(self) -> int:
        """The descriptor that the event loop watches."""

    @property
    def pending(self) -> int:
        """Bytes that can be received without the descriptor telling of them."""

    @property
    def unsent(self) -> int:
        """Bytes that a send has taken, and that are not sent yet."""

    def flush(self) -> None:
        """Send those; raises BlockingIOError while some are left."""

    @property
    def receive_into(self) -> Callable[[memoryview], int]:
        """Receive into a buffer; how many bytes came, 0 at the end of the stream."""

    @property
    def send(self) -> Callable[[Buffer, int], int]:
        """Send one buffer, with the flags of ``socket.send``; how many bytes were taken."""

    @property
    def send_many(self) -> Callable[[Sequence[Buffer], tuple[()], int], int]:
        """Send several buffers as one, as ``socket.sendmsg``; how many bytes were taken."""

    def send_file(self, fd: int, position: int, count: int) -> int:
        """Send bytes of a file; how many were taken, 0 when the file ends before."""

    def close(self) -> None:
        """Close the stream."""


class PlainTransport:
    """A TCP connection as it is."""

    __slots__ = ("_sock", "fd", "pending", "receive_into", "send", "send_many", "unsent")

    def __init__(self, sock: socket.socket) -> None:
        """``sock`` is connected and does not block."""
        self._sock = sock
        self.pending = 0
        self.unsent = 0
        self.fd = sock.fileno()
        self.receive_into = sock.recv_into
        self.send = sock.send
        self.send_many = sock.sendmsg

    def flush(self) -> None:
        """Nothing is held back."""

    def send_file(self, fd: int, position: int, count: int) -> int:
        """Send bytes of a file without reading them into the process."""
        return os.sendfile(self.fd, fd, position, count)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()


class WriteBuffer:
    """What still has to be sent to one client."""

    __slots__ = ("_parts", "_sent", "pending")

    def __init__(self) -> None:
        self._parts: deque[Part] = deque()
        self._sent = 0  # of the first part, when that is a region
        self.pending = 0  # bytes not sent yet, in memory or in files

    def add(self, parts: Sequence[Part]) -> None:
        """Queue one response's parts."""
        for part in parts:
            size = len(part)
            if size:
                self._parts.append(part)
                self.pending += size
            elif not isinstance(part, _BUFFERS):
                part.close()

    def send(self, transport: Transport) -> bool:
        """Send what the transport takes now; whether everything is sent.

        Raises:
            OSError: the connection is broken, or a file could not be read.
        """
        try:
            while self._parts:
                first = self._parts[0]
                if isinstance(first, _BUFFERS) or len(first) < SENDFILE_FROM:
                    self._send_buffers(transport)
                else:
                    self._send_region(transport, first)
            if transport.unsent:
                transport.flush()
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Drop everything and let go of the files."""
        for part in self._parts:
            if not isinstance(part, _BUFFERS):
                part.close()
        self._parts.clear()
        self.pending = 0

    def _send_buffers(self, transport: Transport) -> None:
        parts = self._parts
        count = 0
        for index in range(min(len(parts), _MAX_BUFFERS)):
            part = parts[index]
            if not isinstance(part, _BUFFERS):
                if len(part) >= SENDFILE_FROM:
                    break
                parts[index] = _read(part)
            count += 1
        # MSG_MORE lets a header leave in one packet with the start of its file region.
        flags = socket.MSG_MORE if count < len(parts) else 0
        if count == 1:
            sent = transport.send(self._buffer_at(0), flags)
        else:
            buffers = [self._buffer_at(index) for index in range(count)]
            sent = transport.send_many(buffers, (), flags)
        self.pending -= sent
        self._drop(sent)

    def _drop(self, sent: int) -> None:
        parts = self._parts
        while sent:
            first = self._buffer_at(0)
            if len(first) > sent:
                parts[0] = memoryview(first)[sent:]
                return
            sent -= len(first)
            parts.popleft()

    def _send_region(self, transport: Transport, region: Region) -> None:
        size = len(region)
        count = min(size - self._sent, _SENDFILE_MAX)
        sent = transport.send_file(region.fileno(), region.position + self._sent, count)
        if sent == 0:
            raise OSError(_ENDED)
        self._sent += sent
        self.pending -= sent
        if self._sent == size:
            self._sent = 0
            self._parts.popleft()
            region.close()

    def _buffer_at(self, index: int) -> Buffer:
        part = self._parts[index]
        assert isinstance(part, _BUFFERS)
        return part


def _read(region: Region) -> bytes:
    data = region.read()
    if len(data) != len(region):
        raise OSError(_ENDED)
    region.close()
    return data
