"""SASL: the client's side of each mechanism, and the messages that a server reads.

PLAIN is RFC 4616, SCRAM RFC 5802 and 7677, OAUTHBEARER RFC 7628 as Kafka has it (KIP-255).
"""

import json
import re
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from qbus.errors import AuthenticationError, ConfigError

from .scram import ScramClient, ScramMechanism

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = ScramMechanism.SHA_256.mechanism
SCRAM_SHA_512: Final = ScramMechanism.SHA_512.mechanism
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
"""The mechanisms that brokers and clients know."""

MAX_TOKEN_BYTES: Final = 32 * 1024
MAX_PLAIN_BYTES: Final = 4 * 1024

_SEPARATOR: Final = "\x01"
_KEY: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]*")


class SaslClient(Protocol):
    """The client's side of one exchange.

    Send ``first()``; give each answer of the server to ``answer`` and send what it returns, until
    it returns None. The exchange has succeeded if the server said so *and* ``is_complete``.
    """

    mechanism: str

    @property
    def is_complete(self) -> bool:
        """Whether the client, too, is content with the server."""

    def first(self) -> bytes:
        """The first message."""

    def answer(self, challenge: bytes) -> bytes | None:
        """Answer the server; None: there is nothing more to say.

        SCRAM hashes the password here, which takes milliseconds.

        Raises:
            AuthenticationError: the server refuses, or is not the right one.
        """


class SaslSettings(Protocol):
    """What of a client's settings concerns SASL (:class:`qbus.security.client.ClientSecurity`)."""

    @property
    def sasl_mechanism(self) -> str | None:
        """The mechanism's name."""

    @property
    def sasl_username(self) -> str | None:
        """Who the client is."""

    @property
    def sasl_password(self) -> str | None:
        """Its password."""

    @property
    def oauth_token(self) -> Callable[[], object] | None:
        """Returns a token for OAUTHBEARER."""


def make_sasl_client(security: SaslSettings) -> SaslClient:
    """The client's side of a new exchange, by its settings, whose ``oauth_token`` is called.

    Raises:
        ConfigError: the mechanism is unknown, or what it needs is missing.
    """
    mechanism = security.sasl_mechanism
    if mechanism not in MECHANISMS:
        raise ConfigError(f"sasl.mechanism={mechanism}: expected one of {', '.join(MECHANISMS)}")
    if mechanism == OAUTHBEARER:
        token = None if security.oauth_token is None else security.oauth_token()
        if not isinstance(token, str):
            raise ConfigError("sasl.mechanism=OAUTHBEARER: expected a token")
        return OAuthBearerClient(token)
    username, password = security.sasl_username, security.sasl_password
    if not username or password is None:
        raise ConfigError(
            f"sasl.mechanism={mechanism}: expected sasl.username and sasl.password with it"
        )
    scram = ScramMechanism.of(mechanism)
    if scram is not None:
        return ScramClient(scram, username, password)
    return PlainClient(username, password)


class PlainClient:
    """PLAIN: name and password as they are, so for encrypted connections."""

    mechanism = PLAIN

    def __init__(self, username: str, password: str) -> None:
        if "\0" in username or "\0" in password:
            raise ConfigError("sasl.username, sasl.password: expected no zero bytes")
        self.is_complete = False
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        """The only message."""
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:  # noqa: ARG002 - the protocol's signature
        """The server has nothing to say but that it succeeded."""
        self.is_complete = True
        return None


