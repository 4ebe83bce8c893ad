"""Configuration: each key's one definition, and the values in force.

``BROKER_CONFIG`` and ``TOPIC_CONFIG`` map Kafka's names to definitions. :class:`BrokerConfig` and
:class:`TopicConfig` are the values in force.
"""

from qbus.config.address import Address, parse_address
from qbus.config.broker import BROKER_CONFIG, BrokerConfig
from qbus.config.effective import TopicConfig, check_topic_config
from qbus.config.key import ConfigKey
from qbus.config.loading import load_broker_config
from qbus.config.settings import ConfigEntry, ConfigSource, Settings, Stated
from qbus.config.topic import TOPIC_CONFIG
from qbus.config.types import ConfigType

__all__ = [
    "BROKER_CONFIG",
    "TOPIC_CONFIG",
    "Address",
    "BrokerConfig",
    "ConfigEntry",
    "ConfigKey",
    "ConfigSource",
    "ConfigType",
    "Settings",
    "Stated",
    "TopicConfig",
    "check_topic_config",
    "load_broker_config",
    "parse_address",
]
