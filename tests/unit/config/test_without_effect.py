"""Broker settings of Kafka that have no effect here."""

import pytest

from qbus.config import BROKER_CONFIG, TOPIC_CONFIG, BrokerConfig
from qbus.config.without_effect import (
    _NAMES,
    _PREFIXES,
    reason_without_effect,
    warnings_without_effect,
)
from qbus.errors import ConfigError


@pytest.mark.parametrize("name", sorted(BROKER_CONFIG))
def test_a_setting_that_has_an_effect_is_not_among_them(name: str) -> None:
    assert reason_without_effect(name) is None


@pytest.mark.parametrize("name", [*_NAMES, *(f"{prefix}x" for prefix in _PREFIXES)])
def test_each_has_a_reason(name: str) -> None:
    assert reason_without_effect(name)


@pytest.mark.parametrize("name", sorted(TOPIC_CONFIG.keys() - BROKER_CONFIG.keys()))
def test_settings_of_topics_have_no_effect_for_a_broker(name: str) -> None:
    assert "a setting of topics" in str(reason_without_effect(name))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("sasl.kerberos.service.name", "Kerberos (GSSAPI) is not supported"),
        ("listener.name.sasl_ssl.sasl.kerberos.service.name", "Kerberos (GSSAPI) is not supported"),
        ("cleanup.policy", "it is a setting of topics; log.cleanup.policy is their default"),
        ("process.roles", "there is no KRaft quorum"),
        ("remote.log.storage.system.enable", "there is no remote storage of logs"),
    ],
)
def test_a_sentence_says_why(name: str, sentence: str) -> None:
    (warning,) = warnings_without_effect(["num.partitions", name])
    assert warning.startswith(f"{name} has no effect: ")
    assert warning.endswith(sentence)


def test_a_broker_takes_them_and_keeps_the_reasons() -> None:
    config = BrokerConfig({"num.replica.fetchers": 4, "num.partitions": "3"})
    assert config.num_partitions == 3
    (warning,) = config.without_effect
    assert warning.startswith("num.replica.fetchers has no effect: ")
    assert "num.replica.fetchers" not in config.values


@pytest.mark.parametrize(
    "name",
    [
        "num.replica.fetcher",
        "principal.builder.class",
        "sasl.jaas.config",
        "create.topic.policy.class.name",
        "listener.name.ssl.nosuch",
        "listener.name.",
    ],
)
def test_unknown_settings_and_those_of_security_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="unknown configuration"):
        BrokerConfig({name: "x"})


def test_broker_id_is_the_old_name_of_node_id() -> None:
    assert BrokerConfig({"broker.id": "7"}).node_id == 7
    assert BrokerConfig({"broker.id": "7", "node.id": 7}).node_id == 7
    with pytest.raises(ConfigError, match=r"broker\.id=7: expected the same as node\.id.* 8"):
        BrokerConfig({"broker.id": "7", "node.id": "8"})
    with pytest.raises(ConfigError, match=r"old name of node\.id"):
        BrokerConfig.key("broker.id")
