"""The settings of a share group, as far as they concern the records of one partition."""

from dataclasses import dataclass
from typing import Final

LATEST: Final = "latest"
EARLIEST: Final = "earliest"
READ_COMMITTED: Final = "read_committed"
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
    backoff_multiplier: float = 2.0
    backoff_max_ms: int = 3_600_000
    dead_letter_topic: str = ""
    filter: str = ""

    def backoff_after(self, deliveries: int) -> int:
        """How long a record is not given out after so many deliveries failed, in milliseconds."""
        if self.backoff_ms <= 0 or deliveries <= 0:
            return 0
        try:
            delay = self.backoff_ms * self.backoff_multiplier ** (deliveries - 1)
        except OverflowError:
            return self.backoff_max_ms
        return int(min(delay, self.backoff_max_ms))
