"""The strings by which Kafka's Java clients are told who they are (``sasl.jaas.config``).

A string names a login module, a flag, and options in quotes::

    org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b";
"""

import re
from dataclasses import dataclass, field

from qbus.errors import ConfigError

_MODULES = ("PlainLoginModule", "ScramLoginModule")
_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([=;])|([^\s=;"']+))""")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Login:
    """Who a client is, by its login module."""

    module: str
    username: str
    password: str = field(repr=False)


def parse(text: str) -> Login:
    """Return the login that a JAAS string describes.

    Raises :class:`~qbus.errors.ConfigError`, which never quotes the string: it holds a password.
    """
    tokens = _tokens(text)
    module = tokens[0].rpartition(".")[2] if tokens else ""
    if module not in _MODULES:
        raise ConfigError(f"sasl.jaas.config: the login module is one of {', '.join(_MODULES)}")
    if len(tokens) < 3 or tokens[1].lower() not in _FLAGS or tokens[-1] != ";":
        raise ConfigError(
            'sasl.jaas.config: expected: MODULE required username="..." password="...";'
        )
    options = _options(tokens[2:-1])
    for name in ("username", "password"):
        if not options.get(name):
            raise ConfigError(f"sasl.jaas.config: {name} is missing")
    return Login(module, options["username"], options["password"])


def _tokens(text: str) -> list[str]:
    tokens = []
    at = 0
    text = text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ConfigError("sasl.jaas.config: a quotation mark is not closed")
        quoted = match[1] if match[1] is not None else match[2]
        tokens.append(_ESCAPED.sub(r"\1", quoted) if quoted is not None else match[3] or match[4])
        at = match.end()
    return tokens


def _options(tokens: list[str]) -> dict[str, str]:
    names, equals, values = tokens[0::3], tokens[1::3], tokens[2::3]
    if len(tokens) % 3 or any(sign != "=" for sign in equals):
        raise ConfigError(
            "sasl.jaas.config: expected options as name=\"value\", and ';' at the end"
        )
    return dict(zip(names, values, strict=True))
