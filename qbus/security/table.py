"""The table of a daemon's TOML that says how its connections are protected.

Its keys are librdkafka's names, ``protocol`` for ``security.protocol``, and ``file`` for a file of
properties whose content holds where the table states nothing::

    [security]
    protocol = "SASL_SSL"
    ssl.ca.location = "/etc/qbus/ca.pem"
    sasl.mechanism = "SCRAM-SHA-512"
    sasl.username = "shipper"
    sasl.password = "file:/etc/qbus/password"

A secret itself never stands in the table: configurations are shown, and kept where others read
them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from qbus.errors import ConfigError
from qbus.service.toml import Rule
from qbus.service.toml.rules import as_table

from .client import ClientSecurity, check_properties
from .properties import read_properties
from .secret import is_reference, is_secret, masked

DOC = (
    "How the connections to brokers are protected: a table of librdkafka's names, such as"
    " `protocol`, `ssl.ca.location`, `sasl.mechanism`, `sasl.username` and `sasl.password`. A"
    " secret is `file:PATH` or `env:NAME`. `file` names a file of such properties. Default:"
    " not at all."
)
"""What the table is for, in the documentation of a daemon's fields."""
FILE = "file"
"""The key of a file of properties."""
_PROTOCOL = "security.protocol"


@dataclass(frozen=True, slots=True, repr=False)
class SecurityTable:
    """What is stated, by librdkafka's names; nothing: connections are not protected. Hashable.

    Its repr masks secrets.
    """

    stated: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"SecurityTable({masked(dict(self.stated))})"

    def check(self) -> None:
        """Raise :class:`~qbus.errors.ConfigError` for what makes no sense, as far as that is known
        without the files that it names.
        """
        properties = dict(self.stated)
        if FILE not in properties:
            check_properties(properties)

    def security(self) -> ClientSecurity:
        """Return what it says, with secrets and files read now.

        Raises :class:`~qbus.errors.ConfigError`.
        """
        properties = dict(self.stated)
        file = properties.pop(FILE, None)
        if file is not None:
            properties = read_properties(file) | properties
        return ClientSecurity.from_properties(properties)


UNPROTECTED: Final = SecurityTable()
"""Nothing is stated."""


def security_rule() -> Rule:
    """A table of librdkafka's names. What it refuses it never quotes: it may be a secret."""

    def read(raw: Any, place: str) -> SecurityTable:
        table = SecurityTable(tuple(_flat(as_table(raw), place)))
        try:
            table.check()
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from None
        return table

    def write(table: SecurityTable) -> dict[str, str]:
        return dict(table.stated)

    return Rule("a table of librdkafka's names", read, write)


def _flat(table: Mapping[str, Any], place: str, within: str = "") -> Iterator[tuple[str, str]]:
    """Yield names and values; TOML makes tables of names with dots."""
    for key, value in table.items():
        name = f"{within}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, place, f"{name}.")
        else:
            yield (_PROTOCOL if name == "protocol" else name), _value(f"{place}.{name}", value)


def _value(place: str, raw: object) -> str:
    if not isinstance(raw, str) or "\0" in raw:
        raise ConfigError(f"{place}: expected text")
    if is_secret(place) and not is_reference(raw):
        raise ConfigError(
            f"{place}: expected file:PATH or env:NAME, not the secret itself: configurations are"
            " shown, and kept where others read them"
        )
    return raw
