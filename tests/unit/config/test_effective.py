"""A topic's configuration in force: its own settings, then the broker's, in any unit."""

import pytest

from qbus.config import (
    TOPIC_CONFIG,
    BrokerConfig,
    ConfigSource,
    TopicConfig,
    check_topic_config,
)
from qbus.errors import ConfigError

HOUR_MS = 60 * 60 * 1000


def test_a_topic_has_the_brokers_default_unless_it_sets_a_value() -> None:
    broker = BrokerConfig({"log.segment.bytes": "2048", "durability": "memory"})
    config = TopicConfig(broker, {"retention.bytes": "10"})
    assert config.segment_bytes == 2048
    assert config.qbus_durability == "memory"
    assert config.retention_bytes == 10
    assert config.values["retention.bytes"] == 10


@pytest.mark.parametrize(
    ("stated", "retention_ms"),
    [
        ({}, 7 * 24 * HOUR_MS),
        ({"log.retention.hours": "1"}, HOUR_MS),
        ({"log.retention.hours": "1", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "7"}, 7),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-1"}, -1),
        ({"log.retention.ms": "-1"}, -1),
    ],
)
def test_the_finest_of_the_brokers_keys_counts(stated: dict[str, str], retention_ms: int) -> None:
    assert TopicConfig(BrokerConfig(stated), {}).retention_ms == retention_ms


def test_zero_hours_of_jitter_are_zero() -> None:
    assert TopicConfig(BrokerConfig({"log.roll.jitter.hours": "0"}), {}).segment_jitter_ms == 0


def test_flushing_has_two_keys_of_the_same_unit() -> None:
    stated = {"log.flush.scheduler.interval.ms": "500"}
    assert TopicConfig(BrokerConfig(stated), {}).flush_ms == 500
    stated["log.flush.interval.ms"] = "50"
    assert TopicConfig(BrokerConfig(stated), {}).flush_ms == 50


def test_a_dynamic_broker_value_reaches_topics() -> None:
    broker = BrokerConfig({"log.retention.ms": "5"})
    broker.set_dynamic({"log.retention.ms": "6"}, {})
    assert TopicConfig(broker, {}).retention_ms == 6


def test_describes_the_source_of_a_value_and_its_synonyms() -> None:
    broker = BrokerConfig({"log.retention.hours": "1"})
    broker.set_dynamic({}, {"log.retention.ms": "9"})
    entry = TopicConfig(broker, {"retention.ms": "8"}).describe("retention.ms")
    assert (entry.value, entry.source) == (8, ConfigSource.TOPIC)
    assert [(item.key.name, item.value, item.source) for item in entry.synonyms] == [
        ("retention.ms", 8, ConfigSource.TOPIC),
        ("log.retention.ms", 9, ConfigSource.BROKER),
        ("log.retention.hours", 1, ConfigSource.STATIC_BROKER),
        ("log.retention.hours", 168, ConfigSource.DEFAULT),
    ]


@pytest.mark.parametrize("name", TOPIC_CONFIG)
def test_describes_every_key_with_its_value_in_force(name: str) -> None:
    config = TopicConfig(BrokerConfig(), {})
    entry = config.describe(name)
    assert entry.value == config.values[name] == TOPIC_CONFIG[name].default
    assert entry.source is ConfigSource.DEFAULT


def test_topics_without_settings_share_the_brokers_values() -> None:
    broker = BrokerConfig()
    assert TopicConfig(broker, {}).values is TopicConfig(broker, {}).values


def test_stored_values_that_cannot_be_read_are_ignored() -> None:
    config = TopicConfig(BrokerConfig(), {"from.the.future": "1", "retention.ms": "soon"})
    assert config.retention_ms == 7 * 24 * HOUR_MS
    assert "from.the.future" not in config.values


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"no.such.key": "1"}, "unknown configuration 'no.such.key'"),
        ({"retention.ms": "soon"}, "retention.ms=soon: expected a whole number"),
        ({"retention.ms": None}, "retention.ms: expected a value, there is none"),
        ({"no.such.key": None}, "unknown configuration"),
        (
            {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
            "at most max.compaction.lag.ms",
        ),
    ],
)
def test_invalid_values_are_refused(wanted: dict[str, str | None], why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_topic_config(wanted)
    assert why in str(refused.value)


def test_valid_values_pass() -> None:
    check_topic_config({"retention.ms": "-1", "cleanup.policy": "delete", "segment.ms": "1"})
    check_topic_config({"min.compaction.lag.ms": "5"})


@pytest.mark.parametrize("policy", ["compact", "delete,compact"])
def test_a_compacted_topic_holds_nothing_back(policy: str) -> None:
    with pytest.raises(ConfigError, match=r"cleanup\.policy without compact"):
        check_topic_config({"qbus.delay.enable": "true", "cleanup.policy": policy})
    check_topic_config({"qbus.delay.enable": "false", "cleanup.policy": policy})
    check_topic_config({"qbus.delay.enable": "true", "cleanup.policy": "delete"})
