"""Reading the configuration of a mirror: ``load`` from a file, ``parse`` from TOML, ``read``."""

from qbus.errors import ConfigError
from qbus.service import toml

from .config import MirrorConfig, Target

_BOOTSTRAP = toml.settings_of(Target)["bootstrap"]


def _checked(config: MirrorConfig) -> MirrorConfig:
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


LOADER = toml.Loader(MirrorConfig, _checked)
load, parse, read = LOADER.load, LOADER.parse, LOADER.read
