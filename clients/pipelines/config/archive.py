"""The configuration of the archive."""

# ruff: noqa: RUF009 - `setting` gives a dataclass its fields

from dataclasses import dataclass

from qbus.service.toml import rules, setting

from . import rules as own
from .common import Streaming

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """How small files are merged: the ``[compaction]`` table."""

    enabled: bool = setting(
        True, rules.boolean(), "Whether the running archive merges small files."
    )
    target_bytes: int = setting(
        128 * _MIB, rules.whole(1024, 1 << 40), "Approximate size of merged files."
    )
    files: int = setting(
        16,
        rules.whole(2, 10_000),
        "The least number of small files of an hour to merge; a small file has less than half of"
        " `target_bytes`. At the end of a run with `--once`, two suffice.",
    )
    keep_replaced: int = setting(
        3_600_000,
        own.duration(at_least_ms=60_000),
        "How long replaced files are kept for readers that have started before; must exceed the"
        " time of the longest query on the archive.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveConfig(Streaming):
    """The top level of the archive's file."""

    path: str = setting(
        "", rules.text(1, 4096), "The archive: a directory, or a URL that Spark accepts."
    )
    interval: int = setting(
        60_000, own.duration(), "Shortest time from one micro-batch to the next."
    )
    time_zone: str = setting(
        "UTC", rules.text(1, 64), "Time zone of the dates and hours of directories."
    )
    compression: str = setting(
        "zstd",
        rules.choice("none", "snappy", "gzip", "lz4_raw", "zstd"),
        "Compression of Parquet's pages.",
    )
    headers: bool = setting(True, rules.boolean(), "Whether headers are archived.")
    compaction: Compaction = setting(
        Compaction(), rules.table(Compaction), "How small files are merged."
    )
