"""From TOML to the configuration of a pipeline that holds together."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from qbus.service import toml

from .abuse import AbuseConfig
from .archive import ArchiveConfig
from .audit import AuditConfig
from .checks import check_abuse, check_archive, check_audit, check_stats
from .common import Pipeline
from .stats import StatsConfig

P = TypeVar("P", bound=Pipeline)

_CHECKS: dict[type[Pipeline], Callable[[Any], None]] = {
    ArchiveConfig: check_archive,
    StatsConfig: check_stats,
    AbuseConfig: check_abuse,
    AuditConfig: check_audit,
}

PIPELINES: Mapping[str, type[Pipeline]] = {
    "archive": ArchiveConfig,
    "stats": StatsConfig,
    "abuse": AbuseConfig,
    "audit": AuditConfig,
}
"""The pipelines there are, and what each is configured by."""


def load(
    kind: type[P],
    path: Path | None,
    stated: Mapping[str, Any],
    check: Callable[[P], None] | None = None,
) -> P:
    """The configuration in a file, where what is ``stated`` counts before what the file says.

    check: as :func:`read`.

    Raises:
        ConfigError: as :func:`read`, beginning with the file's name; or it cannot be read.
    """
    if path is None:
        return read(kind, stated, check)
    return toml.read_file(path, lambda data: read(kind, _merged(toml.parse(data), stated), check))


def read(kind: type[P], stated: Mapping[str, Any], check: Callable[[P], None] | None = None) -> P:
    """The configuration that a document of TOML's types states.

    check: whether it holds together; by default for the pipeline of that kind.

    Raises:
        ConfigError: something is unknown, missing or not allowed; the message names the key, its
            value and what is.
    """
    config = toml.read_fields(kind, stated)
    (check or _CHECKS[kind])(config)
    return config


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged, all else is replaced."""
    merged = dict(below)
    for name, value in above.items():
        there = merged.get(name)
        if isinstance(value, Mapping) and isinstance(there, Mapping):
            merged[name] = _merged(there, value)
        else:
            merged[name] = value
    return merged
