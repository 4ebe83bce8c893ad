"""How a client reaches brokers safely: TLS, SASL, and where the secrets are.

The names in files are librdkafka's; those that only Kafka's Java clients have are understood where
they mean the same. A secret may stand elsewhere: ``file:PATH`` is the content of a file without the
line break at its end, ``env:NAME`` an environment variable. Such secrets are read again for every
new connection, so that they can be changed under a running program.
"""

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Final, Self

from qbus.errors import ConfigError

from . import jaas
from .properties import read_properties as read_properties  # noqa: PLC0414 - belongs here
from .secret import MASK, is_reference, is_secret, resolve_secret
from .tokens import token_source

OAuthToken = Callable[[], str | Awaitable[str]]
"""Returns a bearer token (RFC 6750); called for every authentication, in a thread."""

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER")
TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_WITH_PASSWORD: Final = frozenset(MECHANISMS[:3])

_TLS_VERSIONS: Final = "ssl.enabled.protocols"

FIELD_OF: Final[Mapping[str, str]] = {
    "security.protocol": "protocol",
    "ssl.ca.location": "ssl_ca_location",
    "ssl.truststore.location": "ssl_ca_location",
    "ssl.certificate.location": "ssl_certificate_location",
    "ssl.keystore.location": "ssl_certificate_location",
    "ssl.key.location": "ssl_key_location",
    "ssl.key.password": "ssl_key_password",
    "ssl.endpoint.identification.algorithm": "check_hostname",
    _TLS_VERSIONS: "ssl_enabled_protocols",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_username",
    "sasl.password": "sasl_password",
}
"""The field that each property sets. Others are read in other ways: see :func:`_take_others`."""

_TOKEN_PROPERTIES: Final = (
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.scope",
)
_JAAS: Final = "sasl.jaas.config"
_WITHOUT_MEANING: Final = frozenset(
    {
        "sasl.login.callback.handler.class",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.trustmanager.algorithm",
    }
)
"""How Java does what is done in another way here: in files that both read."""
_STORE_TYPES: Final = ("ssl.truststore.type", "ssl.keystore.type")
_PREFIXES: Final = ("security.", "ssl.", "sasl.", "enable.ssl.")
_ADVICE: Final[Mapping[str, str]] = {
    "enable.ssl.certificate.verification": "certificates are always verified: name the"
    " certificate authority in ssl.ca.location",
    "ssl.truststore.password": "only PEM files are read, which have none: convert a JKS or PKCS#12"
    " store with `keytool -exportcert -rfc -keystore FILE -alias NAME > ca.pem`, and name it in"
    " ssl.ca.location",
    "ssl.keystore.password": "only PEM files are read, which have none: convert a store with"
    " `openssl pkcs12 -in FILE -out client.pem`, name it in ssl.certificate.location, and the"
    " key's password in ssl.key.password",
    "ssl.ca.pem": "name a file in ssl.ca.location",
    "ssl.certificate.pem": "name a file in ssl.certificate.location",
    "ssl.key.pem": "name a file in ssl.key.location",
    "ssl.truststore.certificates": "name a file in ssl.ca.location",
    "ssl.keystore.certificate.chain": "name a file in ssl.certificate.location",
    "ssl.keystore.key": "name a file in ssl.key.location",
    "sasl.oauthbearer.config": "unsecured tokens are not made: name a token endpoint in"
    " sasl.oauthbearer.token.endpoint.url",
    "sasl.kerberos.service.name": "GSSAPI is not supported: use SCRAM-SHA-512",
}
_SECRET_FIELDS: Final = ("ssl_key_password", "sasl_password")


