"""TLS contexts of both sides, made by the standard library's ``ssl``.

Servers speak TLS 1.2 and 1.3 with the suites that OpenSSL holds for strong, never renegotiate and
never compress. Their certificates are read again when the files change: connections that are open
keep what they have, new ones get the new certificates. A change that cannot be read is reported,
and the former certificates stay in force.
"""

import logging
import os
import re
import ssl
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from qbus.errors import ConfigError

if TYPE_CHECKING:
    from .client import ClientSecurity

_log = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 1.0
_TELL_EVERY_S: Final = 86_400.0
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_SOON: Final = timedelta(days=14)
_TIME: Final = "%Y-%m-%d %H:%M"
_CRL_HEAD: Final = b"-----BEGIN X509 CRL-----"
_BEGIN_CRL: Final = re.compile(re.escape(_CRL_HEAD))
_CERTIFICATE_HEAD: Final = re.compile(rb"-----BEGIN (X509 |TRUSTED )?CERTIFICATE-----")
_Stamp = tuple[int, int, int]


class TlsSettings(Protocol):
    """What a server's TLS is configured with: the broker's settings for a listener, or others."""

    @property
    def ssl_keystore_location(self) -> str | None:
        """PEM file of key and certificate chain."""

    @property
    def ssl_certificate_location(self) -> str | None:
        """PEM file of the certificate chain, if it lies apart from the key."""

    @property
    def ssl_key_location(self) -> str | None:
        """PEM file of the key of that chain."""

    @property
    def ssl_key_password(self) -> str | None:
        """The key's password."""

    @property
    def ssl_truststore_location(self) -> str | None:
        """PEM file of the authorities that clients' certificates must be signed by."""

    @property
    def ssl_crl_location(self) -> str | None:
        """PEM file of the lists of certificates that those authorities have revoked."""

    @property
    def ssl_client_auth(self) -> str:
        """``none``, ``requested`` or ``required``."""

    @property
    def ssl_enabled_protocols(self) -> tuple[str, ...]:
        """Versions of TLS: TLSv1.2, TLSv1.3."""

    @property
    def ssl_cipher_suites(self) -> tuple[str, ...]:
        """Suites of TLS 1.2; none: OpenSSL's choice."""


