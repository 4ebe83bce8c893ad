"""Configuration: each key's one definition, and the values in force.

``BROKER_CONFIG``, ``TOPIC_CONFIG`` and ``SHARE_GROUP_CONFIG`` map Kafka's names to definitions.
:class:`BrokerConfig`, :class:`TopicConfig` and :class:`ShareGroupConfig` are the values in force.
"""

from qbus.config.address import (
    Address,
    ListenerInfo,
    SecurityProtocol,
    parse_address,
    show_listeners,
)
from qbus.config.broker import BROKER_CONFIG, BrokerConfig, ListenerConfig
from qbus.config.effective import TopicConfig, check_topic_config
from qbus.config.key import ConfigKey
from qbus.config.loading import load_broker_config
from qbus.config.settings import ConfigEntry, ConfigSource, Settings, Stated
from qbus.config.share import SHARE_GROUP_CONFIG, ShareGroupConfig, check_share_group_config
from qbus.config.topic import TOPIC_CONFIG
from qbus.config.types import ConfigType

__all__ = [
    "BROKER_CONFIG",
    "SHARE_GROUP_CONFIG",
    "TOPIC_CONFIG",
    "Address",
    "BrokerConfig",
    "ConfigEntry",
    "ConfigKey",
    "ConfigSource",
    "ConfigType",
    "ListenerConfig",
    "ListenerInfo",
    "SecurityProtocol",
    "Settings",
    "ShareGroupConfig",
    "Stated",
    "TopicConfig",
    "check_share_group_config",
    "check_topic_config",
    "load_broker_config",
    "parse_address",
    "show_listeners",
]
