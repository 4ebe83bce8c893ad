"""A TLS connection as a transport: the standard library's ``ssl`` between two buffers in memory.

What comes from the socket is put into the one, what is for it is taken out of the other, a bounded
piece at a time. On the socket itself OpenSSL would read for as long as there are records that carry
nothing for us, such as new keys (RFC 8446, 4.6.3): one client could keep the event loop for itself.
"""

import os
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, cast

from .transport import Buffer

RECORD: Final = 16 * 1024
"""The most that one record of TLS carries, in bytes."""

READ: Final = 4 * (RECORD + 512)
"""Bytes that are taken from the socket at once: four records with what encryption adds.

OpenSSL keeps as much memory for a connection as came at once; one record costs a fifth more time.
"""

CHUNK: Final = 2 * RECORD
"""Bytes that are encrypted at once. OpenSSL keeps as much memory for a connection from then on."""

_BURST: Final = 1024 * 1024
_MOST_PIECES: Final = 8
_MOST_WITHOUT_DATA: Final = 128 * 1024
_MOST_UNSENT: Final = 64 * 1024


class TlsTransport:
    """A connection, from its handshake on.

    After a burst of 1 MiB it says that a send would block: encryption takes time, and others want
    to be served.
    """

    __slots__ = ("_burst", "_chunk", "_incoming", "_outgoing", "_read", "_scratch", "_sock",
                 "_tls", "_unsent", "_without_data", "fd")  # fmt: skip

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext, scratch: memoryview, chunk: memoryview
    ) -> None:
        """``sock`` does not block. ``scratch`` and ``chunk``: memory that connections share.

        The one is for READ bytes that come, the other for CHUNK bytes of a file that is sent.
        """
        self._sock = sock
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        # Into a buffer it reads a number of bytes, which its type does not tell.
        self._read = cast("Callable[[int, memoryview], int]", self._tls.read)
        self._scratch = scratch
        self._chunk = chunk
        self._unsent = b""  # encrypted
        self._burst = 0
        self._without_data = 0
        self.fd = sock.fileno()

    # Handshake

    def shake_hands(self) -> bool:
        """Go on with the handshake; whether it is over, or waits for the client.

        Raises:
            OSError: it has failed; what TLS has to say of it is sent.
            EOFError: the client has gone.
            BlockingIOError: what is for the client waits until the descriptor is writable.
        """
        self.flush()
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self.flush()
            return False
        except ssl.SSLError:
            self._say_goodbye()
            raise
        self.flush()
        return True

    def feed(self) -> int:
        """Take bytes from the socket for the handshake; the first of them, as a number.

        Raises:
            EOFError: the client has gone.
            BlockingIOError: there are none.
        """
        count = self._sock.recv_into(self._scratch)
        if not count:
            raise EOFError
        self._incoming.write(self._scratch[:count])
        return int(self._scratch[0])

    def certificate(self) -> bytes | None:
        """The client's certificate in DER, which was verified; None if it has shown none."""
        return self._tls.getpeercert(binary_form=True)

    def certificate_ends(self) -> float | None:
        """When that ends, in seconds since 1970."""
        ends = (self._tls.getpeercert() or {}).get("notAfter")
        return None if ends is None else float(ssl.cert_time_to_seconds(str(ends)))

    # Receiving

    @property
    def pending(self) -> int:
        """Bytes that are here and not received yet; the descriptor does not tell of them."""
        return self._tls.pending() + self._incoming.pending

    def receive_into(self, target: memoryview) -> int:
        """Receive into a buffer; how many bytes came, 0 at the end of the stream."""
        total, room, has_more, pieces = 0, len(target), True, 0
        while True:
            if self._incoming.pending or self._tls.pending():
                count = self._decrypt(target[total:] if total else target)
                if count == 0:
                    return total
                total += max(count, 0)
                if total == room:
                    return total
            elif not has_more:
                break
            else:
                count = self._take()
                if count <= 0:
                    break
                pieces += 1
                has_more = count == len(self._scratch) and pieces < _MOST_PIECES
        if not total:
            if count == 0:
                return 0
            raise BlockingIOError
        return total

    def _take(self) -> int:
        """Take bytes from the socket; 0 at the end of the stream, -1 if there are none now."""
        try:
            count = self._sock.recv_into(self._scratch)
        except BlockingIOError:
            return -1
        if count:
            self._without_data += count
            if self._without_data > _MOST_WITHOUT_DATA:
                raise OSError("the client sends TLS records that carry nothing")
            self._incoming.write(self._scratch[:count])
        return count

    def _decrypt(self, target: memoryview) -> int:
        """Decrypt what is there; 0 at the end of the stream, -1 if no record is whole."""
        try:
            count = self._read(len(target), target)
        except ssl.SSLWantReadError:
            count = -1
        else:
            self._without_data = 0
        if self._outgoing.pending:  # new keys are answered by new keys
            self._collect()
        return count

    # Sending

    @property
    def unsent(self) -> int:
        """Bytes that are encrypted and not sent yet: they were counted as taken."""
        return len(self._unsent)

    def send(self, buffer: Buffer, _flags: int = 0) -> int:
        """Encrypt and send one buffer; how many bytes were taken."""
        self.flush()
        if self._burst >= _BURST:
            self._burst = 0
            raise BlockingIOError
        view = memoryview(buffer)
        total, size = 0, len(view)
        while total < size and self._burst < _BURST:
            count = self._tls.write(view[total : total + CHUNK])
            total += count
            self._burst += count
            if not self._send_encrypted():
                self._burst = 0
                break
        return total

    def send_many(
        self, buffers: Sequence[Buffer], _ancillary: tuple[()] = (), _flags: int = 0
    ) -> int:
        """Send several buffers as one, for small ones would be a record each."""
        size, count = 0, 0
        for buffer in buffers:
            size += len(buffer)
            count += 1
            if size >= CHUNK:
                break
        return self.send(b"".join(buffers[:count]))

    def send_file(self, fd: int, position: int, count: int) -> int:
        """Read a chunk of a file, encrypt and send it; 0 when the file ends before."""
        self.flush()
        chunk = self._chunk[: min(count, len(self._chunk))]
        read = os.preadv(fd, [chunk], position)
        return self.send(chunk[:read]) if read else 0

    def flush(self) -> None:
        """Send what is encrypted.

        Raises:
            BlockingIOError: not all of it could be sent now.
        """
        if (self._unsent or self._outgoing.pending) and not self._send_encrypted():
            raise BlockingIOError

    def _send_encrypted(self) -> bool:
        """Send what is encrypted; whether that was all."""
        data = self._outgoing.read()
        if self._unsent:
            data = self._unsent + data
        if not data:
            return True
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        self._unsent = data[sent:] if sent < len(data) else b""
        return not self._unsent

    def _collect(self) -> None:
        """Send what TLS itself has to say, as far as that can be done now."""
        if not self._send_encrypted() and len(self._unsent) > _MOST_UNSENT:
            raise OSError("the client wants new keys, and does not read its answers")

    def close(self) -> None:
        """Say that the stream ends here, if that can be said now, and close the socket."""
        self._say_goodbye()
        self._sock.close()

    def _say_goodbye(self) -> None:
        with suppress(OSError, ValueError):  # the other side's answer is not waited for
            self._tls.unwrap()
        with suppress(OSError):
            self._send_encrypted()
