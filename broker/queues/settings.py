"""The settings of a share group, as far as they concern the records of one partition."""

from dataclasses import dataclass, replace
from typing import Any, Final

from ..log.config import LogConfig

LATEST: Final = "latest"
EARLIEST: Final = "earliest"
READ_COMMITTED: Final = "read_committed"
_GOLDEN: Final = 0x9E3779B1  # spreads consecutive numbers over 32 bits (Knuth)

BY_DURATION: Final = "by_duration:"
"""What ``auto_offset_reset`` begins with where an ISO 8601 duration follows, such as ``PT1H``."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """How a share group takes records. Times in milliseconds.

    Kafka's names: ``share.record.lock.duration.ms``, ``share.delivery.count.limit``,
    ``share.partition.max.record.locks``, ``share.auto.offset.reset``, ``share.isolation.level`` and
    ``errors.deadletterqueue.topic.name``. The others are Qbus's own.

    delivery_limit: how often a record is given out at most; 0: any number of times.
    partition_max_locks: how many records of a partition may be given out at a time.
    auto_offset_reset: where a group that is new to a partition begins: ``latest``, ``earliest``,
        or ``by_duration:`` and an ISO 8601 duration before now.
    backoff_ms: how long a record is not given out after its first delivery failed. Each further one
        multiplies that by ``backoff_multiplier``, up to ``backoff_max_ms``.
    nack_backoff_ms: where ``backoff_ms`` is 0, how long a record is not given out after its second
        delivery failed, if that was refused (NACK). After the first it is given out at once.
    backoff_jitter: the share of a back-off by which it is longer or shorter, so that records that
        failed together do not come back together (KIP-580: 0.2).
    isolation: whether records of open and aborted transactions are given out
        (``read_uncommitted``), or nobody gets those of aborted ones, and those of open ones wait
        until their transactions end (``read_committed``).
    dead_letter_topic: gets what was rejected, or given out too often; empty: that is dropped.
    filter: an expression over the header ``qbus-tags``, see :mod:`.filters`; empty: all records.
    """

    lock_ms: int = 30_000
    delivery_limit: int = 5
    partition_max_locks: int = 2000
    auto_offset_reset: str = LATEST
    isolation: str = "read_uncommitted"
    backoff_ms: int = 0
    nack_backoff_ms: int = 0
    backoff_multiplier: float = 2.0
    backoff_max_ms: int = 3_600_000
    backoff_jitter: float = 0.0
    dead_letter_topic: str = ""
    filter: str = ""

    def backoff_after(self, deliveries: int, offset: int = 0, *, is_nack: bool = False) -> int:
        """How long a record is not given out after so many deliveries failed, in milliseconds.

        The jitter depends on the record's ``offset`` and its ``deliveries`` alone.
        """
        first_ms = self.backoff_ms
        if not first_ms and is_nack:
            first_ms, deliveries = self.nack_backoff_ms, deliveries - 1
        if first_ms <= 0 or deliveries <= 0:
            return 0
        spread = ((offset + deliveries) * _GOLDEN & 0xFFFFFFFF) / 0x80000000 - 1
        try:
            delay = first_ms * self.backoff_multiplier ** (deliveries - 1)
        except OverflowError:
            return self.backoff_max_ms
        return int(min(delay * (1 + self.backoff_jitter * spread), self.backoff_max_ms))

    def within(self, topic: LogConfig) -> "GroupSettings":
        """The settings for records of a topic, whose own settings come before the group's."""
        own: dict[str, Any] = {}
        if topic.qbus_queue_delivery_limit >= 0:
            own["delivery_limit"] = topic.qbus_queue_delivery_limit
        if topic.qbus_queue_retry_backoff_ms >= 0:
            own["backoff_ms"] = topic.qbus_queue_retry_backoff_ms
            own["nack_backoff_ms"] = 0
        if topic.qbus_queue_retry_backoff_max_ms >= 0:
            own["backoff_max_ms"] = topic.qbus_queue_retry_backoff_max_ms
        if topic.qbus_queue_dead_letter_topic:
            own["dead_letter_topic"] = topic.qbus_queue_dead_letter_topic
        return replace(self, **own) if own else self
