"""From a share group's configuration to what its queues need of it."""

from qbus.config import ShareGroupConfig

from ..queues import GroupSettings


def group_settings(config: ShareGroupConfig) -> GroupSettings:
    """The settings that a configuration gives."""
    return GroupSettings(
        lock_ms=config.share_record_lock_duration_ms,
        delivery_limit=config.share_delivery_count_limit,
        partition_max_locks=config.share_partition_max_record_locks,
        auto_offset_reset=config.share_auto_offset_reset,
        isolation=config.share_isolation_level,
        backoff_ms=config.qbus_retry_backoff_ms,
        backoff_multiplier=config.qbus_retry_backoff_multiplier,
        backoff_max_ms=config.qbus_retry_backoff_max_ms,
        dead_letter_topic=config.errors_deadletterqueue_topic_name,
        filter=config.qbus_filter,
    )
