"""What can be set for one topic: Kafka's topic configuration, names and defaults as of 4.x.

Keys that matter only for what Qbus does not do (compaction, recompression) are accepted, because
Kafka without those ignores them as well, and tools set them. Asking for the thing is refused.
"""

from qbus.config.settings import Settings, boolean, double, integer, long, string, strings
from qbus.names import check_idc_name

FOREVER = 2**63 - 1
_HOUR_MS = 60 * 60 * 1000
_DAY_MS = 24 * _HOUR_MS
_WEEK_MS = 7 * _DAY_MS
_MIB = 1024 * 1024

_NO_COMPACTION = {"compact": "compaction is not supported; only delete is"}
_NO_RECOMPRESSION = dict.fromkeys(
    ("uncompressed", "none", "gzip", "snappy", "lz4", "zstd"),
    "the broker keeps batches as their producers compressed them; only producer is supported",
)
_NO_PREALLOCATION = {"true": "segments are not preallocated; only false is supported"}

DURABILITIES = ("fsync", "memory")


def _not_empty(policies: tuple[str, ...]) -> None:
    if not policies:
        raise ValueError("delete")


def _gzip_level(level: int) -> None:
    if level == 0:
        raise ValueError("-1, or a level from 1 to 9")


def _replicas(listed: tuple[str, ...]) -> None:
    pairs = (item.partition(":") for item in listed if item not in {"*", "none"})
    if not all(a.isascii() and a.isdigit() and b.isascii() and b.isdigit() for a, _, b in pairs):
        raise ValueError("partition:broker,partition:broker..., or * for all")
    if len(listed) > 1 and {"*", "none"}.intersection(listed):
        raise ValueError("* or none alone, or partition:broker,partition:broker...")


def _idc_or_none(name: str) -> None:
    if name:
        check_idc_name(name)


def _idcs(names: tuple[str, ...]) -> None:
    for name in names:
        check_idc_name(name)


