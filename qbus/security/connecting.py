"""How one end makes the connections that it opens safe: for clients, and for brokers among
themselves.
"""

import asyncio
import inspect
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from qbus.errors import AuthenticationError, ConfigError, ErrorCode, NoToken
from qbus.wire import ApiKey
from qbus.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from qbus.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

from .client import ClientSecurity
from .sasl import make_sasl_client
from .tls import client_context

_log = logging.getLogger(__name__)

Ask = Callable[[ApiKey, Any], Awaitable[Any]]
"""Sends a request of SASL on the connection to be authenticated; returns its response."""

_MAX_ROUNDS: Final = 8
"""Messages of a mechanism at most; none of those known has more than two."""
_MAX_SAID: Final = 300
_REAUTHENTICATE_AT: Final = (0.85, 0.95)
"""Parts of a session's lifetime, as Kafka's clients have them (KIP-368)."""

Credentials = tuple[ClientSecurity, ssl.SSLContext | None]


class OutgoingSecurity:
    """The security of connections to brokers: its context, and its secrets as they are now."""

    def __init__(self, settings: ClientSecurity) -> None:
        """Read the files that the settings name. Raises :class:`~qbus.errors.ConfigError`."""
        self.settings = settings
        self._current = settings
        self._context = _context(settings) if settings.uses_tls else None
        self._files = _stamps(settings)
        self._trouble = ""

    async def credentials(self) -> Credentials:
        """Return settings and context for a new connection.

        What changed in files and variables since the last one is read again; while they cannot be
        read, the last that could be are used. ``oauth_token`` returns a token that is valid now.
        Raises :class:`~qbus.errors.NoToken`.
        """
        if self.settings.uses_tls or self.settings.sources:
            await asyncio.to_thread(self._refresh)
        if self._current.uses_sasl and self._current.oauth_token is not None:
            token = await _token(self._current.oauth_token)
            return replace(self._current, oauth_token=lambda: token), self._context
        return self._current, self._context

    def _refresh(self) -> None:
        trouble = ""
        try:
            current = self.settings.refreshed()
            files = _stamps(current)
            if current.uses_tls and (files != self._files or current != self._current):
                self._context = _context(current)
                self._files = files
            self._current = current
        except ConfigError as error:
            trouble = str(error)
            if trouble != self._trouble:
                _log.warning("%s; what was read before stays in use", trouble)
        self._trouble = trouble


def _context(settings: ClientSecurity) -> ssl.SSLContext:
    context = client_context(settings)
    versions = settings.ssl_enabled_protocols
    if versions and settings.ssl_context is None:
        if "TLSv1.2" not in versions:
            context.minimum_version = ssl.TLSVersion.TLSv1_3
        if "TLSv1.3" not in versions:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def _stamps(settings: ClientSecurity) -> list[tuple[int, int, int] | None]:
    """What tells that the files of the settings have changed."""
    return [
        _stamp(path)
        for path in (
            settings.ssl_ca_location,
            settings.ssl_certificate_location,
            settings.ssl_key_location,
        )
    ]


def _stamp(path: str | None) -> tuple[int, int, int] | None:
    try:
        found = None if path is None else Path(path).stat()
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)


async def _token(source: Callable[[], object]) -> str:
    """Return a new token. Raises :class:`~qbus.errors.NoToken`."""
    try:
        found = await asyncio.to_thread(source)
        if inspect.isawaitable(found):
            found = await found
    except (asyncio.CancelledError, NoToken):
        raise
    except Exception as error:
        raise NoToken(f"there is no token: {type(error).__name__} in its provider") from error
    if isinstance(found, tuple) and found:  # with its lifetime, as librdkafka's callbacks
        found = found[0]
    if not isinstance(found, str):
        raise NoToken(f"there is no token: its provider returns a {type(found).__name__}")
    return found


async def authenticate(ask: Ask, settings: ClientSecurity) -> float:
    """Authenticate a connection. Return the seconds after which it must be done again; 0: never.

    Raises :class:`~qbus.errors.AuthenticationError`, which says the mechanism and what the broker
    said; and whatever ``ask`` raises.
    """
    client = make_sasl_client(settings)
    request = SaslHandshakeRequest(mechanism=client.mechanism)
    response: SaslHandshakeResponse = await ask(ApiKey.SASL_HANDSHAKE, request)
    _check_mechanism(client.mechanism, response)
    message = client.first()
    for _ in range(_MAX_ROUNDS):
        answer: SaslAuthenticateResponse = await ask(
            ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=message)
        )
        if answer.error_code != ErrorCode.NONE:
            said = answer.error_message or _name(answer.error_code)
            raise _refused(settings, said)
        try:
            more = await asyncio.to_thread(client.answer, bytes(answer.auth_bytes))
        except AuthenticationError as error:
            raise _refused(settings, str(error)) from None
        if more is None:
            if not client.is_complete:
                raise _refused(settings, "the broker does not show that it knows the password")
            return max(0.0, answer.session_lifetime_ms / 1000)
        message = more
    raise _refused(settings, "the broker never comes to an end")