class OAuthBearerClient:
    """OAUTHBEARER: a token that somebody else issued."""

    mechanism = OAUTHBEARER

    def __init__(self, token: str) -> None:
        """Raise AuthenticationError if the token has characters that no token has."""
        if not token or not _VALUE.fullmatch(token):
            raise AuthenticationError("the token for OAUTHBEARER is empty or not printable")
        self.is_complete = False
        self._token = token
        self._refusal: str | None = None

    def first(self) -> bytes:
        """The initial response."""
        return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        """Nothing after success; after the server's error one dummy byte (RFC 7628, 3.2.3).

        Raises:
            AuthenticationError: the server says more after its error.
        """
        if self._refusal is not None:
            raise AuthenticationError(f"the server refuses the token: {self._refusal}")
        if not challenge:
            self.is_complete = True
            return None
        self._refusal = _status(challenge)
        return _SEPARATOR.encode()

    @property
    def refusal(self) -> str | None:
        """What the server says against the token."""
        return self._refusal


def _status(challenge: bytes) -> str:
    try:
        status = json.loads(challenge[:MAX_PLAIN_BYTES])["status"]
    except (ValueError, KeyError, TypeError):
        return "without a reason"
    return repr(str(status)[:200])


class PlainMessage(NamedTuple):
    """What a client of PLAIN says."""

    username: str
    password: str

    def __repr__(self) -> str:
        return f"PlainMessage(username={self.username!r}, ...)"


def parse_plain(message: bytes) -> PlainMessage:
    """Read a client's only message of PLAIN.

    Raises:
        AuthenticationError: it is malformed, or the client wants to act as somebody else.
    """
    if len(message) > MAX_PLAIN_BYTES:
        raise AuthenticationError(f"a PLAIN message of {len(message)} bytes")
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise AuthenticationError("a PLAIN message that is not UTF-8") from None
    if len(parts) != 3:
        raise AuthenticationError("a PLAIN message without its three parts")
    authzid, username, password = parts
    if not username or not password:
        raise AuthenticationError("a PLAIN message with an empty user name or password")
    if authzid not in {"", username}:
        raise AuthenticationError("an authorization id that is not the user name")
    return PlainMessage(username, password)


class BearerMessage(NamedTuple):
    """What a client of OAUTHBEARER says."""

    token: str
    authzid: str

    def __repr__(self) -> str:
        return "BearerMessage(...)"


def parse_bearer(message: bytes) -> BearerMessage:
    """Read a client's initial response of OAUTHBEARER. SASL extensions (KIP-342) are ignored.

    Raises:
        AuthenticationError: it is malformed or too large.
    """
    if len(message) > MAX_TOKEN_BYTES:
        raise AuthenticationError(f"an OAUTHBEARER message of {len(message)} bytes")
    if not message.isascii():
        raise AuthenticationError("an OAUTHBEARER message that is not ASCII")
    header, *pairs = message.decode().split(_SEPARATOR)
    if len(pairs) < 3 or pairs[-2:] != ["", ""]:
        raise AuthenticationError("an OAUTHBEARER message without its end")
    authzid = _authzid(header)
    values = {}
    for pair in pairs[:-2]:
        name, equals, value = pair.partition("=")
        if not (_KEY.fullmatch(name) and equals and _VALUE.fullmatch(value)) or name in values:
            raise AuthenticationError("an OAUTHBEARER message with a malformed pair")
        values[name] = value
    scheme, _, token = values.get("auth", "").partition(" ")
    token = token.strip(" ")
    if scheme.lower() != "bearer" or not token:
        raise AuthenticationError("an OAUTHBEARER message without a bearer token")
    return BearerMessage(token, authzid)


def _authzid(header: str) -> str:
    parts = header.split(",")
    if len(parts) != 3 or parts[0] not in {"n", "y"} or parts[2]:
        raise AuthenticationError("an OAUTHBEARER message with a malformed header")
    if parts[1] and parts[1][:2] != "a=":
        raise AuthenticationError("an OAUTHBEARER message with a malformed header")
    return parts[1][2:].replace("=2C", ",").replace("=3D", "=")


def bearer_error(status: str, scope: str | None = None) -> bytes:
    """The server's error message (RFC 7628, 3.2.2): JSON with a status, as invalid_token."""
    error = {"status": status}
    if scope:
        error["scope"] = scope
    return json.dumps(error, separators=(",", ":")).encode()