@dataclass(frozen=True, slots=True, repr=False)
class ClientSecurity:
    """What protects a client's connections. Its repr masks secrets.

    protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL: as the broker's listener speaks.
    ssl_ca_location: PEM file of the authorities that sign brokers' certificates; None: those
        that the system trusts.
    ssl_certificate_location: PEM file of this client's certificate and those that lead to its
        authority; may hold the key as well.
    ssl_key_location: PEM file of the key; None: it is in the certificate's file.
    ssl_key_password: what decrypts the key.
    check_hostname: whether a broker's certificate must name the host that the client connects to.
    ssl_enabled_protocols: TLSv1.2, TLSv1.3 or both; nothing: both.
    ssl_context: a context made elsewhere, in place of all of these.
    sasl_mechanism: SCRAM-SHA-512, SCRAM-SHA-256, PLAIN or OAUTHBEARER.
    oauth_token: returns the token of OAUTHBEARER.
    sources: where secrets stand that were given as ``file:`` or ``env:``: names of fields and
        references. See :meth:`refreshed`.
    """

    protocol: str = "PLAINTEXT"
    ssl_ca_location: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: str | None = None
    check_hostname: bool = True
    ssl_enabled_protocols: tuple[str, ...] = ()
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = None
    oauth_token: OAuthToken | None = None
    ssl_context: ssl.SSLContext | None = field(default=None, compare=False)
    sources: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Raise :class:`~qbus.errors.ConfigError` for settings that do not go together."""
        if self.protocol not in PROTOCOLS:
            raise ConfigError(
                f"security.protocol is one of {', '.join(PROTOCOLS)}, not {self.protocol!r}"
            )
        self._check_tls()
        self._check_sasl()

    def _check_tls(self) -> None:
        named = (self.ssl_ca_location, self.ssl_certificate_location, self.ssl_key_location)
        if not self.uses_tls:
            if any(named) or self.ssl_context is not None or not self.check_hostname:
                raise ConfigError(
                    f"TLS is configured, but security.protocol={self.protocol} does not use it:"
                    " use SSL or SASL_SSL"
                )
        elif self.ssl_key_location and not self.ssl_certificate_location:
            raise ConfigError("ssl.key.location needs ssl.certificate.location")
        for path in filter(None, named):
            if path.endswith((".jks", ".p12", ".pfx")):
                raise ConfigError(
                    f"{path}: only PEM files are read; convert it with"
                    f" `openssl pkcs12 -in {path} -out FILE.pem` (a JKS store first with"
                    " `keytool -importkeystore -deststoretype pkcs12`)"
                )

    def _check_sasl(self) -> None:
        mechanism = self.sasl_mechanism
        if not self.uses_sasl:
            given = (mechanism, self.sasl_username, self.sasl_password, self.oauth_token)
            if any(value is not None for value in given):
                raise ConfigError(
                    f"SASL is configured, but security.protocol={self.protocol} does not use it:"
                    " use SASL_SSL"
                )
            return
        if mechanism not in MECHANISMS:
            raise ConfigError(
                f"security.protocol={self.protocol} needs sasl.mechanism, one of"
                f" {', '.join(MECHANISMS)}" + (f"; not {mechanism!r}" if mechanism else "")
            )
        if mechanism in _WITH_PASSWORD and not (self.sasl_username and self.sasl_password):
            missing = "sasl.password" if self.sasl_username else "sasl.username"
            raise ConfigError(f"sasl.mechanism={mechanism} needs {missing}")
        if mechanism == "OAUTHBEARER" and self.oauth_token is None:
            raise ConfigError(
                "sasl.mechanism=OAUTHBEARER needs a token: sasl.oauthbearer.token.endpoint.url, or"
                " in a program a function that returns one"
            )

    def __repr__(self) -> str:
        shown = {
            each.name: MASK if each.name in _SECRET_FIELDS else getattr(self, each.name)
            for each in fields(self)
            if getattr(self, each.name) != each.default
        }
        return f"ClientSecurity({', '.join(f'{key}={value!r}' for key, value in shown.items())})"

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol in {"SSL", "SASL_SSL"}

    @property
    def uses_sasl(self) -> bool:
        """Whether the client authenticates with SASL."""
        return self.protocol in {"SASL_PLAINTEXT", "SASL_SSL"}

    def refreshed(self) -> Self:
        """Return this with what its secrets are now in the files and variables that keep them.

        Reads files: not for an event loop. Raises :class:`~qbus.errors.ConfigError`.
        """
        if not self.sources:
            return self
        found = {name: resolve_secret(name, source) for name, source in self.sources}
        return replace(self, **found)  # type: ignore[arg-type]  # only fields of text have sources

    def changed(self, **values: object) -> Self:
        """Return this with other values in some fields; secrets as in :meth:`of`.

        Raises :class:`~qbus.errors.ConfigError`.
        """
        kept = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.init and each.name != "sources"
        }
        kept |= {name: source for name, source in self.sources if name not in values}
        return self.of(**kept | values)

    @classmethod
    def of(cls, **values: object) -> Self:
        """Return the security of these fields, whose secrets may be ``file:`` or ``env:``.

        Raises :class:`~qbus.errors.ConfigError`.
        """
        sources = []
        for name in _SECRET_FIELDS:
            value = values.get(name)
            if isinstance(value, str) and is_reference(value):
                sources.append((name, value))
                values[name] = resolve_secret(name, value)
        return cls(**values, sources=tuple(sources))  # type: ignore[arg-type]

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Return what librdkafka's names in ``properties`` say. Names of other things are ignored.

        Raises :class:`~qbus.errors.ConfigError` for values that make no sense, and for names of
        security that nothing is known of: none is ignored in silence.
        """
        values: dict[str, object] = {}
        for name, value in properties.items():
            known = FIELD_OF.get(name)
            if known is not None:
                values[known] = _parsed(name, value)
            else:
                _check_other(name, value)
        _take_others(properties, values)
        return cls.of(**values)