def _refused(settings: ClientSecurity, said: str) -> AuthenticationError:
    user = f" of {settings.sasl_username!r}" if settings.sasl_username else ""
    return AuthenticationError(
        f"authentication{user} with {settings.sasl_mechanism} failed: {said[:_MAX_SAID]}"
    )


def _check_mechanism(mechanism: str, response: SaslHandshakeResponse) -> None:
    if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(response.mechanisms)[:_MAX_SAID] or "none"
        raise AuthenticationError(f"the broker does not take {mechanism}; it takes {offered}")
    if response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationError(
            "the broker's listener does not use SASL: likely security.protocol is PLAINTEXT or SSL"
        )
    if response.error_code != ErrorCode.NONE:
        raise AuthenticationError(f"the broker refuses {mechanism}: {_name(response.error_code)}")


def _name(error_code: int) -> str:
    try:
        return ErrorCode(error_code).name
    except ValueError:
        return f"error code {error_code}"


def reauthenticate_after(lifetime: float, share: float) -> float:
    """Seconds after which a session of ``lifetime`` seconds is renewed; ``share``: 0 to 1, by
    chance.
    """
    earliest, latest = _REAUTHENTICATE_AT
    return lifetime * (earliest + (latest - earliest) * share)


class TlsTrouble(NamedTuple):
    """Why there is no TLS connection; ``is_final``: somebody has to change something first."""

    reason: str
    is_final: bool


_NO_TLS = (
    "likely its listener does not speak TLS: security.protocol is PLAINTEXT or SASL_PLAINTEXT there"
)
_UNTRUSTED = {18, 19, 20, 21}  # X509_V_ERR_...: self-signed, no issuer, one signature only
_NOT_YET, _EXPIRED = 9, 10
_OTHER_HOST = {62, 63, 64}
_NOT_TLS = {
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "HTTPS_PROXY_REQUEST",
    "UNKNOWN_PROTOCOL",
    "PACKET_LENGTH_TOO_LONG",
    "RECORD_LAYER_FAILURE",
    "UNSUPPORTED_PROTOCOL",
}


def explain_tls(error: Exception, *, has_certificate: bool) -> TlsTrouble:
    """Return what is said of an error of a TLS handshake, or soon after it.

    has_certificate: whether this end showed one.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsTrouble(_of_certificate(error), is_final=True)
    reason = getattr(error, "reason", None) or ""
    if isinstance(error, ssl.SSLError) and reason in _NOT_TLS:
        return TlsTrouble(f"it does not answer with TLS: {_NO_TLS}", is_final=True)
    if isinstance(error, ssl.SSLError) and "ALERT" in reason:
        return TlsTrouble(_of_alert(reason, has_certificate=has_certificate), is_final=True)
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        words = reason.replace("_", " ").lower() or "it failed"
        return TlsTrouble(f"TLS: {words}", is_final=False)
    if isinstance(error, ConnectionError | ssl.SSLEOFError):
        return TlsTrouble(
            f"it closed the connection in the TLS handshake: {_NO_TLS}", is_final=False
        )
    return TlsTrouble(str(error), is_final=False)


def _of_certificate(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code == _EXPIRED:
        return "its certificate has expired"
    if error.verify_code == _NOT_YET:
        return "its certificate is not valid yet"
    if error.verify_code in _UNTRUSTED:
        return (
            f"its certificate is not trusted ({error.verify_message}): name the authority that"
            " signs certificates of brokers in ssl.ca.location"
        )
    if error.verify_code in _OTHER_HOST:
        return (
            f"its certificate is for another host: {error.verify_message} Connect by a name that"
            " the certificate has, or have it made for this one"
        )
    return f"its certificate is refused: {error.verify_message}"


def _of_alert(reason: str, *, has_certificate: bool) -> str:
    alert = reason.partition("ALERT_")[2].replace("_", " ").lower()
    if "PROTOCOL_VERSION" in reason:
        return "it speaks no version of TLS that this end does (1.2 and 1.3)"
    if has_certificate:
        return f"it refuses this client's certificate, or its ciphers ({alert})"
    return (
        f"it breaks off the TLS handshake ({alert}): likely it wants a client's certificate, see"
        " ssl.certificate.location"
    )
