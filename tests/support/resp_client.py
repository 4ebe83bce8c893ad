"""A raw client of RESP: sends words, and shows replies as Python values."""

import socket
from types import TracebackType
from typing import Any, Self

import hiredis

from qbus.broker.disque import resp


class ReplyError(Exception):
    """An error reply; its text without the dash."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReplyError) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


class RespClient:
    """One connection; bytes in replies are shown as text where they are UTF-8."""

    def __init__(self, port: int, host: str = "127.0.0.1", timeout: float = 30.0) -> None:
        self._socket = socket.create_connection((host, port), timeout)
        self._reader = hiredis.Reader(replyError=ReplyError)

    def __call__(self, *words: str | bytes | int) -> Any:
        """The reply to a command; error replies are returned."""
        self.send(*words)
        return self.receive()

    def line(self, line: str) -> Any:
        """The reply to a line, sent as it is."""
        self.send_raw(line.encode() + b"\r\n")
        return self.receive()

    def send(self, *words: str | bytes | int) -> None:
        """Send a command."""
        self.send_raw(resp.command(words))

    def send_raw(self, data: bytes) -> None:
        """Send bytes."""
        self._socket.sendall(data)

    def receive(self) -> Any:
        """The next reply. Raises ConnectionError when the server has closed the connection."""
        while (reply := self._reader.gets()) is False:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._reader.feed(data)
        return shown(reply)

    def receives_nothing(self, seconds: float) -> bool:
        """Whether no byte comes for a while."""
        before = self._socket.gettimeout()
        self._socket.settimeout(seconds)
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(before)

    @property
    def is_closed(self) -> bool:
        """Whether the server closes the connection, with nothing more to say."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def shown(reply: Any) -> Any:
    """A reply with text in place of bytes."""
    if isinstance(reply, list):
        return [shown(one) for one in reply]
    if isinstance(reply, bytes):
        try:
            return reply.decode()
        except UnicodeDecodeError:
            return reply
    return reply
