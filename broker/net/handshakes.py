"""TLS handshakes that are not over: bounded in number and time, and a few at a time.

A handshake costs a signature, hundreds of times what a request costs, and nobody has proved
anything yet who asks for one. So all that is ready for its next step waits in a queue, and each
turn of the event loop works on it for a moment only: clients that are connected are served in
between, however many come. Where there are too many, the one that has waited longest is given up.
"""

import asyncio
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import Final

from qbus.security.tls import ServerTls

from .tls_transport import CHUNK, READ, TlsTransport

_log = logging.getLogger(__name__)

_TURN_S: Final = 0.002
_PIECES: Final = 4
_HANDSHAKE_RECORD: Final = 0x16
_NOT_TLS: Final = (
    "the client does not speak TLS, which this listener does: it needs"
    " security.protocol=SSL or SASL_SSL"
)

_REASONS: Final = {
    "CERTIFICATE_VERIFY_FAILED": "the client's certificate is refused",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate, and needs one",
    "UNSUPPORTED_PROTOCOL": "the client speaks no version of TLS that is enabled",
    "NO_SHARED_CIPHER": "the client speaks no cipher suite that is enabled",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the authority of this broker's"
    " certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client refuses this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client refuses this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client holds this broker's certificate for expired",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the client speaks no version of TLS that is enabled",
}


class Handshakes:
    """The handshakes of one listener. ``done``, ``failed`` and ``given_up`` count how they ended.

    Not thread-safe; of a running event loop.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tls: ServerTls,
        *,
        timeout_s: float,
        most: int,
        on_done: Callable[[TlsTransport, str], None],
        on_failed: Callable[[str, str | None], None],
    ) -> None:
        """Call ``on_done`` with the connection and the client's address, or ``on_failed``.

        ``on_failed`` gets the address and what went wrong, None if that is nothing to tell of:
        the client has gone, or has sent nothing. ``most``: unfinished ones at a time.
        """
        self._scratch = memoryview(bytearray(READ))
        self._chunk = memoryview(bytearray(CHUNK))
        self._loop = loop
        self._tls = tls
        self._timeout_s = timeout_s
        self._most = most
        self._on_done = on_done
        self._on_failed = on_failed
        self._open: dict[int, _Handshake] = {}  # by descriptor, the oldest first
        self._ready: deque[_Handshake] = deque()
        self._is_scheduled = False
        self.done = 0
        self.failed = 0
        self.given_up = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def failed_reloads(self) -> int:
        """How often a changed certificate could not be read."""
        return self._tls.failed_reloads

    def start(self, sock: socket.socket, host: str) -> None:
        """Take a connection on; nothing is done for it until its client sends something."""
        if len(self._open) >= self._most:
            oldest = next(iter(self._open.values()))
            self.given_up += 1
            self._fail(oldest, f"more than {self._most} handshakes are unfinished")
        handshake = _Handshake(sock, host, self._loop.time())
        self._open[sock.fileno()] = handshake
        self._wait(handshake)

    def sweep(self, now: float) -> None:
        """Give up those that had their time; call it regularly."""
        while self._open:
            oldest = next(iter(self._open.values()))
            if now - oldest.since <= self._timeout_s:
                return
            self.given_up += 1
            told = f"its TLS handshake was not over after {self._timeout_s:g} s"
            self._fail(oldest, told if oldest.has_spoken else None)

    def close(self) -> None:
        """Give up all of them."""
        for handshake in list(self._open.values()):
            self._fail(handshake, None)

    def _wait(self, handshake: "_Handshake") -> None:
        if handshake.transport is not None and handshake.transport.unsent:
            self._loop.add_writer(handshake.fd, self._on_ready, handshake)
        else:
            self._loop.add_reader(handshake.fd, self._on_ready, handshake)

    def _on_ready(self, handshake: "_Handshake") -> None:
        self._unwatch(handshake)
        self._ready.append(handshake)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _unwatch(self, handshake: "_Handshake") -> None:
        self._loop.remove_reader(handshake.fd)
        self._loop.remove_writer(handshake.fd)

    def _turn(self) -> None:
        """Work on those that are ready, for a moment; at least on one."""
        until = perf_counter() + _TURN_S
        try:
            while self._ready:
                handshake = self._ready.popleft()
                if not handshake.is_over:
                    self._step(handshake)
                if perf_counter() >= until:
                    break
        finally:  # a defect in one must not keep all others waiting
            self._is_scheduled = bool(self._ready)
            if self._is_scheduled:
                self._loop.call_soon(self._turn)

    def _step(self, handshake: "_Handshake") -> None:
        try:
            is_done = self._go_on(handshake)
        except BlockingIOError:
            self._wait(handshake)
        except (EOFError, ConnectionError, ssl.SSLEOFError):  # it has gone
            self._fail(handshake, None)
        except ssl.SSLError as error:
            self._fail(handshake, f"TLS handshake failed: {reason_of(error)}")
        except (OSError, ValueError) as error:
            self._fail(handshake, str(error))
        else:
            if is_done:
                self._finish(handshake)
            else:
                self._wait(handshake)

    def _go_on(self, handshake: "_Handshake") -> bool:
        """Take what the client has sent, a few records at most; whether the handshake is over.

        Raises:
            BlockingIOError, EOFError, OSError: as the transport does.
        """
        transport = handshake.transport
        if transport is None:
            transport = TlsTransport(
                handshake.sock, self._tls.context(), self._scratch, self._chunk
            )
            handshake.transport = transport
        for _ in range(_PIECES):
            if not transport.unsent:
                first = transport.feed()
                if not handshake.has_spoken and first != _HANDSHAKE_RECORD:
                    raise OSError(_NOT_TLS)
                handshake.has_spoken = True
            if transport.shake_hands():
                return True
        return False

    def _finish(self, handshake: "_Handshake") -> None:
        handshake.is_over = True
        del self._open[handshake.fd]
        self.done += 1
        assert handshake.transport is not None
        # Nothing is answered to the client's last message, and its first request may wait for the
        # acknowledgement of that (RFC 896), which the system would delay by 40 ms.
        with suppress(OSError):
            handshake.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        self._on_done(handshake.transport, handshake.host)

    def _fail(self, handshake: "_Handshake", why: str | None) -> None:
        handshake.is_over = True
        self.failed += 1
        self._unwatch(handshake)
        del self._open[handshake.fd]
        handshake.sock.close()
        self._on_failed(handshake.host, why)


class _Handshake:
    """One of them."""

    __slots__ = ("fd", "has_spoken", "host", "is_over", "since", "sock", "transport")

    def __init__(self, sock: socket.socket, host: str, since: float) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.host = host
        self.since = since
        self.transport: TlsTransport | None = None
        self.has_spoken = False
        self.is_over = False


def reason_of(error: ssl.SSLError) -> str:
    """Return in words why TLS failed."""
    reason = error.reason or "the connection is broken"
    told = _REASONS.get(reason)
    if told is None:
        return reason.lower().replace("_", " ")
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{told}: {error.verify_message}"
    return told
