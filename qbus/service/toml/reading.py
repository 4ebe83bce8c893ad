"""From TOML to dataclasses, or a refusal that names the field, its value and what is allowed."""

import difflib
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from qbus.errors import ConfigError
from qbus.service.toml.field import settings_of

MAX_BYTES = 512 * 1024
"""The longest configuration, in bytes of TOML: a node of ZooKeeper has to hold it."""

C = TypeVar("C")


def read_file(path: Path, read: Callable[[bytes], C]) -> C:
    """What ``read`` makes of a file; raises ConfigError, beginning with the file's name."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    try:
        return read(data)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse(data: bytes) -> dict[str, Any]:
    """The document in TOML, in UTF-8; raises ConfigError for what is none, or is too long."""
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{len(data)} bytes are too long: at most {MAX_BYTES} are allowed")
    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"not TOML: {error}") from error


def read_fields(kind: type[C], stated: Mapping[str, Any], place: str = "") -> C:
    """An instance of ``kind``; ``place`` is where the table is, empty at the top.

    Raises ConfigError for fields that are unknown, missing, or hold what they may not.
    """
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
