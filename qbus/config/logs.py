"""Broker configuration: the defaults of topics, and the care of log files."""

from sys import float_info
from typing import Any, TypeVar

from qbus.config.key import ConfigKey
from qbus.config.settings import Field, Settings, boolean, double, integer, long, strings, unset
from qbus.config.topic import TopicKeys
from qbus.config.types import ConfigType

_MINUTE_MS = 60_000
_MIB = 1024 * 1024

T = TypeVar("T")


def _default_of(topic: Field[T]) -> Field[T]:
    """Define a broker key that is the default of a topic key, with its type and range."""
    return _copy(topic.key, topic.key.default)


def _refines_default_of(topic: Field[T]) -> Field[T | None]:
    """Define the same without a default: while it is not set, a key with a coarser unit counts."""
    return _copy(topic.key, None)


def _copy(key: ConfigKey, default: Any) -> Field[Any]:
    return Field(
        key.type,
        default,
        f"Default of the topics' {key.name}: {key.doc}",
        unit=key.unit,
        at_least=key.at_least,
        at_most=key.at_most,
        choices=key.choices,
        refused=key.refused,
        check=key.check,
    )


class LogKeys(Settings):
    """The creation of topics, their defaults, and the care of log files."""

    __slots__ = ()

    auto_create_topics_enable = boolean(
        True, "Whether a topic that does not exist is created when a client asks for it."
    )
    num_partitions = integer(
        1,
        "Number of partitions of a new topic, unless its creator states one.",
        at_least=1,
        at_most=100_000,
    )
    default_replication_factor = integer(
        1,
        "Replication factor of a new topic, unless its creator states one.",
        at_least=1,
        at_most=2**15 - 1,
    )
    delete_topic_enable = boolean(True, "Whether topics can be deleted.", static=True)

    log_dirs = strings(
        (),
        "Directories for partitions. A new partition goes to the directory that has the fewest.",
        static=True,
    )
    durability = _default_of(TopicKeys.qbus_durability)
    log_segment_bytes = _default_of(TopicKeys.segment_bytes)
    log_roll_ms = _refines_default_of(TopicKeys.segment_ms)
    log_roll_hours = integer(
        7 * 24,
        "Default of the topics' segment.ms, unless log.roll.ms is set.",
        unit="hours",
        at_least=1,
        static=True,
    )
    log_roll_jitter_ms = _refines_default_of(TopicKeys.segment_jitter_ms)
    log_roll_jitter_hours = integer(
        0,
        "Default of the topics' segment.jitter.ms, unless log.roll.jitter.ms is set.",
        unit="hours",
        at_least=0,
        static=True,
    )
    log_index_size_max_bytes = _default_of(TopicKeys.segment_index_bytes)
    log_index_interval_bytes = _default_of(TopicKeys.index_interval_bytes)
    log_retention_ms = _refines_default_of(TopicKeys.retention_ms)
    log_retention_minutes = unset(
        ConfigType.INT,
        "Default of the topics' retention.ms, unless log.retention.ms is set. -1: no limit.",
        unit="minutes",
        at_least=-1,
        static=True,
    )
    log_retention_hours = integer(
        7 * 24,
        "Default of the topics' retention.ms, unless log.retention.ms or log.retention.minutes is "
        "set. -1: no limit.",
        unit="hours",
        at_least=-1,
        static=True,
    )
    log_retention_bytes = _default_of(TopicKeys.retention_bytes)
    message_max_bytes = _default_of(TopicKeys.max_message_bytes)
    message_decompressed_max_bytes = integer(
        128 * _MIB,
        "Maximum size of the records of one produced batch, decompressed, in topics whose batches "
        "the broker decompresses: with delayed records, compaction, or another compression.type "
        "than producer. Beyond 16 MiB a batch may also be at most 32 times as large as it is "
        "compressed.",
        unit="bytes",
        at_least=_MIB,
        at_most=128 * _MIB,
    )
    log_message_timestamp_type = _default_of(TopicKeys.message_timestamp_type)
    log_message_timestamp_before_max_ms = _default_of(TopicKeys.message_timestamp_before_max_ms)
    log_message_timestamp_after_max_ms = _default_of(TopicKeys.message_timestamp_after_max_ms)
    min_insync_replicas = _default_of(TopicKeys.min_insync_replicas)
    log_flush_interval_messages = _default_of(TopicKeys.flush_messages)
    log_flush_interval_ms = _refines_default_of(TopicKeys.flush_ms)
    log_flush_scheduler_interval_ms = long(
        2**63 - 1,
        "Default of the topics' flush.ms, unless log.flush.interval.ms is set.",
        unit="ms",
        at_least=1,
        static=True,
    )
    log_segment_delete_delay_ms = _default_of(TopicKeys.file_delete_delay_ms)
    log_preallocate = _default_of(TopicKeys.preallocate)
    log_cleanup_policy = _default_of(TopicKeys.cleanup_policy)
    log_cleaner_delete_retention_ms = _default_of(TopicKeys.delete_retention_ms)
    log_cleaner_min_compaction_lag_ms = _default_of(TopicKeys.min_compaction_lag_ms)
    log_cleaner_max_compaction_lag_ms = _default_of(TopicKeys.max_compaction_lag_ms)
    log_cleaner_min_cleanable_ratio = _default_of(TopicKeys.min_cleanable_dirty_ratio)
    compression_type = _default_of(TopicKeys.compression_type)
    unclean_leader_election_enable = _default_of(TopicKeys.unclean_leader_election_enable)

    log_retention_check_interval_ms = long(
        5 * _MINUTE_MS,
        "How often logs are checked for segments to delete or to roll.",
        unit="ms",
        at_least=1,
        static=True,
    )
    log_flush_offset_checkpoint_interval_ms = integer(
        _MINUTE_MS,
        "How often the offset up to which each log is on stable storage is checkpointed.",
        unit="ms",
        at_least=1,
        static=True,
    )
    log_flush_start_offset_checkpoint_interval_ms = integer(
        _MINUTE_MS,
        "How often the start offset of each log is checkpointed.",
        unit="ms",
        at_least=1,
        static=True,
    )
    log_cleaner_enable = boolean(
        True, "Whether logs with cleanup.policy=compact are compacted.", static=True
    )
    log_cleaner_threads = integer(
        1, "Threads that compact logs, each one log at a time.", at_least=1, at_most=64
    )
    log_cleaner_io_max_bytes_per_second = double(
        float_info.max,
        "Maximum rate at which compaction reads and writes, all threads together, in bytes per "
        "second.",
        at_least=1,
    )
    log_cleaner_dedupe_buffer_size = long(
        128 * _MIB,
        "Memory for the newest offset of each key, all threads together, in bytes; 24 for a key. "
        "A log with more new keys is compacted in several passes.",
        at_least=_MIB,
    )
    log_cleaner_io_buffer_size = integer(
        512 * 1024,
        "Memory for reading and writing, all threads together, in bytes.",
        at_least=1024,
    )
    log_cleaner_io_buffer_load_factor = double(
        0.9,
        "Maximum share of log.cleaner.dedupe.buffer.size that is used. Look-ups take longer in a "
        "fuller buffer.",
        at_least=0.1,
        at_most=0.99,
    )
    log_cleaner_backoff_ms = long(
        15_000,
        "How long a thread that found no log to compact waits before it looks again.",
        unit="ms",
        at_least=0,
    )
    num_recovery_threads_per_data_dir = integer(
        2,
        "Threads per directory that open logs at start-up and close them at shutdown.",
        at_least=1,
        at_most=1024,
        static=True,
    )
    producer_id_expiration_ms = integer(
        24 * 60 * _MINUTE_MS,
        "A partition forgets an idempotent producer that wrote nothing for this time.",
        unit="ms",
        at_least=1,
        static=True,
    )
    producer_ids_max_per_partition = integer(
        10_000,
        "Maximum number of idempotent producers that a partition remembers; the one that wrote "
        "longest ago is forgotten first.",
        at_least=1,
        static=True,
    )
