"""A TLS connection as a transport: the standard library's ``ssl`` on a non-blocking socket.

OpenSSL reads and writes the socket itself, a record of at most 16 KiB at a time. It holds nothing
back of what it has read beyond the record that it hands out, so the descriptor says when there is
more. Renegotiation is off; what TLS 1.3 has in its place (new keys) happens within the calls.
"""

import os
import ssl
from collections.abc import Sequence
from typing import Final

from .transport import Buffer, WantsWrite

RECORD: Final = 16 * 1024
"""The most that one record of TLS carries, in bytes."""

_CHUNK: Final = 64 * 1024
_BURST: Final = 1024 * 1024


class TlsTransport:
    """A connection whose handshake is over.

    A send that could not be completed must be tried again with the same bytes in front, which
    :class:`~qbus.broker.net.transport.WriteBuffer` does. After a burst of 1 MiB it says that it
    would block: encryption takes time, and others want to be served.
    """

    __slots__ = ("_burst", "_scratch", "_sock", "fd")

    def __init__(self, sock: ssl.SSLSocket, scratch: memoryview) -> None:
        """``scratch``: memory for what is read of files, which connections may share."""
        self._sock = sock
        self._scratch = scratch
        self._burst = 0
        self.fd = sock.fileno()

    def receive_into(self, target: memoryview) -> int:
        """Receive into a buffer; how many bytes came, 0 at the end of the stream."""
        total, room = 0, len(target)
        try:
            while True:
                count = self._sock.recv_into(target[total:] if total else target)
                total += count
                # A full record has another one behind it as a rule; the descriptor tells of others.
                if count < RECORD or total == room:
                    break
        except ssl.SSLWantReadError:
            if not total:
                raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            if not total:
                raise WantsWrite from None
        return total

    @property
    def pending(self) -> int:
        """Bytes that are decrypted and not received yet; the descriptor does not tell of them."""
        return self._sock.pending()

    def send(self, buffer: Buffer, _flags: int = 0) -> int:
        """Encrypt and send one buffer; how many bytes were taken."""
        view = memoryview(buffer)
        total, size = 0, len(view)
        self._rest_after_burst()
        try:
            while total < size and total < _BURST:
                total += self._sock.send(view[total : total + RECORD])
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            self._burst = 0
            if not total:
                raise BlockingIOError from None
        self._burst += total
        return total

    def send_many(
        self, buffers: Sequence[Buffer], _ancillary: tuple[()] = (), _flags: int = 0
    ) -> int:
        """Send several buffers as one, for small ones would be a record each."""
        size, count = 0, 0
        for buffer in buffers:
            size += len(buffer)
            count += 1
            if size >= _CHUNK:
                break
        return self.send(b"".join(buffers[:count]))

    def send_file(self, fd: int, position: int, count: int) -> int:
        """Read a chunk of a file, encrypt and send it; 0 when the file ends before."""
        self._rest_after_burst()
        chunk = self._scratch[: min(count, len(self._scratch))]
        read = os.preadv(fd, [chunk], position)
        return self.send(chunk[:read]) if read else 0

    def close(self) -> None:
        """Say that the stream ends here, if that can be said now, and close the socket."""
        try:
            self._sock.unwrap()
        except (OSError, ValueError):  # the other side's answer is not waited for
            pass
        finally:
            self._sock.close()

    def _rest_after_burst(self) -> None:
        if self._burst >= _BURST:
            self._burst = 0
            raise BlockingIOError
