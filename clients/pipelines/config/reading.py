"""Reading the configuration of each pipeline: from TOML, from options, or from both."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qbus.service.toml import Loader

from .abuse import AbuseConfig
from .archive import ArchiveConfig
from .audit import AuditConfig
from .checks import check_abuse, check_archive, check_audit, check_compaction, check_stats
from .stats import StatsConfig

ARCHIVE = Loader(ArchiveConfig, check_archive)
COMPACTION = Loader(ArchiveConfig, check_compaction)
STATS = Loader(StatsConfig, check_stats)
ABUSE = Loader(AbuseConfig, check_abuse)
AUDIT = Loader(AuditConfig, check_audit)

LOADERS: Mapping[str, Loader[Any]] = {
    "archive": ARCHIVE,
    "compact": COMPACTION,
    "stats": STATS,
    "abuse": ABUSE,
    "audit": AUDIT,
}
"""How the configuration of each pipeline is read, by its name."""


def load(name: str, path: Path | None, stated: Mapping[str, Any]) -> Any:
    """The configuration of the pipeline ``name``; ``stated`` overrides what the file says.

    Raises :class:`~qbus.errors.ConfigError`, which names the file and the key.
    """
    loader = LOADERS[name]
    return loader.read(stated) if path is None else loader.load(path, overrides=stated)