class ServerTls:
    """The TLS of one listener, whose certificates may change while it runs.

    Not thread-safe. ``reloads`` and ``failed_reloads`` count what happened.
    """

    def __init__(
        self, settings: TlsSettings, name: str = "", *, clock: Callable[[], float] = monotonic
    ) -> None:
        """``name``: of the listener, for messages; ``clock``: seconds.

        Raises:
            ConfigError: a file cannot be read, or does not hold what it should.
        """
        self.name = name
        self._settings = settings
        self._clock = clock
        self._looked_at = clock()
        self._stamps = _stamps(self.files)
        self._context = server_context(settings)
        self.reloads = 0
        self.failed_reloads = 0
        self._told_at = self._looked_at
        self._tell_end()

    @property
    def files(self) -> list[str]:
        """The files that certificates and keys are read from."""
        settings = self._settings
        stated = (
            settings.ssl_keystore_location,
            settings.ssl_certificate_location,
            settings.ssl_key_location,
            settings.ssl_truststore_location,
            settings.ssl_crl_location,
        )
        return [path for path in stated if path]

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection; it looks for changes once in a second.

        Once a day it looks whether the certificate ends soon.
        """
        now = self._clock()
        if now - self._told_at >= _TELL_EVERY_S:
            self._told_at = now
            self._tell_end()
        if now - self._looked_at >= _LOOK_EVERY_S:
            self._looked_at = now
            if _stamps(self.files) != self._stamps:
                self.reload()
        return self._context

    def reload(self) -> bool:
        """Read the files again now; whether that could be done. A failure is logged."""
        # Before they are read: a change while reading shows the next time.
        self._stamps = _stamps(self.files)
        try:
            self._context = server_context(self._settings)
        except ConfigError as error:
            self.failed_reloads += 1
            _log.error(
                "the certificates of listener %s have changed and cannot be used, the former ones"
                " stay in force: %s",
                self.name,
                error,
            )
            return False
        self.reloads += 1
        _log.info("the certificates of listener %s were read again", self.name)
        self._tell_end()
        return True

    def _tell_end(self) -> None:
        """Log that the certificate has expired, or will before long."""
        settings = self._settings
        path = settings.ssl_keystore_location or settings.ssl_certificate_location or ""
        ends = _end_of(path)
        if ends is None:
            return
        now = datetime.now(UTC)
        if ends <= now:
            _log.error(
                "the certificate of listener %s has expired (%s UTC): clients refuse it; put a new"
                " one at %s",
                *(self.name, ends.strftime(_TIME), path),
            )
        elif ends - now < _SOON:
            _log.warning(
                "the certificate of listener %s expires in %.0f days (%s UTC): put a new one at %s",
                *(self.name, (ends - now) / timedelta(days=1), ends.strftime(_TIME), path),
            )


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return a context for connections that clients open.

    Raises:
        ConfigError: a file cannot be read, or does not hold what it should; the message names the
            setting and the file, and no secret.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _harden(context)
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0  # clients keep their connections: sessions are not resumed
    versions = [_VERSIONS[version] for version in settings.ssl_enabled_protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if settings.ssl_cipher_suites:
        _set_suites(context, settings.ssl_cipher_suites)
    if settings.ssl_keystore_location:
        chain, key = settings.ssl_keystore_location, None
        where = "ssl.keystore.location"
    else:
        chain, key = settings.ssl_certificate_location or "", settings.ssl_key_location
        where = "ssl.certificate.location"
    _load_chain(context, where, chain, key, settings.ssl_key_password)
    context.verify_mode = _CLIENT_AUTH[settings.ssl_client_auth]
    if settings.ssl_truststore_location and context.verify_mode is not ssl.CERT_NONE:
        _load_authorities(context, "ssl.truststore.location", settings.ssl_truststore_location)
        if settings.ssl_crl_location:
            _load_revoked(context, settings.ssl_crl_location)
    return context


def client_context(security: "ClientSecurity") -> ssl.SSLContext:
    """Return a context for connections to brokers. It reads files: not for an event loop.

    Raises:
        ConfigError: a file cannot be read, or does not hold what it should.
    """
    if security.ssl_context is not None:
        return security.ssl_context
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificates and host names
    _harden(context)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not security.check_hostname:
        _log.warning(
            "host names of brokers are not checked (ssl.endpoint.identification.algorithm=none):"
            " whoever has any certificate of the authority can stand in for a broker"
        )
        context.check_hostname = False
    if security.ssl_ca_location:
        _load_authorities(context, "ssl.ca.location", security.ssl_ca_location)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if security.ssl_certificate_location:
        _load_chain(
            context,
            "ssl.certificate.location",
            security.ssl_certificate_location,
            security.ssl_key_location,
            security.ssl_key_password,
        )
    return context


def _harden(context: ssl.SSLContext) -> None:
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION


def _set_suites(context: ssl.SSLContext, suites: Iterable[str]) -> None:
    from_rfc = [_openssl_name(suite) for suite in suites]
    stated = [name for name in from_rfc if name]  # those of TLS 1.3 are always on
    if not stated:  # and so nothing of TLS 1.2 is wanted
        if context.maximum_version is not ssl.TLSVersion.TLSv1_3:
            raise ConfigError(
                f"ssl.cipher.suites={','.join(suites)}: expected suites of TLSv1.2, which is the"
                " only version in ssl.enabled.protocols"
            )
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    try:
        context.set_ciphers(":".join(stated))
    except ssl.SSLError:
        raise ConfigError(
            f"ssl.cipher.suites={','.join(suites)}: expected names that this OpenSSL knows"
        ) from None


def _openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite of TLS 1.2; empty for one of TLS 1.3."""
    if not suite.startswith("TLS_"):
        return suite
    if "_WITH_" not in suite:
        return ""
    name = suite.removeprefix("TLS_").replace("_WITH_", "_").removeprefix("RSA_")
    return (
        name.replace("AES_128", "AES128")
        .replace("AES_256", "AES256")
        .replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
        .replace("_CBC_", "_")
        .replace("_", "-")
    )


