"""The configuration of share groups: their own values, else their broker's."""

import pytest

from qbus.config import (
    SHARE_GROUP_CONFIG,
    BrokerConfig,
    ConfigSource,
    ShareGroupConfig,
    check_share_group_config,
)
from qbus.config.share import BROKER_KEYS
from qbus.errors import ConfigError


def test_a_group_that_sets_nothing_has_its_brokers_values() -> None:
    broker = BrokerConfig({"group.share.record.lock.duration.ms": "20000"})
    group = ShareGroupConfig(broker, {})
    assert group.share_record_lock_duration_ms == 20_000
    assert group.share_auto_offset_reset == "latest"
    assert group.describe("share.record.lock.duration.ms").source is ConfigSource.STATIC_BROKER


def test_what_a_group_sets_comes_first() -> None:
    broker = BrokerConfig({"group.share.delivery.count.limit": "9"})
    group = ShareGroupConfig(broker, {"share.delivery.count.limit": "0"})
    entry = group.describe("share.delivery.count.limit")
    assert (entry.value, entry.source) == (0, ConfigSource.GROUP)
    assert [(one.key.name, one.value) for one in entry.synonyms] == [
        ("share.delivery.count.limit", 0),
        ("group.share.delivery.count.limit", 9),
        ("group.share.delivery.count.limit", 5),
    ]


def test_what_cannot_be_read_is_ignored() -> None:
    group = ShareGroupConfig(BrokerConfig(), {"share.delivery.count.limit": "many", "new": "1"})
    assert group.share_delivery_count_limit == 5


def test_defaults_of_groups_are_those_of_brokers() -> None:
    broker = BrokerConfig()
    for name, key in SHARE_GROUP_CONFIG.items():
        if name in BROKER_KEYS:
            assert broker.values[BROKER_KEYS[name]] == key.default
        check_share_group_config(broker, {name: str(key.format(key.default))})


@pytest.mark.parametrize("name", ["session.timeout.ms", "record.lock.duration.ms"])
def test_brokers_bound_what_groups_set(name: str) -> None:
    broker = BrokerConfig({f"group.share.min.{name}": "100", f"group.share.max.{name}": "90000"})
    for allowed in ("100", "90000"):
        check_share_group_config(broker, {f"share.{name}": allowed})
    for refused in ("99", "90001"):
        with pytest.raises(ConfigError, match=f"group.share.max.{name} allow 100 to 90000"):
            check_share_group_config(broker, {f"share.{name}": refused})


@pytest.mark.parametrize(
    "duration", ["PT1H", "P1D", "P1DT12H", "PT1H30M", "PT0.5S", "PT90S", "P2DT3H4M5.678S"]
)
def test_durations(duration: str) -> None:
    own = {"share.auto.offset.reset": f"by_duration:{duration}"}
    check_share_group_config(BrokerConfig(), own)


@pytest.mark.parametrize("duration", ["", "P", "PT", "1H", "PT1", "-PT1H", "P1M", "PT1H,", "P1DT"])
def test_what_no_duration_is(duration: str) -> None:
    own = {"share.auto.offset.reset": f"by_duration:{duration}"}
    with pytest.raises(ConfigError):
        check_share_group_config(BrokerConfig(), own)
