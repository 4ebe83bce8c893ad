"""What pipelines are told: dataclasses with their rules, read from TOML and from options."""

from .abuse import AbuseConfig, Baseline, Limits
from .archive import ArchiveConfig, Compaction
from .audit import AuditConfig, Copy
from .checks import check_compaction
from .common import Lines, Output, Pipeline, Source, Streaming
from .reading import PIPELINES, load, read
from .stats import Statistic, StatsConfig

__all__ = [
    "PIPELINES",
    "AbuseConfig",
    "ArchiveConfig",
    "AuditConfig",
    "Baseline",
    "Compaction",
    "Copy",
    "Limits",
    "Lines",
    "Output",
    "Pipeline",
    "Source",
    "Statistic",
    "StatsConfig",
    "Streaming",
    "check_compaction",
    "load",
    "read",
]
