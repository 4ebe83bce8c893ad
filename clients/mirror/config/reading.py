"""From TOML to a configuration that holds together."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qbus.errors import ConfigError
from qbus.service import toml

from .config import MirrorConfig, Target

_BOOTSTRAP = toml.settings_of(Target)["bootstrap"]


def load(path: Path) -> MirrorConfig:
    """Read a TOML file, as :func:`parse`; raises ConfigError, beginning with the file's name."""
    return toml.read_file(path, parse)


def parse(data: bytes, *, target_bootstrap: str | None = None) -> MirrorConfig:
    """Read TOML in UTF-8.

    target_bootstrap: where the target is when that is not stated.

    Raises:
        ConfigError: it is no TOML, or not allowed; the message names field, value and what is.
    """
    return read(toml.parse(data), target_bootstrap=target_bootstrap)


def read(stated: Mapping[str, Any], *, target_bootstrap: str | None = None) -> MirrorConfig:
    """The configuration that a document of TOML's types states.

    Raises:
        ConfigError: as :func:`parse`.
    """
    target = stated.get("target")
    if target_bootstrap is not None and isinstance(target, Mapping):
        stated = {**stated, "target": {"bootstrap": target_bootstrap, **target}}
    return _whole(toml.read_fields(MirrorConfig, stated))


def _whole(config: MirrorConfig) -> MirrorConfig:
    """Check what no field can tell alone."""
    if not config.target.bootstrap:
        raise ConfigError(f"target.bootstrap is missing: expected {_BOOTSTRAP.rule.allowed}")
    if not config.sources:
        raise ConfigError("nothing to mirror: expected at least one [[source]]")
    names: set[str] = set()
    for number, source in enumerate(config.sources, 1):
        place = f"source[{number}]"
        if source.idc == config.target.idc:
            raise ConfigError(f"{place}.idc = {source.idc!r}: it is the target's")
        if source.idc in names:
            raise ConfigError(f"{place}.idc = {source.idc!r}: it is there twice")
        if not (source.topics or config.topics):
            raise ConfigError(f"{place}.topics is missing, and there are none at the top either")
        names.add(source.idc)
    transfer = config.transfer
    if transfer.partition_fetch_bytes > transfer.fetch_bytes:
        raise ConfigError(
            f"transfer.partition_fetch_bytes = {transfer.partition_fetch_bytes}: expected at most"
            f" fetch_bytes, which is {transfer.fetch_bytes}"
        )
    return config
