"""SCRAM-SHA-256 and SCRAM-SHA-512: credentials, and both sides of the exchange (RFC 5802, 7677).

The state machines take messages and return messages; they do no IO and no hashing of passwords
besides the client's own. Names and passwords are UTF-8 as they are: like Kafka and its clients,
and unlike the RFC, this applies no SASLprep. There is no channel binding: TLS is below SASL.
"""

import binascii
import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Self

from qbus.errors import AuthenticationError, WrongPassword

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16_384
MAX_MESSAGE_BYTES: Final = 8 * 1024
"""Longest message that either side reads."""

_MAX_CLIENT_ITERATIONS: Final = 1_000_000  # a server must not keep its clients busy for minutes
_SALT_BYTES: Final = 24
_NONCE_BYTES: Final = 24
_ITERATION_DIGITS: Final = 7


class ScramMechanism(Enum):
    """A mechanism by its hash; ``number`` is that of Kafka's APIs 50 and 51 (KIP-554)."""

    SHA_256 = (1, "sha256", "SCRAM-SHA-256")
    SHA_512 = (2, "sha512", "SCRAM-SHA-512")

    def __init__(self, number: int, hash_name: str, mechanism: str) -> None:
        self.number = number
        self.hash_name = hash_name
        self.mechanism = mechanism

    @classmethod
    def of(cls, mechanism: str) -> "ScramMechanism | None":
        """The mechanism with this SASL name, if it is one of them."""
        return _BY_NAME.get(mechanism)

    @classmethod
    def numbered(cls, number: int) -> "ScramMechanism | None":
        """The mechanism with this number in APIs 50 and 51, if there is one."""
        return _BY_NUMBER.get(number)

    @property
    def digest_size(self) -> int:
        """Bytes of a hash."""
        return hashlib.new(self.hash_name).digest_size

    def digest(self, data: bytes) -> bytes:
        """H() of the RFC."""
        return hashlib.new(self.hash_name, data).digest()

    def sign(self, key: bytes, data: bytes) -> bytes:
        """HMAC() of the RFC."""
        return hmac.digest(key, data, self.hash_name)

    def salted_password(self, password: bytes, salt: bytes, iterations: int) -> bytes:
        """Hi() of the RFC: slow by design, so a server calls it in a thread."""
        return hashlib.pbkdf2_hmac(self.hash_name, password, salt, iterations)


_BY_NAME: Final = {one.mechanism: one for one in ScramMechanism}
_BY_NUMBER: Final = {one.number: one for one in ScramMechanism}


@dataclass(frozen=True, slots=True, repr=False)
class ScramCredential:
    """What a server keeps of a password: enough to check it, too little to log in with."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations}, ...)"

    @classmethod
    def from_password(
        cls,
        mechanism: ScramMechanism,
        password: str,
        *,
        salt: bytes | None = None,
        iterations: int = MIN_ITERATIONS,
    ) -> Self:
        """Derive a credential, by default with a random salt; takes milliseconds."""
        salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
        salted = mechanism.salted_password(password.encode(), salt, iterations)
        return cls.from_salted_password(mechanism, salted, salt, iterations)

    @classmethod
    def from_salted_password(
        cls, mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
    ) -> Self:
        """The credential of a password that was salted and hashed already (KIP-554)."""
        client_key = mechanism.sign(salted_password, b"Client Key")
        server_key = mechanism.sign(salted_password, b"Server Key")
        return cls(salt, mechanism.digest(client_key), server_key, iterations)

    def matches_salted(self, mechanism: ScramMechanism, salted_password: bytes) -> bool:
        """Whether a salted password is the right one, in time that tells nothing of it."""
        client_key = mechanism.sign(salted_password, b"Client Key")
        return hmac.compare_digest(mechanism.digest(client_key), self.stored_key)

    def encode(self) -> str:
        """Kafka's text form: ``salt=...,stored_key=...,server_key=...,iterations=4096``."""
        salt, stored, server = map(_base64, (self.salt, self.stored_key, self.server_key))
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"

    @classmethod
    def decode(cls, text: str) -> Self:
        """Decode what :meth:`encode` wrote, fields in any order.

        Raises:
            ValueError: it is no credential; the message does not quote it.
        """
        fields = dict(item.partition("=")[::2] for item in text.split(","))
        try:
            salt, stored, server = (
                b64decode(fields.pop(name), validate=True)
                for name in ("salt", "stored_key", "server_key")
            )
            iterations = int(fields.pop("iterations"))
        except (KeyError, ValueError):
            raise ValueError("not a SCRAM credential") from None
        if fields or not (salt and stored and server) or iterations < 1:
            raise ValueError("not a SCRAM credential")
        return cls(salt, stored, server, iterations)


