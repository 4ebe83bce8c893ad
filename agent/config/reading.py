"""From TOML to a configuration that holds together."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from qbus.errors import ConfigError
from qbus.service import toml

from .config import AgentConfig

_BOOTSTRAP = toml.settings_of(AgentConfig)["bootstrap"]
_WITHOUT_LEVELS = frozenset({"none", "snappy"})


def load(path: Path, **defaults: str) -> AgentConfig:
    """Read a TOML file, as :func:`parse`; raises ConfigError, beginning with the file's name."""
    return toml.read_file(path, lambda data: parse(data, **defaults))


def parse(data: bytes, **defaults: str) -> AgentConfig:
    """Read TOML in UTF-8.

    defaults: top-level fields that take these values where they are not stated.

    Raises:
        ConfigError: it is no TOML, or not allowed; the message names field, value and what is.
    """
    return read({**defaults, **toml.parse(data)})


def read(stated: Mapping[str, Any]) -> AgentConfig:
    """The configuration that a document of TOML's types states.

    Raises:
        ConfigError: as :func:`parse`.
    """
    return _whole(toml.read_fields(AgentConfig, stated))


def _whole(config: AgentConfig) -> AgentConfig:
    """Check what no field can tell alone, and give each source its topic."""
    if not config.bootstrap:
        raise ConfigError(f"bootstrap is missing: expected {_BOOTSTRAP.rule.allowed}")
    if not config.sources and not config.spools:
        raise ConfigError("nothing to ship: expected at least one [[source]] or [[spool]]")
    for number, source in enumerate(config.sources, 1):
        if not (source.topic or config.topic):
            raise ConfigError(
                f"source[{number}].topic is missing, and there is no topic at the top either"
            )
        if source.line_limit_bytes <= len(source.truncation_marker.encode()):
            raise ConfigError(
                f"source[{number}].truncation_marker = {source.truncation_marker!r}:"
                " expected less than line_limit_bytes"
            )
    delivery = config.delivery
    if delivery.compression_level is not None and delivery.compression in _WITHOUT_LEVELS:
        raise ConfigError(
            f"delivery.compression_level = {delivery.compression_level}:"
            f" compression {delivery.compression} has no levels"
        )
    directories = [spool.directory.rstrip("/") for spool in config.spools]
    for number, directory in enumerate(directories, 1):
        if directory in directories[: number - 1]:
            raise ConfigError(f"spool[{number}].directory = {directory!r}: it is there twice")
    sources = tuple(
        replace(source, topic=source.topic or config.topic) for source in config.sources
    )
    return replace(config, sources=sources)
