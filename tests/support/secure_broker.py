"""A fake broker that knows its clients by SASL, and certificates for tests."""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from weakref import WeakKeyDictionary

from qbus.errors import AuthenticationError, ErrorCode
from qbus.security.sasl import OAUTHBEARER, PLAIN, parse_bearer, parse_plain
from qbus.security.scram import ScramCredential, ScramMechanism, ScramServer
from qbus.security.trial_ca import TrialAuthority
from qbus.wire import ApiKey, decode_request_header
from qbus.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from qbus.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

from .fake_broker import FakeBroker, Hangup

BEFORE = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
_ITERATIONS = 4096
_GRACE_S = 2.0
"""For how long after its end a session is still good: the machine may be busy with other things."""


@dataclass(frozen=True)
class Certificates:
    """PEM files: an authority, what it signed, and an authority that nobody trusts."""

    ca: str
    other_ca: str
    server: str
    server_key: str
    expired: str
    expired_key: str
    elsewhere: str
    elsewhere_key: str
    client: str
    client_key: str

    def context(self, which: str = "server", *, asks: bool = False) -> ssl.SSLContext:
        """A server's context; ``asks``: clients need a certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(getattr(self, which), getattr(self, f"{which}_key"))
        if asks:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.ca)
        return context


@cache
def certificates() -> Certificates:
    """Made once for all tests of this process."""
    place = Path(mkdtemp(prefix="qbus-certificates-"))
    authority = TrialAuthority.create(place / "ca.pem", place / "ca.key")
    TrialAuthority.create(place / "other-ca.pem", place / "other-ca.key")
    for name, hosts, days in (
        ("server", ["127.0.0.1", "localhost"], 30),
        ("expired", ["127.0.0.1", "localhost"], 0),
        ("elsewhere", ["broker.example"], 30),
        ("client", [], 30),
    ):
        certificate, key = authority.issue(name, hosts, days)
        (place / f"{name}.pem").write_bytes(certificate)
        (place / f"{name}.key").write_bytes(key)
    names = ("ca", "other_ca", "server", "expired", "elsewhere", "client")
    files = {name: str(place / f"{name.replace('_', '-')}.pem") for name in names}
    keys = {f"{name}_key": str(place / f"{name}.key") for name in names[2:]}
    return Certificates(**files, **keys)


@dataclass
class _Session:
    """What a connection has shown."""

    user: str | None = None
    mechanism: str | None = None
    scram: ScramServer | None = None
    expires_at: float | None = None
    authentications: int = 0
    refused: bool = field(default=False)


class SecureBroker(FakeBroker):
    """Answers nothing but SASL to clients that it does not know, and as Kafka's brokers do.

    users: names and passwords, which tests change. tokens: those that are good, and whose they are.
    lifetime_ms: of a session; 0: it lasts. ``authenticated``: who has authenticated, in order.
    ``hangups``: why connections were closed.
    """

    def __init__(
        self,
        users: Mapping[str, str] | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        lifetime_ms: int = 0,
    ) -> None:
        super().__init__(tls=tls)
        self.users = dict({"alice": "secret"} if users is None else users)
        self.tokens: dict[str, str] = {}
        self.mechanisms = mechanisms
        self.lifetime_ms = lifetime_ms
        self.authenticated: list[str] = []
        self.says: str | None = None
        self.hangups: list[str] = []
        self._sessions: WeakKeyDictionary[asyncio.Task[Any], _Session] = WeakKeyDictionary()
        self.handlers[ApiKey.SASL_HANDSHAKE] = self.sasl_handshake
        self.handlers[ApiKey.SASL_AUTHENTICATE] = self.sasl_authenticate

    @property
    def session(self) -> _Session:
        task = asyncio.current_task()
        assert task is not None
        return self._sessions.setdefault(task, _Session())

    async def _answer(self, frame: bytes) -> bytes | None:
        header, _ = decode_request_header(memoryview(frame))
        session, api = self.session, ApiKey(header.api_key)
        if session.mechanism is not None and api is not ApiKey.SASL_AUTHENTICATE:
            raise self._hangup(f"{api.name} in the midst of SASL")
        if session.user is None and api not in BEFORE:
            raise self._hangup(f"{api.name} before SASL")
        now = asyncio.get_running_loop().time()
        is_over = session.expires_at is not None and now > session.expires_at + _GRACE_S
        if is_over and session.mechanism is None and api is not ApiKey.SASL_HANDSHAKE:
            raise self._hangup(f"{api.name} after the end of the session")
        answer = await super()._answer(frame)
        if session.refused:
            session.refused = False
            asyncio.get_running_loop().call_soon(self.hangup)
        return answer

    def _hangup(self, reason: str) -> Hangup:
        self.hangups.append(reason)
        return Hangup()

    def sasl_handshake(self, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        code = ErrorCode.NONE
        if request.mechanism not in self.mechanisms:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        else:
            self.session.mechanism = request.mechanism
        return SaslHandshakeResponse(error_code=code, mechanisms=list(self.mechanisms))

    def sasl_authenticate(self, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        session = self.session
        try:
            user, answer = self._step(session, request.auth_bytes)
        except AuthenticationError:
            session.mechanism = session.scram = None
            session.refused = True
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=self.says or "Authentication failed: invalid credentials",
                auth_bytes=b"",
            )
        response = SaslAuthenticateResponse(auth_bytes=answer)
        if user is not None:
            session.user, session.mechanism, session.scram = user, None, None
            session.authentications += 1
            self.authenticated.append(user)
            response.session_lifetime_ms = self.lifetime_ms
            if self.lifetime_ms:
                now = asyncio.get_running_loop().time()
                session.expires_at = now + self.lifetime_ms / 1000
        return response

    def _step(self, session: _Session, message: bytes) -> tuple[str | None, bytes]:
        if session.mechanism == PLAIN:
            plain = parse_plain(message)
            if self.users.get(plain.username) != plain.password:
                raise AuthenticationError("wrong")
            return plain.username, b""
        if session.mechanism == OAUTHBEARER:
            if message == b"\x01":
                raise AuthenticationError("wrong")
            user = self.tokens.get(parse_bearer(message).token)
            return (user, b"") if user else (None, b'{"status":"invalid_token"}')
        kind = ScramMechanism.of(session.mechanism or "")
        assert kind is not None
        if session.scram is None:
            session.scram = ScramServer(kind, lambda user: self._credential(kind, user))
            return None, session.scram.step(message)
        answer = session.scram.step(message)
        return session.scram.username, answer

    def _credential(self, kind: ScramMechanism, user: str) -> ScramCredential:
        return _credential(kind, self.users.get(user, "\0"))


@cache
def _credential(kind: ScramMechanism, password: str) -> ScramCredential:
    """The same for each look at it: one that changes in the midst of a login lets nobody in."""
    return ScramCredential.from_password(kind, password, iterations=_ITERATIONS)
