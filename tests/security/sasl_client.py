"""A client of bytes that says who it is by SASL/PLAIN, and asks much at once."""

from collections.abc import Iterator, Sequence
from struct import pack, unpack_from
from typing import Final

from tests.support.raw_client import RawClient

_HANDSHAKE: Final = 17
_AUTHENTICATE: Final = 36


class AuthenticationFailed(Exception):  # noqa: N818 - what happened
    """The broker refused who one said to be; ``error`` is its code, None if it closed."""

    def __init__(self, error: int | None, message: str) -> None:
        super().__init__(f"error {error}: {message}")
        self.error = error


class SaslClient(RawClient):
    """One connection, authenticated by name and password before it is used."""

    def __init__(self, port: int, user: str, password: str, timeout: float = 20.0) -> None:
        super().__init__(port, timeout)
        try:
            self.authenticate(user, password)
        except BaseException:
            self.sock.close()
            raise

    def authenticate(self, user: str, password: str) -> None:
        """Say who one is, or say it anew."""
        handshake = self._simple(_HANDSHAKE, 1, pack(">h", 5) + b"PLAIN")
        _refuse(unpack_from(">h", handshake, 4)[0], "SaslHandshake")
        proof = b"\0".join((b"", user.encode(), password.encode()))
        answer = self._simple(_AUTHENTICATE, 1, pack(">i", len(proof)) + proof)
        _refuse(unpack_from(">h", answer, 4)[0], repr(answer[6:]))

    def ask_all(self, frames: Sequence[bytes]) -> Iterator[bytes | None]:
        """Send frames at once; yield their answers in order, and None from where it is closed."""
        self.send(b"".join(frames))
        for _ in frames:
            answer = self.receive_frame()
            yield answer
            if answer is None:
                return

    def _simple(self, key: int, version: int, body: bytes) -> bytes:
        """A request with the first kind of header, and its answer."""
        self.send_frame(pack(">hhih", key, version, 0, -1) + body)
        answer = self.receive_frame()
        if answer is None:
            raise AuthenticationFailed(None, "the broker closed the connection")
        return answer


def _refuse(error: int, what: str) -> None:
    if error:
        raise AuthenticationFailed(error, what)