Lookup = Callable[[str], ScramCredential]
"""The credential of a user; of an unknown user one that no password fits."""


def random_nonce() -> str:
    """A new nonce: printable ASCII without commas."""
    return secrets.token_urlsafe(_NONCE_BYTES)


class ScramServer:
    """The server's side of one exchange: two messages in, two messages out.

    ``username`` is what the client calls itself; it is who the client is once ``is_complete``.
    """

    def __init__(self, mechanism: ScramMechanism, lookup: Lookup, nonce: str | None = None) -> None:
        """``lookup`` never fails: it returns a credential that nothing fits for unknown users.

        It is asked again at the end: a client may take its time for the proof.
        """
        self.username = ""
        self.is_complete = False
        self._mechanism = mechanism
        self._lookup = lookup
        self._nonce = nonce or random_nonce()
        self._credential: ScramCredential | None = None
        self._header = ""
        self._transcript = ""
        self._is_over = False

    def step(self, message: bytes) -> bytes:
        """Take the client's next message, return the server's.

        Raises:
            AuthenticationError: the message is malformed, or the client does not know the
                password. The exchange is over.
        """
        if self._is_over:
            raise AuthenticationError("a SCRAM message after the end of the exchange")
        try:
            text = _text(message)
            if self._credential is None:
                return self._first(text)
            self._is_over = True
            return self._final(text, self._credential)
        except AuthenticationError:
            self._is_over = True
            raise

    def _first(self, text: str) -> bytes:
        header, authzid, bare = _split_gs2_header(text)
        attributes = _attributes(bare)
        if len(attributes) < 2 or [name for name, _ in attributes[:2]] != ["n", "r"]:
            raise AuthenticationError("the SCRAM client-first message has no user name and nonce")
        _refuse_delegation_tokens(attributes[2:])
        username, nonce = _unescape(attributes[0][1]), _checked_nonce(attributes[1][1])
        if not username:
            raise AuthenticationError("the SCRAM client-first message has an empty user name")
        if authzid and authzid != username:
            raise AuthenticationError("an authorization id that is not the user name")
        credential = self._lookup(username)
        self._nonce = nonce + self._nonce
        answer = f"r={self._nonce},s={_base64(credential.salt)},i={credential.iterations}"
        self._header, self._transcript = header, f"{bare},{answer}"
        self.username, self._credential = username, credential
        return answer.encode()

    def _final(self, text: str, credential: ScramCredential) -> bytes:
        without_proof, comma, last = text.rpartition(",")
        attributes = _attributes(without_proof)
        if not comma or [name for name, _ in attributes[:2]] != ["c", "r"] or last[:2] != "p=":
            raise AuthenticationError("the SCRAM client-final message is malformed")
        if attributes[0][1] != _base64(self._header.encode()):
            raise AuthenticationError("the SCRAM client-final message binds to another channel")
        if not hmac.compare_digest(attributes[1][1].encode(), self._nonce.encode()):
            raise AuthenticationError(
                "the SCRAM client-final message has another nonce (librdkafka before 2.6.1 sends "
                "a wrong one)"
            )
        proof = _from_base64(last[2:])
        if len(proof) != len(credential.stored_key):
            raise AuthenticationError("the SCRAM client-final message has a proof of another size")
        if self._lookup(self.username) != credential:
            raise AuthenticationError("the credential was changed or removed meanwhile")
        message = f"{self._transcript},{without_proof}".encode()
        mechanism = self._mechanism
        signature = mechanism.sign(credential.stored_key, message)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(mechanism.digest(client_key), credential.stored_key):
            raise WrongPassword("the user name or the password is wrong")
        self.is_complete = True
        return f"v={_base64(mechanism.sign(credential.server_key, message))}".encode()


