"""A client's TCP stream, as far as a connection needs one of asyncio's transports.

What asyncio has in its place serves every protocol there is; this one serves ours, compiled: it
receives at once what there is, sends at once what can be, and keeps the rest.
"""

import asyncio
import logging
import socket
from typing import Any, Final, Protocol

_log = logging.getLogger(__name__)

MOST_CLOSING_S: Final = 60.0
"""How long a client may take what is unsent when its stream is closed."""

_RECEIVED_AT_ONCE: Final = 64 * 1024  # bytes


class Receiver(Protocol):
    """What the stream is for, as :class:`asyncio.Protocol` has it."""

    def connection_made(self, transport: Any) -> None:
        """It is there."""

    def data_received(self, data: bytes) -> None:
        """The client has sent something."""

    def connection_lost(self, error: Exception | None) -> None:
        """It is gone."""

    def pause_writing(self) -> None:
        """More is unsent than should be."""

    def resume_writing(self) -> None:
        """All is sent."""


class PlainStream:
    """A connected socket, for the event loop.

    It is an :class:`asyncio.Transport` but for the base class: one with that cannot be compiled.
    """

    __slots__ = (
        "_address",
        "_error",
        "_fd",
        "_is_closing",
        "_is_full",
        "_is_lost",
        "_is_reading",
        "_loop",
        "_most_unsent",
        "_receiver",
        "_sock",
        "_unsent",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        address: Any,
        receiver: Receiver,
    ) -> None:
        """``sock`` is connected to ``address``, and does not block."""
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._address = address
        self._receiver = receiver
        self._unsent = bytearray()
        self._most_unsent = 64 * 1024
        self._error: Exception | None = None
        self._is_reading = False
        self._is_full = False
        self._is_closing = False
        self._is_lost = False

    def start(self) -> None:
        """Tell the receiver of it, and receive."""
        self._receiver.connection_made(self)
        self.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The client's address (``peername``); nothing else is known."""
        return self._address if name == "peername" else default

    # Receiving

    def pause_reading(self) -> None:
        """Receive nothing."""
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        """Receive again."""
        if not self._is_reading and not self._is_closing:
            self._is_reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def _on_readable(self) -> None:
        try:
            data = self._sock.recv(_RECEIVED_AT_ONCE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(error)
            return
        if not data:
            self.close()
            return
        try:
            self._receiver.data_received(data)
        except Exception as error:  # noqa: BLE001 - a defect must not leave the client waiting
            _log.exception("what the client at %s sent cannot be handled", self._address)
            self._fail(error)

    # Sending

    def set_write_buffer_limits(self, high: int) -> None:
        """Tell the receiver when more than ``high`` bytes are unsent."""
        self._most_unsent = high

    def get_write_buffer_size(self) -> int:
        """How many bytes are unsent."""
        return len(self._unsent)

    def write(self, data: bytes) -> None:
        """Send, now or as soon as it can be."""
        if self._is_lost or self._error is not None:
            return
        if not self._unsent:
            try:
                sent = self._sock.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._fail(error)
                return
            if sent == len(data):
                return
            data = data[sent:]
            self._loop.add_writer(self._fd, self._on_writable)
        self._unsent += data
        if not self._is_full and len(self._unsent) > self._most_unsent:
            self._is_full = True
            self._receiver.pause_writing()

    def _on_writable(self) -> None:
        try:
            sent = self._sock.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(error)
            return
        del self._unsent[:sent]
        if self._is_full and len(self._unsent) <= self._most_unsent // 4:
            self._is_full = False
            self._receiver.resume_writing()
        if not self._unsent:
            self._loop.remove_writer(self._fd)
            if self._is_closing:
                self._lose()

    # The end

    def close(self) -> None:
        """Receive nothing more, and close once all is sent, or was not taken for too long."""
        if not self._is_closing:
            self._is_closing = True
            self.pause_reading()
            if self._unsent:
                self._loop.call_later(MOST_CLOSING_S, self.abort)
            else:
                self._lose()

    def abort(self) -> None:
        """Close at once."""
        self._is_closing = True
        self.pause_reading()
        if self._unsent:
            self._unsent.clear()
            self._loop.remove_writer(self._fd)
        self._lose()

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
            self.abort()

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._loop.call_soon(self._tell_lost)

    def _tell_lost(self) -> None:
        try:
            self._receiver.connection_lost(self._error)
        finally:
            self._sock.close()
