"""Where a client gets its bearer tokens: a file, or a token endpoint (OAuth 2, RFC 6749).

The names are Kafka's and librdkafka's (KIP-768): ``sasl.oauthbearer.token.endpoint.url`` is
``file:///path`` for a token that something else keeps fresh, or ``https://...`` for one that is
asked for with the client's own credentials.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from qbus.errors import ConfigError, NoToken

from .secret import resolve_secret

_URL = "sasl.oauthbearer.token.endpoint.url"
_ID = ("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id")
_SECRET = ("sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.client.secret")


@dataclass(frozen=True, slots=True)
class FileToken:
    """The token that a file holds; read anew each time."""

    path: str

    def __call__(self) -> str:
        """Return the token. Raises :class:`~qbus.errors.NoToken`."""
        try:
            token = Path(self.path).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not a token"
            raise NoToken(f"{self.path}: {reason}") from None
        if not token:
            raise NoToken(f"{self.path}: it is empty")
        return token


@dataclass(frozen=True, slots=True)
class EndpointToken:
    """A token for a client's own credentials, asked for at an endpoint (RFC 6749, section 4.4).

    ``client_secret`` may be ``file:PATH`` or ``env:NAME``.
    """

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None

    def __call__(self) -> str:
        """Return a new token; waits for the endpoint. Raises :class:`~qbus.errors.NoToken`."""
        from .token_endpoint import ask_for_token  # noqa: PLC0415 - most clients need none

        secret = resolve_secret("sasl.oauthbearer.client.secret", self.client_secret)
        return ask_for_token(self.url, self.client_id, secret, self.scope)


def token_source(properties: Mapping[str, str]) -> Callable[[], str]:
    """Return where tokens come from by ``sasl.oauthbearer.*``.

    Raises :class:`~qbus.errors.ConfigError`.
    """
    url = properties.get(_URL, "")
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ConfigError(f"{_URL} holds no credentials: write them in {_ID[1]} and {_SECRET[1]}")
    if parts.scheme == "file":
        return FileToken(unquote(parts.path))
    is_local = parts.hostname in {"localhost", "127.0.0.1", "::1"}
    if parts.scheme != "https" and not (parts.scheme == "http" and is_local):
        raise ConfigError(f"{_URL} is https://... or file:///path, not {url!r}")
    client_id, secret = (_first(properties, names) for names in (_ID, _SECRET))
    if not client_id or not secret:
        raise ConfigError(f"{_URL} needs {_ID[1]} and {_SECRET[1]}")
    return EndpointToken(url, client_id, secret, properties.get("sasl.oauthbearer.scope"))


def _first(properties: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((properties[name] for name in names if name in properties), None)
