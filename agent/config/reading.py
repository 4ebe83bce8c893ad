"""Reading the configuration of an agent: ``load`` from a file, ``parse`` from TOML, ``read``."""

from dataclasses import replace

from qbus.errors import ConfigError
from qbus.service import toml

from .config import AgentConfig

_BOOTSTRAP = toml.settings_of(AgentConfig)["bootstrap"]
_WITHOUT_LEVELS = frozenset({"none", "snappy"})


def _checked(config: AgentConfig) -> AgentConfig:
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


LOADER = toml.Loader(AgentConfig, _checked)
load, parse, read = LOADER.load, LOADER.parse, LOADER.read
