"""A client of bytes: it sends what it is told, right or wrong."""

import socket
from struct import pack, unpack
from typing import Any, Self

from qbus.wire import API, ApiKey, Struct, decode_response, encode_request


class RawClient:
    """One connection to a broker; every wait is bounded."""

    def __init__(
        self,
        port: int,
        timeout: float = 20.0,
        receive_buffer: int = 0,
        host: str = "127.0.0.1",
        source: str = "",
    ) -> None:
        """``source``: the address it comes from; empty: the system's choice."""
        self.sock = socket.socket()
        if source:
            self.sock.bind((source, 0))
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(timeout)
        try:
            self.sock.connect((host, port))
        except OSError:
            self.sock.close()
            raise
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.sock.sendall(data)

    def send_frame(self, body: bytes) -> None:
        """Send ``body`` with its length in front."""
        self.send(pack(">i", len(body)) + body)

    def receive_frame(self) -> bytes | None:
        """The next frame; None when the broker closed the connection."""
        head = self._receive(4)
        return None if head is None else self._receive(unpack(">i", head)[0])

    def ask(self, key: ApiKey, version: int, request: Struct) -> Any:
        """Send a request and return its response."""
        self.send(frame(key, version, request, self._correlation))
        data = self.receive_frame()
        assert data is not None, "the broker closed the connection"
        correlation, response = decode_response(key, version, data)
        assert correlation == self._correlation
        self._correlation += 1
        return response

    def is_closed(self) -> bool:
        """Whether the broker closes the connection without another byte."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    def is_served(self) -> bool:
        """Whether the broker answers."""
        version = API[ApiKey.API_VERSIONS].max_version
        request = API[ApiKey.API_VERSIONS].request(
            client_software_name="raw", client_software_version="1"
        )
        response = self.ask(ApiKey.API_VERSIONS, version, request)
        return int(response.error_code) == 0

    def _receive(self, count: int) -> bytes | None:
        data = bytearray()
        while len(data) < count:
            try:
                part = self.sock.recv(count - len(data))
            except ConnectionResetError:
                return None
            if not part:
                return None
            data += part
        return bytes(data)


def frame(key: ApiKey, version: int, request: Struct, correlation: int = 0) -> bytes:
    """A whole request frame, its length in front."""
    return b"".join(
        bytes(part) for part in encode_request(key, version, correlation, "raw", request)
    )