def check_properties(properties: Mapping[str, str]) -> None:
    """Raise :class:`~qbus.errors.ConfigError` for what :meth:`ClientSecurity.from_properties`
    refuses, without reading the secrets that are elsewhere.
    """
    given = {
        name: "..." if is_secret(name) and is_reference(value) else value
        for name, value in properties.items()
    }
    if given.get(_JAAS) == "...":
        given[_JAAS] = 'PlainLoginModule required username="..." password="...";'
    ClientSecurity.from_properties(given)


def _parsed(name: str, value: str) -> object:
    if name == "security.protocol":
        return value.strip().upper()
    if name == "ssl.endpoint.identification.algorithm":
        algorithm = value.strip().lower()
        if algorithm not in {"https", "none", ""}:
            raise ConfigError(f"{name} is https or none, not {value!r}")
        return algorithm == "https"
    if name == _TLS_VERSIONS:
        versions = tuple(version.strip() for version in value.split(",") if version.strip())
        if not set(versions) <= set(TLS_VERSIONS):
            raise ConfigError(f"{name} is one or both of {', '.join(TLS_VERSIONS)}, not {value!r}")
        return versions
    if name in {"sasl.mechanism", "sasl.mechanisms"}:
        return value.strip().upper()
    return value or None


def _check_other(name: str, value: str) -> None:
    """Raise ConfigError for a name of security that is not known."""
    if name in _WITHOUT_MEANING:
        return
    if name in _STORE_TYPES:
        if value.strip().upper() != "PEM":
            raise ConfigError(f"{name} is PEM, not {value!r}: other stores are not read")
        return
    if not name.startswith(_PREFIXES) or name == _JAAS or name in _TOKEN_PROPERTIES:
        return
    raise ConfigError(f"{name}: {_ADVICE.get(name) or _suggestion(name)}")


def _suggestion(name: str) -> str:
    """What to say of a name that is not known: it may be mistyped."""
    near = get_close_matches(name, [*FIELD_OF, *_TOKEN_PROPERTIES, _JAAS], n=1)
    return f"it is not known; did you mean {near[0]}?" if near else "it is not known"


def _take_others(properties: Mapping[str, str], values: dict[str, object]) -> None:
    """Add what JAAS and the names of OAUTHBEARER say to ``values``."""
    if _JAAS in properties:
        login = jaas.parse(resolve_secret(_JAAS, properties[_JAAS]))
        values.setdefault("sasl_username", login.username)
        values.setdefault("sasl_password", login.password)
    given = {name: properties[name] for name in _TOKEN_PROPERTIES if name in properties}
    if given:
        values["oauth_token"] = token_source(given)