def _load_chain(
    context: ssl.SSLContext, setting: str, chain: str, key: str | None, password: str | None
) -> None:
    _check_pem(setting, chain)
    if key:
        _check_pem("ssl.key.location", key)
    asked = False

    def secret() -> str:
        nonlocal asked
        asked = True
        return password or ""  # never the terminal, which OpenSSL asks by itself

    try:
        context.load_cert_chain(chain, key, secret)
    except ssl.SSLError as error:
        why = error.reason or "PEM"
        if asked:
            why = "ssl.key.password is wrong" if password else "the key needs ssl.key.password"
        elif "KEY_VALUES_MISMATCH" in why:
            why = "the key does not belong to the certificate"
        elif "PEM" in why:
            what = "a certificate chain" if key else "a private key and its certificate chain"
            why = f"expected {what} in PEM"
        raise ConfigError(f"{setting}={chain}: {why}") from None
    except OSError as error:
        raise ConfigError(f"{setting}={chain}: {error.strerror}") from None


def _load_authorities(context: ssl.SSLContext, setting: str, path: str) -> None:
    _check_pem(setting, path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        why = error.reason or "it cannot be read"
        raise ConfigError(f"{setting}={path}: expected certificates in PEM: {why}") from None
    except OSError as error:
        raise ConfigError(f"{setting}={path}: {error.strerror}") from None


def _load_revoked(context: ssl.SSLContext, path: str) -> None:
    """Refuse certificates that the lists of ``path`` name, and those of authorities without one.

    Raises:
        ConfigError: it cannot be read, or a list in it is not valid now.
    """
    where = f"ssl.crl.location={path}"
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a string from the configuration
            content = file.read()
    except OSError as error:
        raise ConfigError(f"{where}: {error.strerror}") from None
    lists = _BEGIN_CRL.split(content)[1:]
    if not lists:
        raise ConfigError(
            f"{where}: expected lists of revoked certificates in PEM; convert one with: openssl crl"
            f" -inform DER -in {path} -out crl.pem"
        )
    if _CERTIFICATE_HEAD.search(content):  # OpenSSL would trust it as an authority
        raise ConfigError(
            f"{where}: expected nothing but lists of revoked certificates: the certificates of"
            " authorities belong to ssl.truststore.location"
        )
    for one in lists:
        _check_times(where, one)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError(f"{where}: it cannot be read: {error.reason or 'no PEM'}") from None
    context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF


def _check_times(where: str, rest: bytes) -> None:
    """Refuse a list of revoked certificates that is not valid now: no client would be let in."""
    from cryptography import x509  # noqa: PLC0415 - only where there are such lists

    try:
        found = x509.load_pem_x509_crl(_CRL_HEAD + rest)
        issuer = found.issuer.rfc4514_string()
    except ValueError:
        raise ConfigError(f"{where}: expected lists of revoked certificates in PEM") from None
    now, ends = datetime.now(UTC), found.next_update_utc
    if ends is not None and ends <= now:
        raise ConfigError(
            f"{where}: the list of {issuer} has expired ({ends:{_TIME}} UTC): put the"
            " authority's newest one there"
        )
    if found.last_update_utc > now:
        raise ConfigError(
            f"{where}: the list of {issuer} is not valid before"
            f" {found.last_update_utc:{_TIME}} UTC: is the clock of this machine right?"
        )


def _end_of(path: str) -> datetime | None:
    """When the first certificate of a file ends; None: it has none that can be read."""
    from cryptography import x509  # noqa: PLC0415 - only where there is TLS

    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a string from the configuration
            first, *_ = x509.load_pem_x509_certificates(file.read())
    except (OSError, ValueError):
        return None
    return first.not_valid_after_utc


def _check_pem(setting: str, path: str) -> None:
    """Refuse a Java keystore or PKCS #12 with the command that converts it.

    Raises:
        ConfigError: the file is one, or cannot be read.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a string from the configuration
            start = file.read(65_536)
    except OSError as error:
        raise ConfigError(f"{setting}={path}: {error.strerror}") from None
    if b"-----BEGIN " in start:
        return
    if start.startswith(b"\xfe\xed\xfe\xed"):
        convert = (
            f"keytool -importkeystore -srckeystore {path} -destkeystore store.p12 -deststoretype "
            "PKCS12, and then: openssl pkcs12 -in store.p12 -out store.pem -nodes"
        )
    else:
        convert = f"openssl pkcs12 -in {path} -out store.pem -nodes"
    raise ConfigError(f"{setting}={path}: expected PEM; convert a keystore with: {convert}")


def _stamps(files: Iterable[str]) -> list[_Stamp | None]:
    """Return what changes when a file does; a missing one has none."""
    return [_stamp(path) for path in files]


def _stamp(path: str) -> _Stamp | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - a string from the configuration
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
