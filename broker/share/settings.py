"""From a share group's configuration to what its queues need of it."""

from typing import Final

from qbus.config import ShareGroupConfig

from ..queues import GroupSettings

BACKOFF_JITTER: Final = 0.2
"""The share of a back-off that is random, as in Kafka's clients (KIP-580)."""


def group_settings(config: ShareGroupConfig) -> GroupSettings:
    """The settings that a configuration gives."""
    return GroupSettings(
        lock_ms=config.share_record_lock_duration_ms,
        delivery_limit=config.share_delivery_count_limit,
        partition_max_locks=config.share_partition_max_record_locks,
        auto_offset_reset=config.share_auto_offset_reset,
        isolation=config.share_isolation_level,
        backoff_ms=config.qbus_retry_backoff_ms,
        nack_backoff_ms=config.qbus_retry_nack_backoff_ms,
        backoff_multiplier=config.qbus_retry_backoff_multiplier,
        backoff_max_ms=config.qbus_retry_backoff_max_ms,
        backoff_jitter=BACKOFF_JITTER,
        dead_letter_topic=config.errors_deadletterqueue_topic_name,
        filter=config.qbus_filter,
    )
