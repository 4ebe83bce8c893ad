"""How a program says what protects its connections: one list of options for every client."""

import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypedDict, Unpack

from qbus.errors import ConfigError
from qbus.security.client import ClientSecurity, OAuthToken


class TokenProvider(Protocol):
    """An object that returns bearer tokens, as kafka-python's."""

    def token(self) -> str | Awaitable[str]:
        """Return a token that is valid now."""


class SecurityOptions(TypedDict, total=False):
    """The options of every client about security, named as in kafka-python.

    security: all of it in one: a :class:`~qbus.clients.ClientSecurity`, or properties with
        librdkafka's names, such as ``read_properties("client.properties")``. The others add to it.
    security_protocol: "PLAINTEXT" (the default), "SSL", "SASL_PLAINTEXT" or "SASL_SSL".
    ssl_cafile: PEM file of the authorities that sign brokers' certificates; by default those that
        the system trusts.
    ssl_certfile, ssl_keyfile, ssl_password: PEM files of this client's certificate and its key, and
        what decrypts the key.
    ssl_check_hostname: whether a broker's certificate must name the host that is connected to.
    ssl_context: a context of one's own, in place of these.
    sasl_mechanism: "SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN" or "OAUTHBEARER".
    sasl_username, sasl_password: also as sasl_plain_username and sasl_plain_password.
    sasl_oauth_token_provider: returns the token for OAUTHBEARER, for each connection anew: a plain
        function, which is called in a thread, a coroutine function, or an object with a method
        ``token``.

    A password may be ``file:PATH`` or ``env:NAME``; then it is read again for each connection.
    """

    security: ClientSecurity | Mapping[str, str] | None
    security_protocol: str
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_password: str | None
    ssl_check_hostname: bool
    ssl_context: ssl.SSLContext | None
    sasl_mechanism: str | None
    sasl_username: str | None
    sasl_password: str | None
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_oauth_token_provider: TokenProvider | OAuthToken | None


_FIELD_OF = {
    "security_protocol": "protocol",
    "ssl_cafile": "ssl_ca_location",
    "ssl_certfile": "ssl_certificate_location",
    "ssl_keyfile": "ssl_key_location",
    "ssl_password": "ssl_key_password",
    "ssl_check_hostname": "check_hostname",
    "ssl_context": "ssl_context",
    "sasl_mechanism": "sasl_mechanism",
    "sasl_username": "sasl_username",
    "sasl_password": "sasl_password",
    "sasl_plain_username": "sasl_username",
    "sasl_plain_password": "sasl_password",
    "sasl_oauth_token_provider": "oauth_token",
}

PLAINTEXT = ClientSecurity()
"""Nothing is protected."""


def security_of(client: str, **options: Unpack[SecurityOptions]) -> ClientSecurity:
    """Return what the options of ``client`` say; PLAINTEXT if they say nothing.

    Raises :class:`~qbus.errors.ConfigError`, and TypeError for options that no client has.
    """
    given: dict[str, Any] = dict(options)
    base = given.pop("security", None)
    unknown = given.keys() - _FIELD_OF.keys()
    if unknown:
        raise TypeError(f"{client} got an unexpected keyword argument {min(unknown)!r}")
    known = _known(base)
    values = {_FIELD_OF[name]: value for name, value in given.items() if value is not None}
    if "protocol" in values:
        values["protocol"] = str(values["protocol"]).upper()
    if "oauth_token" in values:
        values["oauth_token"] = _function(values["oauth_token"])
    return known.changed(**values) if values else known


def _known(base: object) -> ClientSecurity:
    if base is None:
        return PLAINTEXT
    if isinstance(base, ClientSecurity):
        return base
    if isinstance(base, Mapping):
        return ClientSecurity.from_properties(base)
    raise ConfigError(
        f"security is a ClientSecurity, or a mapping of properties, not a {type(base).__name__}"
    )


def _function(provider: TokenProvider | OAuthToken) -> Callable[[], str | Awaitable[str]]:
    token = getattr(provider, "token", provider)
    if not callable(token):
        raise ConfigError("sasl_oauth_token_provider is a function, or has a method token")
    return token
