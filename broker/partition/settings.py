"""What of the configuration concerns a partition."""

from qbus.config import BrokerConfig, TopicConfig

from ..log import LogConfig

_FSYNC = "fsync"


def log_config(topic: TopicConfig, broker: BrokerConfig) -> LogConfig:
    """The settings of the logs of a topic."""
    return LogConfig.from_settings(
        {
            **topic.values,
            "producer.id.expiration.ms": broker.producer_id_expiration_ms,
            "max.producers": broker.producer_ids_max_per_partition,
        }
    )


def is_durable(topic: TopicConfig) -> bool:
    """Whether records count as acknowledged only once they are on stable storage."""
    return topic.qbus_durability == _FSYNC
