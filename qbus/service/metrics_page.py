"""Where a daemon serves its metrics, and who may read them: as properties in a file say.

===========================  ======================================================================
property                     value
===========================  ======================================================================
``users.location``           a file of users, see :class:`UsersFile`
``ssl.keystore.location``    PEM file of the certificate and its key, for ``https://``
``ssl.certificate.location`` the certificate alone, with ``ssl.key.location``
``ssl.key.password``         what decrypts the key; may be ``file:PATH`` or ``env:NAME``
``ssl.truststore.location``  PEM file of the authorities of clients' certificates
``ssl.client.auth``          ``required``: clients need a certificate; or ``none``
``allow.insecure``           ``true``: other machines may read metrics without saying who they are
===========================  ======================================================================
"""

import asyncio
import logging
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from http import HTTPStatus
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from qbus.config.address import Address, parse_page
from qbus.errors import ConfigError
from qbus.security.properties import read_properties
from qbus.security.scram import ScramCredential, ScramMechanism
from qbus.security.secret import resolve_secret

from .http import Caller
from .prometheus import PageSecurity

if TYPE_CHECKING:
    import ssl

_log = logging.getLogger(__name__)

_USERS: Final = "users.location"
_INSECURE: Final = "allow.insecure"
_CLIENT_AUTH: Final = "ssl.client.auth"
_NAMES: Final = (
    _USERS,
    _INSECURE,
    _CLIENT_AUTH,
    "ssl.keystore.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.truststore.location",
    "ssl.crl.location",
)
_LOOK_EVERY_S: Final = 1.0
_DELAY_S: Final = 0.1
_HASHED: Final = "salt="
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_NOBODY: Final = ScramCredential.from_password(ScramMechanism.SHA_256, "", salt=bytes(24))


class UsersFile:
    """Users and their passwords, one ``user:password`` a line; it is read again when it changes.

    In place of a password may stand what SCRAM-SHA-256 keeps of it, ``salt=...,stored_key=...``,
    as Kafka writes it. Nobody but its owner may be able to read the file. Lines that begin with #
    are comments.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = monotonic) -> None:
        """Raises ConfigError: the file cannot be read, or others can read it."""
        self._path = path
        self._clock = clock
        self._looked_at = clock()
        self._stamp, self._users = _read(path)
        self._checking = asyncio.Lock()  # one at a time: guessing must not take all processors

    def check(self, user: str, password: str) -> bool:
        """Whether the password is that of the user; takes as long for users that do not exist."""
        self._look()
        known = self._users.get(user, _NOBODY)
        hashed = ScramMechanism.SHA_256.salted_password(
            password.encode(), known.salt, known.iterations
        )
        return known.matches_salted(ScramMechanism.SHA_256, hashed) and known is not _NOBODY

    async def decide(self, caller: Caller) -> HTTPStatus:
        """See :data:`.http.Decide`."""
        if caller.user is None or caller.password is None:
            return HTTPStatus.UNAUTHORIZED
        async with self._checking:
            is_right = await asyncio.to_thread(self.check, caller.user, caller.password)
        if is_right:
            return HTTPStatus.OK
        await asyncio.sleep(_DELAY_S)
        _log.warning("metrics: a wrong name or password from %s", caller.host)
        return HTTPStatus.UNAUTHORIZED

    def _look(self) -> None:
        now = self._clock()
        if now - self._looked_at < _LOOK_EVERY_S:
            return
        self._looked_at = now
        try:
            if _stamp(os.stat(self._path)) != self._stamp:  # noqa: PTH116 - its parts are wanted
                self._stamp, self._users = _read(self._path)
        except (OSError, ConfigError) as error:
            _log.error("the users of metrics stay as they were: %s", error)


def _stamp(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> tuple[tuple[int, int, int], Mapping[str, ScramCredential]]:
    try:
        with path.open(encoding="utf-8") as file:
            found = os.fstat(file.fileno())
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{_USERS}={path}: {reason}") from None
    if found.st_mode & _OTHERS:
        raise ConfigError(f"{_USERS}={path}: others can read it; chmod 600 {path}")
    users = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, colon, text = line.partition(":")
        if not (user and colon and text):
            raise ConfigError(f"{_USERS}={path}, line {number}: expected user:password")
        try:
            users[user] = _credential(text)
        except ValueError as error:
            raise ConfigError(f"{_USERS}={path}, line {number}: {error}") from None
    return _stamp(found), users


def _credential(text: str) -> ScramCredential:
    if text.startswith(_HASHED):
        return ScramCredential.decode(text)
    return ScramCredential.from_password(ScramMechanism.SHA_256, text)


@dataclass(frozen=True, slots=True)
class PageTls:
    """The settings of TLS, as :class:`qbus.security.tls.TlsSettings` has them."""

    ssl_keystore_location: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_truststore_location: str | None = None
    ssl_crl_location: str | None = None
    ssl_client_auth: str = "none"
    ssl_enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ssl_cipher_suites: tuple[str, ...] = ()


class MetricsPage(NamedTuple):
    """Where metrics are served, and how they are protected."""

    address: Address
    security: PageSecurity


def metrics_page(listen: str, config: Path | None = None) -> MetricsPage:
    """Where a daemon serves metrics, by ``host:port`` or ``https://host:port`` and its properties.

    Raises:
        ValueError: the address has another form; the message says which one is expected.
        ConfigError: the properties make no sense, or others could read metrics unasked.
    """
    address, is_encrypted = parse_page(listen)
    properties = {} if config is None else read_properties(config)
    for name in properties:
        if name not in _NAMES:
            close = get_close_matches(name, _NAMES, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(f"{config}: {name} is not known{hint}")
    users = UsersFile(Path(properties[_USERS])) if _USERS in properties else None
    tls = _tls(properties) if is_encrypted else None
    needs_certificate = is_encrypted and properties.get(_CLIENT_AUTH) == "required"
    is_open = users is None and not needs_certificate
    if is_open and not address.is_loopback and properties.get(_INSECURE) != "true":
        raise ConfigError(
            f"{listen}: other machines can reach this address, and anyone could read the metrics;"
            f" name a file with {_USERS}=FILE in --metrics-config, listen on 127.0.0.1, or state"
            f" {_INSECURE}=true there"
        )
    return MetricsPage(address, PageSecurity(tls, None if users is None else users.decide))


def _tls(properties: Mapping[str, str]) -> "Callable[[], ssl.SSLContext]":
    from qbus.security.tls import ServerTls  # noqa: PLC0415 - only where TLS is used

    stated = {
        name.replace(".", "_"): value
        for name, value in properties.items()
        if name.startswith("ssl.")
    }
    if "ssl_key_password" in stated:
        stated["ssl_key_password"] = resolve_secret("ssl.key.password", stated["ssl_key_password"])
    if not (stated.get("ssl_keystore_location") or stated.get("ssl_certificate_location")):
        raise ConfigError(
            "https:// needs ssl.certificate.location and ssl.key.location in --metrics-config"
        )
    if stated.get("ssl_client_auth", "none") not in {"none", "required"}:
        raise ConfigError("ssl.client.auth is required or none")
    settings = PageTls(
        stated.get("ssl_keystore_location"),
        stated.get("ssl_certificate_location"),
        stated.get("ssl_key_location"),
        stated.get("ssl_key_password"),
        stated.get("ssl_truststore_location"),
        stated.get("ssl_crl_location"),
        stated.get("ssl_client_auth", "none"),
    )
    return ServerTls(settings, "metrics").context
