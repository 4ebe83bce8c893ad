"""The configuration of the archive."""

# ruff: noqa: RUF009 - `setting` gives a dataclass its fields

from dataclasses import dataclass

from qbus.service.toml import rules, setting

from . import rules as own
from .common import Streaming

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """How small files become large ones: the ``[compaction]`` table."""

    enabled: bool = setting(True, rules.boolean(), "Whether the running archive compacts.")
    target_bytes: int = setting(
        128 * _MIB, rules.whole(1024, 1 << 40), "How large files become, about."
    )
    files: int = setting(
        16,
        rules.whole(2, 10_000),
        "From how many small files of an hour on they are made into one; a small one has less than"
        " half of `target_bytes`. At the end of a run with `--once`, from two on.",
    )
    keep_replaced: int = setting(
        3_600_000,
        own.duration(at_least_ms=60_000),
        "For how long files stay that are in no snapshot any more, for readers that began before;"
        " longer than any query on the archive takes.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveConfig(Streaming):
    """Everything the archive is told, at the top of the file."""

    path: str = setting(
        "", rules.text(1, 4096), "The archive: a directory, or a URL that Spark takes."
    )
    interval: int = setting(60_000, own.duration(), "How often a micro-batch begins, at most.")
    time_zone: str = setting(
        "UTC", rules.text(1, 64), "Whose dates and hours the directories have."
    )
    compression: str = setting(
        "zstd",
        rules.choice("none", "snappy", "gzip", "lz4_raw", "zstd"),
        "How Parquet's pages are compressed.",
    )
    headers: bool = setting(True, rules.boolean(), "Whether headers are archived.")
    compaction: Compaction = setting(
        Compaction(), rules.table(Compaction), "How small files become large ones."
    )
