"""Loads the broker's configuration: a TOML file, ``-o key=value`` options, the command's flags."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from qbus.config.broker import BrokerConfig
from qbus.errors import ConfigError
from qbus.security.secret import is_reference, resolve_secret


def load_broker_config(
    file: Path | None = None,
    options: Iterable[str] = (),
    flags: Mapping[str, object] | None = None,
) -> BrokerConfig:
    """Return the configuration of a broker that is about to start.

    ``options`` (``key=value``) take precedence over ``file``, and ``flags`` (by Kafka's names, None
    for one that is not given) over both. A secret may stand elsewhere: ``file:PATH``, ``env:NAME``.

    Raises:
        ConfigError: the file cannot be read or is not TOML, or a name or value is not allowed.
    """
    stated: dict[str, object] = {} if file is None else read_file(file)
    stated.update(split_option(option) for option in options)
    stated.update({name: value for name, value in (flags or {}).items() if value is not None})
    return BrokerConfig({name: _resolved(name, value) for name, value in stated.items()})


def _resolved(name: str, value: object) -> object:
    """Read a secret where it says it stands: ``file:PATH`` or ``env:NAME``."""
    if isinstance(value, str) and is_reference(value) and BrokerConfig.key(name).sensitive:
        return resolve_secret(name, value)
    return value


def read_file(path: Path) -> dict[str, object]:
    """Return the keys and values of a TOML file; tables stand for the dots in names.

    A key that is the beginning of another one, as ``max.connections``, is written in quotes.

    Raises:
        ConfigError: the file cannot be read, or is not TOML.
    """
    from qbus.service.toml import documents  # noqa: PLC0415 - most brokers start without a file

    def parse(data: bytes) -> dict[str, object]:
        try:
            return documents.parse(data)
        except ConfigError as error:
            raise ConfigError(f"{error}{_hint(data)}") from error

    return dict(_flatten(documents.read_file(path, parse)))


_PROPERTY = re.compile(r"^\s*([\w.-]+)\s*[=:]\s*([^\s\"'\[{#][^\n]*?)\s*$", re.MULTILINE)


def _hint(data: bytes) -> str:
    """How to write the first line that only a file of properties, as Kafka has, would hold."""
    for name, value in _PROPERTY.findall(data.decode(errors="replace")):
        if not re.fullmatch(r"[+-]?[\d.]+|true|false", value):
            return (
                f"; text is in quotes, unlike in Kafka's properties: {name} = {json.dumps(value)}"
            )
    return ""


def split_option(option: str) -> tuple[str, str]:
    """Return key and value of ``key=value``.

    Raises:
        ConfigError: the ``=`` or the key is missing.
    """
    name, separator, value = option.partition("=")
    if not separator or not name.strip():
        raise ConfigError(f"{option!r}: expected key=value")
    return name.strip(), value


def _flatten(tables: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in tables.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
