"""From TOML to a configuration that holds together."""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from qbus.errors import ConfigError

from .config import AgentConfig
from .field import settings_of

_BOOTSTRAP = settings_of(AgentConfig)["bootstrap"]
_WITHOUT_LEVELS = frozenset({"none", "snappy"})

MAX_BYTES = 512 * 1024
"""The longest configuration, in bytes of TOML: a node of ZooKeeper has to hold it."""


def load(path: Path, **defaults: str) -> AgentConfig:
    """Read a TOML file, as :func:`parse`; raises ConfigError, beginning with the file's name."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    try:
        return parse(data, **defaults)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse(data: bytes, **defaults: str) -> AgentConfig:
    """Read TOML in UTF-8.

    defaults: top-level fields that take these values where they are not stated.

    Raises:
        ConfigError: it is no TOML, or not allowed; the message names field, value and what is.
    """
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{len(data)} bytes are too long: at most {MAX_BYTES} are allowed")
    try:
        stated = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"not TOML: {error}") from error
    return read({**defaults, **stated})


def read(stated: Mapping[str, Any]) -> AgentConfig:
    """The configuration that a document of TOML's types states.

    Raises:
        ConfigError: as :func:`parse`.
    """
    config: AgentConfig = read_fields(AgentConfig, stated, "")
    return _whole(config)


def read_fields(kind: type, stated: Mapping[str, Any], place: str) -> Any:
    """An instance of ``kind``; ``place`` is where the table is, empty at the top."""
    settings = settings_of(kind)
    within = f"{place}." if place else ""
    for name in stated:
        if name not in settings:
            raise ConfigError(f"{within}{name}: {_unknown(name, list(settings))}")
    for name, setting in settings.items():
        if setting.is_required and name not in stated:
            raise ConfigError(f"{within}{name} is missing: expected {setting.rule.allowed}")
    return kind(
        **{
            settings[name].attribute: settings[name].rule.parse(f"{within}{name}", raw)
            for name, raw in stated.items()
        }
    )


def _unknown(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]}?" if close else "there are " + ", ".join(known)
    return f"no such field; {hint}"


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