class ScramClient:
    """The client's side of one exchange.

    The server has shown that it knows the password, too, when ``is_complete``: only then is it
    the right one.
    """

    def __init__(
        self, mechanism: ScramMechanism, username: str, password: str, nonce: str | None = None
    ) -> None:
        """``nonce`` is random unless a test states it."""
        self.mechanism = mechanism.mechanism
        self.is_complete = False
        self._kind = mechanism
        self._password = password
        self._nonce = nonce or random_nonce()
        self._bare = f"n={_escape(username)},r={self._nonce}"
        self._expected: bytes | None = None

    def first(self) -> bytes:
        """The client-first message."""
        return f"n,,{self._bare}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        """Answer the server-first message; check the server-final one, which needs no answer.

        The first call hashes the password, which takes milliseconds.

        Raises:
            AuthenticationError: the server's message is malformed, refuses, or shows that the
                server does not know the password.
        """
        text = _text(challenge)
        if text[:2] == "e=":
            raise AuthenticationError(f"the server refuses: {text[2:202]!r}")
        if self._expected is None:
            return self._proof(text)
        self._verify(text, self._expected)
        return None

    def _proof(self, text: str) -> bytes:
        attributes = _attributes(text)
        if [name for name, _ in attributes[:3]] != ["r", "s", "i"]:
            raise AuthenticationError("the SCRAM server-first message is malformed")
        nonce, salt = _checked_nonce(attributes[0][1]), _from_base64(attributes[1][1])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationError("the SCRAM server-first message has another nonce")
        iterations = _iterations(attributes[2][1])
        kind = self._kind
        salted = kind.salted_password(self._password.encode(), salt, iterations)
        client_key = kind.sign(salted, b"Client Key")
        without_proof = f"c=biws,r={nonce}"
        message = f"{self._bare},{text},{without_proof}".encode()
        signature = kind.sign(kind.digest(client_key), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._expected = kind.sign(kind.sign(salted, b"Server Key"), message)
        return f"{without_proof},p={_base64(proof)}".encode()

    def _verify(self, text: str, expected: bytes) -> None:
        name, signature = _attributes(text)[0]
        if name != "v" or not hmac.compare_digest(_from_base64(signature), expected):
            raise AuthenticationError("the server does not know the password of this user")
        self.is_complete = True


def _text(message: bytes) -> str:
    if len(message) > MAX_MESSAGE_BYTES:
        raise AuthenticationError(f"a SCRAM message of {len(message)} bytes")
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise AuthenticationError("a SCRAM message that is not UTF-8") from None
    if "\0" in text:
        raise AuthenticationError("a SCRAM message with a zero byte")
    return text


def _split_gs2_header(text: str) -> tuple[str, str, str]:
    """The header with its commas, the authorization id, and the rest."""
    parts = text.split(",", 2)
    if len(parts) < 3:
        raise AuthenticationError("the SCRAM client-first message has no header")
    binding, authzid, bare = parts
    if binding[:2] == "p=":
        raise AuthenticationError("SCRAM with channel binding is not supported")
    if binding not in {"n", "y"} or (authzid and authzid[:2] != "a="):
        raise AuthenticationError("the SCRAM client-first message has a malformed header")
    return f"{binding},{authzid},", _unescape(authzid[2:]), bare


def _attributes(text: str) -> list[tuple[str, str]]:
    found = []
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if not (name.isascii() and name.isalpha() and equals):
            raise AuthenticationError("a SCRAM message with a malformed attribute")
        if name == "m":
            raise AuthenticationError("a SCRAM extension that is not supported")
        found.append((name, value))
    return found


def _refuse_delegation_tokens(extensions: list[tuple[str, str]]) -> None:
    if ("tokenauth", "true") in extensions:
        raise AuthenticationError("delegation tokens are not supported")


def _checked_nonce(nonce: str) -> str:
    if not nonce or not all("!" <= character <= "~" for character in nonce):
        raise AuthenticationError("a SCRAM nonce that is empty or not printable")
    return nonce


def _iterations(text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= _ITERATION_DIGITS
    if not is_number or not MIN_ITERATIONS <= int(text) <= _MAX_CLIENT_ITERATIONS:
        raise AuthenticationError(
            f"the server asks for a number of iterations that is not from {MIN_ITERATIONS} to "
            f"{_MAX_CLIENT_ITERATIONS}"
        )
    return int(text)


def _escape(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescape(name: str) -> str:
    first, *rest = name.split("=")
    if any(part[:2] not in {"2C", "3D"} for part in rest):
        raise AuthenticationError("a SCRAM user name with a malformed escape")
    return first + "".join((("," if part[:2] == "2C" else "=") + part[2:]) for part in rest)


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _from_base64(text: str) -> bytes:
    try:
        data = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AuthenticationError("a SCRAM message with malformed base64") from None
    if not data:
        raise AuthenticationError("a SCRAM message with an empty value")
    return data
