"""The configurations of pipelines: dataclasses with their rules, read from TOML and options."""

from .abuse import AbuseConfig, Baseline, Limits
from .archive import ArchiveConfig, Compaction
from .audit import AuditConfig, CopyConfig
from .common import Lines, Output, Pipeline, Source, Streaming
from .reading import ABUSE, ARCHIVE, AUDIT, COMPACTION, LOADERS, STATS, load
from .stats import Statistic, StatsConfig

__all__ = [
    "ABUSE",
    "ARCHIVE",
    "AUDIT",
    "COMPACTION",
    "LOADERS",
    "STATS",
    "AbuseConfig",
    "ArchiveConfig",
    "AuditConfig",
    "Baseline",
    "Compaction",
    "CopyConfig",
    "Limits",
    "Lines",
    "Output",
    "Pipeline",
    "Source",
    "Statistic",
    "StatsConfig",
    "Streaming",
    "load",
]
