"""The configuration of a topic: Kafka's keys and defaults, as of 4.x.

Keys of features that Qbus does not have (preallocation) are accepted, since tools set
them and Kafka, too, ignores them while the feature is off. Turning the feature on is refused.
"""

from qbus.config.settings import Settings, boolean, double, integer, long, string, strings
from qbus.names import check_idc_name, is_topic_name

FOREVER = 2**63 - 1
_HOUR_MS = 60 * 60 * 1000
_DAY_MS = 24 * _HOUR_MS
_WEEK_MS = 7 * _DAY_MS
_MIB = 1024 * 1024

_NO_PREALLOCATION = {"true": "segments are not preallocated; only false is supported"}

DURABILITIES = ("fsync", "memory")


def _not_empty(policies: tuple[str, ...]) -> None:
    if not policies:
        raise ValueError("compact, delete, or both")


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


def _topic_or_none(name: str) -> None:
    if name and not is_topic_name(name):
        raise ValueError("the name of a topic")


def _idcs(names: tuple[str, ...]) -> None:
    for name in names:
        check_idc_name(name)


class TopicKeys(Settings):
    """The keys of a topic."""

    __slots__ = ()

    segment_bytes = integer(
        1024 * _MIB,
        "Size at which a segment is rolled: it is closed and a new one started.",
        unit="bytes",
        at_least=1024,
    )
    segment_ms = long(
        _WEEK_MS,
        "Age at which a segment is rolled even if it is not full, so that retention can delete it.",
        unit="ms",
        at_least=1,
    )
    segment_jitter_ms = long(
        0,
        "Maximum of a random time by which a segment is rolled earlier than segment.ms, so that "
        "partitions do not roll all at once.",
        unit="ms",
        at_least=0,
    )
    segment_index_bytes = integer(
        10 * _MIB,
        "Maximum size of a segment's index; the segment is rolled when it is reached.",
        unit="bytes",
        at_least=4,
    )
    index_interval_bytes = integer(
        4096,
        "Minimum number of bytes of log between two entries of an index.",
        unit="bytes",
        at_least=0,
    )
    retention_ms = long(
        _WEEK_MS,
        "A segment is deleted when its newest record is older than this. -1: no limit.",
        unit="ms",
        at_least=-1,
    )
    retention_bytes = long(
        -1,
        "The oldest segments of a partition are deleted as long as the rest has at least this "
        "size. -1: no limit.",
        unit="bytes",
        at_least=-1,
    )
    max_message_bytes = integer(
        _MIB + 12,
        "Maximum size of a record batch, as compressed by its producer.",
        unit="bytes",
        at_least=0,
    )
    message_timestamp_type = string(
        "CreateTime",
        "The timestamp of a record: the producer's (CreateTime), or the time of the append.",
        choices=("CreateTime", "LogAppendTime"),
    )
    message_timestamp_before_max_ms = long(
        FOREVER,
        "Maximum time by which a producer's timestamp may be behind the broker's clock.",
        unit="ms",
        at_least=0,
    )
    message_timestamp_after_max_ms = long(
        _HOUR_MS,
        "Maximum time by which a producer's timestamp may be ahead of the broker's clock.",
        unit="ms",
        at_least=0,
    )
    min_insync_replicas = integer(
        1,
        "Minimum size of the ISR for writes with acks=all; it counts as no more than the number of "
        "replicas.",
        at_least=1,
    )
    qbus_durability = string(
        "fsync",
        "When a replica acknowledges a record: once it is on stable storage (fsync), or in the "
        "system's page cache (memory).",
        choices=DURABILITIES,
    )
    flush_messages = long(
        FOREVER,
        "With durability memory: flush to stable storage after this number of records.",
        at_least=1,
    )
    flush_ms = long(
        FOREVER,
        "With durability memory: flush to stable storage when a record is unflushed for this time.",
        unit="ms",
        at_least=0,
    )
    file_delete_delay_ms = long(
        60_000,
        "How long the files of a deleted segment stay on disk, for reads that are under way.",
        unit="ms",
        at_least=0,
    )
    preallocate = boolean(
        False,
        "Whether a new segment allocates its disk space in advance.",
        refused=_NO_PREALLOCATION,
    )
    compression_type = string(
        "producer",
        "The compression of batches in the log. producer: as the producer compressed them;"
        " otherwise the broker compresses anew what comes in another codec.",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    )
    compression_gzip_level = integer(
        -1,
        "Level of gzip, where the broker compresses. -1: gzip's default.",
        at_least=-1,
        at_most=9,
        check=_gzip_level,
    )
    compression_lz4_level = integer(
        9, "Level of lz4, where the broker compresses. 9: lz4's default.", at_least=1, at_most=17
    )
    compression_zstd_level = integer(
        3, "Level of zstd, where the broker compresses.", at_least=-131072, at_most=22
    )
    cleanup_policy = strings(
        ("delete",),
        "What happens to old records. delete: retention.ms and retention.bytes delete them; "
        "compact: of the records of a key only the newest stays; both: both.",
        choices=("compact", "delete"),
        check=_not_empty,
    )
    delete_retention_ms = long(
        _DAY_MS,
        "How long compaction keeps records without a value, which delete their keys, and the ends "
        "of transactions, after their first compaction.",
        unit="ms",
        at_least=0,
    )
    min_compaction_lag_ms = long(
        0, "Minimum time for which compaction does not touch a record.", unit="ms", at_least=0
    )
    max_compaction_lag_ms = long(
        FOREVER,
        "Maximum time after which a record becomes subject to compaction. The segment that is "
        "appended to is rolled in time.",
        unit="ms",
        at_least=1,
    )
    min_cleanable_dirty_ratio = double(
        0.5,
        "Minimum share of a log that is not compacted yet, for compaction to start.",
        at_least=0,
        at_most=1,
    )
    unclean_leader_election_enable = boolean(
        False,
        "Whether a replica that is not in sync may become leader when no other is left; records "
        "are lost then.",
    )
    leader_replication_throttled_replicas = strings(
        (),
        "The replicas under leader.replication.throttled.rate, as partition:broker; *: all.",
        check=_replicas,
    )
    follower_replication_throttled_replicas = strings(
        (),
        "The replicas under follower.replication.throttled.rate, as partition:broker; *: all.",
        check=_replicas,
    )
    qbus_delay_enable = boolean(
        False,
        "Whether records with the header qbus-deliver-at or qbus-delay are held back until they "
        "are due, and others may cancel or reschedule them.",
    )
    qbus_delay_max_ms = long(
        2 * 365 * _DAY_MS,
        "How far ahead a record may be due; one that is due later is refused.",
        unit="ms",
        at_least=0,
    )
    qbus_delay_max_pending = long(
        100_000_000,
        "How many delayed records a partition holds back at most; more are refused. Each takes "
        "about 12 bytes of memory.",
        at_least=0,
    )
    qbus_delay_dead_letter_topic = string(
        "",
        "The topic that gets the delayed records whose qbus-ttl had passed when they could be "
        "delivered. Without one they are dropped.",
        check=_topic_or_none,
    )
    qbus_queue_retention = string(
        "time",
        "When old records are deleted. time: as retention.ms and retention.bytes say, whether share"
        " groups have taken them or not. acknowledged: once all share groups that the partition "
        "knows are done with them, and not before; as long as it knows none, as with time.",
        choices=("time", "acknowledged"),
    )
    qbus_queue_idle_ms = long(
        -1,
        "Idle time-out of the queue: the topic is deleted once it has no job that is not done and "
        "has not been used for this time. -1: never. Queues that ADDJOB creates by itself have "
        "disque.queue.idle.ms; any other change of their configuration sets it to -1.",
        unit="ms",
        at_least=-1,
    )
    qbus_queue_group_idle_ms = long(
        -1,
        "Idle time-out of share groups, with qbus.queue.retention=acknowledged: a group gives up "
        "the records that it has not done, except in the active segment, when none of its members "
        "has taken records of the partition, or waited for any, for this time. -1: never; the "
        "broker's log names idle groups once a day.",
        unit="ms",
        at_least=-1,
    )
    qbus_queue_delivery_limit = integer(
        -1,
        "How often a record is given out at most, by every share group. 0: no limit; -1: as "
        "share.delivery.count.limit of the group says.",
        at_least=-1,
    )
    qbus_queue_retry_backoff_ms = long(
        -1,
        "How long a record is not given out again after its first delivery failed, by every share "
        "group; each further one doubles it, and a random fifth is added or taken away. -1: as "
        "qbus.retry.backoff.ms of the group says.",
        unit="ms",
        at_least=-1,
        at_most=365 * _DAY_MS,
    )
    qbus_queue_retry_backoff_max_ms = long(
        -1,
        "Longest time that a record is not given out after a failed delivery, by every share "
        "group. -1: as qbus.retry.backoff.max.ms of the group says.",
        unit="ms",
        at_least=-1,
        at_most=365 * _DAY_MS,
    )
    qbus_queue_dead_letter_topic = string(
        "",
        "The topic that gets records which a share group rejected, or got too often. Empty: the "
        "one that errors.deadletterqueue.topic.name of the group names.",
        check=_topic_or_none,
    )
    qbus_queue_pause = string(
        "none",
        "What the topic does not do as a queue of jobs: in, take jobs; out, give them out; all, "
        "neither. Records are appended and fetched as ever.",
        choices=("none", "in", "out", "all"),
    )
    qbus_mirror_source = string(
        "",
        "The datacenter (IDC) whose topic this one mirrors. Only a mirror writes to it, at the "
        "offsets that the records have there. It is set when the topic is created. Removing it "
        "turns the topic into an ordinary one for good; writes continue where the mirror ended.",
        check=_idc_or_none,
    )
    qbus_mirror_topic_id = string(
        "",
        "The id of the topic that this one mirrors. It tells it from a new topic of the same name.",
    )
    qbus_mirror_path = strings(
        (),
        "The datacenters (IDCs) that the records of a mirror come through; first the one where "
        "they were written.",
        check=_idcs,
    )
    qbus_mirror_former_source = string(
        "",
        "The datacenter (IDC) that this topic mirrored before qbus.mirror.source was removed. The "
        "broker sets it for good. The offsets of such a topic may have gaps.",
        check=_idc_or_none,
    )
    qbus_compacted = boolean(
        False,
        "Whether the topic was compacted before compact was removed from cleanup.policy. The "
        "broker sets it for good. The offsets of such a topic may have gaps.",
    )


TOPIC_CONFIG = TopicKeys.KEYS
