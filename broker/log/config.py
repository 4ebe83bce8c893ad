"""The settings of one partition's log: Kafka's topic configuration, under Kafka's names."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Self

_NEVER: Final = 2**63 - 1
_WEEK_MS: Final = 7 * 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of a log; sizes in bytes, times in milliseconds, -1 in retention: no limit.

    Each field is the topic configuration of the same name with dots for underscores
    (``segment.bytes``), with Kafka's default. Two are the broker's: ``producer.id.expiration.ms``,
    and ``max_producers``, ours: how many producers' sequences a partition remembers at most, the
    least recently heard of forgotten first. ``compacts`` says that ``cleanup.policy`` has
    ``compact``.
    """

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = _WEEK_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    retention_bytes: int = -1
    retention_ms: int = _WEEK_MS
    max_message_bytes: int = 1024 * 1024 + 12
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = _NEVER
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    flush_messages: int = _NEVER
    flush_ms: int = _NEVER
    file_delete_delay_ms: int = 60 * 1000
    producer_id_expiration_ms: int = 24 * 60 * 60 * 1000
    max_producers: int = 10_000
    qbus_delay_enable: bool = False
    qbus_delay_max_ms: int = 730 * 24 * 60 * 60 * 1000
    qbus_delay_max_pending: int = 100_000_000
    qbus_delay_dead_letter_topic: str = ""
    qbus_queue_retention: str = "time"
    qbus_queue_idle_ms: int = -1
    qbus_queue_group_idle_ms: int = -1
    qbus_queue_delivery_limit: int = -1
    qbus_queue_retry_backoff_ms: int = -1
    qbus_queue_retry_backoff_max_ms: int = -1
    qbus_queue_dead_letter_topic: str = ""
    qbus_mirror_source: str = ""
    qbus_mirror_topic_id: str = ""
    qbus_mirror_former_source: str = ""
    qbus_compacted: bool = False
    compacts: bool = False
    delete_retention_ms: int = 24 * 60 * 60 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = _NEVER
    min_cleanable_dirty_ratio: float = 0.5

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The configuration that ``settings`` gives by Kafka's names, with typed values.

        Names that do not concern the log are ignored. Where ``cleanup.policy`` lacks ``delete``,
        retention has no limits; where it has ``compact``, a segment is rolled before
        ``max.compaction.lag.ms``.
        """
        known = {field.name.replace("_", "."): field.name for field in fields(cls)}
        values = {known[name]: value for name, value in settings.items() if name in known}
        policy = settings.get("cleanup.policy", ("delete",))
        if "compact" in policy:
            values["compacts"] = True
            longest = values.get("max_compaction_lag_ms", _NEVER)
            values["segment_ms"] = min(values.get("segment_ms", _WEEK_MS), longest)
            if "delete" not in policy:
                values["retention_ms"] = values["retention_bytes"] = -1
                values["qbus_queue_retention"] = "time"
        return cls(**values)

    @property
    def uses_log_append_time(self) -> bool:
        """Whether the broker stamps the records."""
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def removes_acknowledged(self) -> bool:
        """Whether records stay until all share groups are done with them, and go then."""
        return self.qbus_queue_retention == "acknowledged"

    @property
    def may_have_gaps(self) -> bool:
        """Whether offsets may be left out: the log is, or once was, a mirror, or compacted.

        So it stays: the topic's configuration remembers both.
        """
        return (
            self.compacts
            or self.qbus_compacted
            or bool(self.qbus_mirror_source or self.qbus_mirror_former_source)
        )