class TopicKeys(Settings):
    """The keys of a topic."""

    __slots__ = ()

    segment_bytes = integer(
        1024 * _MIB,
        "Size at which a segment file is closed and the next one started.",
        unit="bytes",
        at_least=1024,
    )
    segment_ms = long(
        _WEEK_MS,
        "Age at which a segment is closed even if it is not full, so that retention can delete it.",
        unit="ms",
        at_least=1,
    )
    segment_jitter_ms = long(
        0,
        "Up to how much earlier than segment.ms a segment is closed, chosen at random, so that "
        "partitions do not close all at once.",
        unit="ms",
        at_least=0,
    )
    segment_index_bytes = integer(
        10 * _MIB,
        "Size that an index of a segment may reach before the segment is closed.",
        unit="bytes",
        at_least=4,
    )
    index_interval_bytes = integer(
        4096,
        "An index gets an entry at most every so many bytes of log.",
        unit="bytes",
        at_least=0,
    )
    retention_ms = long(
        _WEEK_MS,
        "Segments whose newest record is older are deleted. -1: no limit of time.",
        unit="ms",
        at_least=-1,
    )
    retention_bytes = long(
        -1,
        "The oldest segments of a partition are deleted while it would stay above this size. "
        "-1: no limit of size.",
        unit="bytes",
        at_least=-1,
    )
    max_message_bytes = integer(
        _MIB + 12,
        "The largest record batch that is accepted, as compressed by its producer.",
        unit="bytes",
        at_least=0,
    )
    message_timestamp_type = string(
        "CreateTime",
        "Whose time a record carries: that of its producer, or that of the broker at the append.",
        choices=("CreateTime", "LogAppendTime"),
    )
    message_timestamp_before_max_ms = long(
        FOREVER,
        "How far behind the broker's clock a producer's timestamp may be.",
        unit="ms",
        at_least=0,
    )
    message_timestamp_after_max_ms = long(
        _HOUR_MS,
        "How far ahead of the broker's clock a producer's timestamp may be.",
        unit="ms",
        at_least=0,
    )
    min_insync_replicas = integer(
        1,
        "How many replicas must be in sync for a write with acks=all to be accepted; "
        "no more than a partition has.",
        at_least=1,
    )
    qbus_durability = string(
        "fsync",
        "When a record counts as acknowledged: once it is on stable storage (fsync), or once it is "
        "written to the system's page cache (memory).",
        choices=DURABILITIES,
    )
    flush_messages = long(
        FOREVER,
        "With durability memory: flush to stable storage after so many records.",
        at_least=1,
    )
    flush_ms = long(
        FOREVER,
        "With durability memory: flush to stable storage when something is unflushed for so long.",
        unit="ms",
        at_least=0,
    )
    file_delete_delay_ms = long(
        60_000,
        "How long a deleted segment's files stay on disk, for readers that still have them.",
        unit="ms",
        at_least=0,
    )
    preallocate = boolean(
        False,
        "Whether a new segment reserves its disk space at once.",
        refused=_NO_PREALLOCATION,
    )
    compression_type = string(
        "producer",
        "How batches are compressed in the log: as their producer did.",
        choices=("producer",),
        refused=_NO_RECOMPRESSION,
    )
    compression_gzip_level = integer(
        -1,
        "Level of gzip, were the broker to compress. -1: gzip's default.",
        at_least=-1,
        at_most=9,
        check=_gzip_level,
    )
    compression_lz4_level = integer(
        9, "Level of lz4, were the broker to compress.", at_least=1, at_most=17
    )
    compression_zstd_level = integer(
        3, "Level of zstd, were the broker to compress.", at_least=-131072, at_most=22
    )
    cleanup_policy = strings(
        ("delete",),
        "What happens to old records: deleted by retention.ms and retention.bytes.",
        choices=("delete",),
        refused=_NO_COMPACTION,
        check=_not_empty,
    )
    delete_retention_ms = long(
        _DAY_MS,
        "How long compaction would keep deletion markers.",
        unit="ms",
        at_least=0,
    )
    min_compaction_lag_ms = long(
        0, "How long a record would stay uncompacted at least.", unit="ms", at_least=0
    )
    max_compaction_lag_ms = long(
        FOREVER,
        "How long a record would stay uncompacted at most.",
        unit="ms",
        at_least=1,
    )
    min_cleanable_dirty_ratio = double(
        0.5,
        "Share of a log that is uncompacted before compaction would start.",
        at_least=0,
        at_most=1,
    )
    unclean_leader_election_enable = boolean(
        False,
        "Whether a replica that was not in sync may become leader when no other is left, losing "
        "records.",
    )
    leader_replication_throttled_replicas = strings(
        (),
        "The replicas for which leader.replication.throttled.rate counts, as partition:broker; "
        "*: all.",
        check=_replicas,
    )
    follower_replication_throttled_replicas = strings(
        (),
        "The replicas for which follower.replication.throttled.rate counts, as partition:broker; "
        "*: all.",
        check=_replicas,
    )
    qbus_mirror_source = string(
        "",
        "The IDC whose topic this one mirrors: only a mirror writes to it, at the offsets that the "
        "records have there. Set when the topic is created. Removing it makes the topic an "
        "ordinary one that goes on where the mirror ended, for good.",
        check=_idc_or_none,
    )
    qbus_mirror_topic_id = string(
        "",
        "The id of the topic that this one mirrors, so that one created anew under the same name "
        "is not taken for it.",
    )
    qbus_mirror_path = strings(
        (),
        "The IDCs that the records of a mirror come through, the one where they were written "
        "first.",
        check=_idcs,
    )
    qbus_mirror_former_source = string(
        "",
        "The IDC whose mirror this topic was before qbus.mirror.source was removed; the broker "
        "sets it, and it stays. The offsets of such a topic may have gaps.",
        check=_idc_or_none,
    )


TOPIC_CONFIG = TopicKeys.KEYS
