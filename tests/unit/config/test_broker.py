"""The broker's configuration in force: whoever is closest to the broker wins."""

import pytest

from qbus.config import BROKER_CONFIG, Address, BrokerConfig, ConfigSource
from qbus.errors import ConfigError


def sources(config: BrokerConfig, name: str) -> list[tuple[str, object, ConfigSource]]:
    return [(item.key.name, item.value, item.source) for item in config.describe(name).synonyms]


def test_values_are_kafkas_defaults_unless_stated() -> None:
    config = BrokerConfig()
    assert config.num_partitions == 1
    assert config.auto_create_topics_enable is True
    assert config.listen_address == Address("127.0.0.1", 9092)
    assert config.advertised_address is None
    assert config.metrics_address is None
    assert config.describe("num.partitions").source is ConfigSource.DEFAULT


def test_takes_what_the_operator_states() -> None:
    config = BrokerConfig(
        {
            "num.partitions": "3",
            "listeners": "PLAINTEXT://:0",
            "allow.insecure": "true",
            "advertised.listeners": "bus.example:9092",
            "metrics.listen": "127.0.0.1:9404",
            "log.dirs": ["/a", "/b"],
        }
    )
    assert config.num_partitions == 3
    assert config.listen_address == Address("", 0)
    assert config.advertised_address == Address("bus.example", 9092)
    assert config.metrics_address == Address("127.0.0.1", 9404)
    assert config.log_dirs == ("/a", "/b")
    assert config.describe("num.partitions").source is ConfigSource.STATIC_BROKER


@pytest.mark.parametrize(
    ("settings", "listening", "advertised"),
    [
        ({}, None, None),
        ({"disque.listen": "127.0.0.1:7711"}, Address("127.0.0.1", 7711), None),
        ({"listeners": ["localhost:1", "DISQUE://[::1]:7711"]}, Address("::1", 7711), None),
        (
            {
                "disque.listen": ":0",
                "advertised.listeners": "a:1,DISQUE://b:2",
                "allow.insecure": "true",
            },
            Address("", 0),
            Address("b", 2),
        ),
    ],
)
def test_jobs_have_an_address_of_their_own(
    settings: dict, listening: Address | None, advertised: Address | None
) -> None:
    config = BrokerConfig(settings)
    assert config.disque_address == listening
    assert config.advertised_disque_address == advertised
    if "listeners" in settings:
        assert config.listen_address == Address("localhost", 1)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("num.partition", "1", "did you mean num.partitions?"),
        ("num.partitions", "0", "from 1 to 100000"),
        ("listeners", "a:1,b:2", "different names"),
        ("listeners", "a:1,SSL://a:1", "different addresses"),
        ("listeners", "DISQUE://a:1", "a listener of Kafka's protocol"),
        ("listeners", "a:1,DISQUE://a", "host:port"),
        ("listeners", "a:1,DISQUE://a:2,DISQUE://a:3", "different names"),
        ("advertised.listeners", "a:1,DISQUE://:2", "clients can connect to"),
        ("disque.listen", "7711", "host:port"),
        ("listeners", "", "a listener of Kafka's protocol"),
        ("advertised.listeners", "0.0.0.0:9092", "clients can connect to"),
        ("advertised.listeners", ":9092", "clients can connect to"),
        ("metrics.listen", "9404", "host:port"),
        ("zookeeper.connect", "a:x", "host:port,.../chroot"),
        ("zookeeper.digest", "bus", "user:password"),
        ("zookeeper.set.acl", "true", "zookeeper.digest"),
        ("durability", "yes", "one of fsync, memory"),
        ("log.cleanup.policy", "shred", "one of compact, delete"),
        ("log.cleaner.threads", "0", "from 1 to 64"),
        ("log.dirs", "/a,/a", "different directories"),
        ("group.min.session.timeout.ms", "2000000", "at most group.max.session.timeout.ms"),
        ("queued.max.request.bytes", "1000", "room for one request"),
        ("socket.request.max.bytes", "300000000", "room for one request"),
    ],
)
def test_refuses_contradictions_and_invalid_values(name: str, value: str, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig({name: value})
    assert why in str(refused.value)
    assert name in str(refused.value) or "request" in name


def test_the_error_for_a_password_does_not_contain_it() -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig({"zookeeper.digest": "secret"})
    assert "secret" not in str(refused.value)


def test_a_zookeeper_is_an_address_or_none() -> None:
    assert BrokerConfig().zookeeper_address is None
    address = BrokerConfig({"zookeeper.connect": "a,b:2182/bus"}).zookeeper_address
    assert address is not None
    assert str(address) == "a:2181,b:2182/bus"


def test_no_memory_budget_is_no_contradiction() -> None:
    assert BrokerConfig({"queued.max.request.bytes": "-1"}).queued_max_request_bytes == -1


def test_a_brokers_own_value_takes_precedence() -> None:
    config = BrokerConfig({"message.max.bytes": "1000"})
    config.set_dynamic({"message.max.bytes": "2000"}, {"message.max.bytes": "3000"})
    assert config.message_max_bytes == 3000
    assert sources(config, "message.max.bytes") == [
        ("message.max.bytes", 3000, ConfigSource.BROKER),
        ("message.max.bytes", 2000, ConfigSource.DEFAULT_BROKER),
        ("message.max.bytes", 1000, ConfigSource.STATIC_BROKER),
        ("message.max.bytes", 1048588, ConfigSource.DEFAULT),
    ]
    config.set_dynamic({"message.max.bytes": "2000"}, {})
    assert config.message_max_bytes == 2000
    config.set_dynamic({}, {})
    assert config.message_max_bytes == 1000


def test_stored_values_that_cannot_be_read_are_ignored() -> None:
    config = BrokerConfig()
    config.set_dynamic({"from.the.future": "1", "num.partitions": "many"}, {"log.roll.ms": "5"})
    assert config.num_partitions == 1
    assert config.log_roll_ms == 5


def test_describes_the_dynamic_values_for_all_brokers() -> None:
    config = BrokerConfig()
    config.set_dynamic({"num.partitions": "2", "durability": "memory"}, {"num.partitions": "5"})
    told = {entry.key.name: (entry.value, entry.source) for entry in config.describe_for_all()}
    assert told == {
        "num.partitions": (2, ConfigSource.DEFAULT_BROKER),
        "durability": ("memory", ConfigSource.DEFAULT_BROKER),
    }


def test_keys_of_one_meaning_are_synonyms() -> None:
    config = BrokerConfig({"log.retention.minutes": "5"})
    assert sources(config, "log.retention.ms") == [
        ("log.retention.minutes", 5, ConfigSource.STATIC_BROKER),
        ("log.retention.hours", 168, ConfigSource.DEFAULT),
    ]
    entry = config.describe("log.retention.ms")
    assert (entry.value, entry.text, entry.source) == (None, None, ConfigSource.DEFAULT)


@pytest.mark.parametrize("name", BROKER_CONFIG)
def test_describes_every_key(name: str) -> None:
    entry = BrokerConfig().describe(name)
    assert entry.key is BROKER_CONFIG[name]
    assert entry.text == entry.key.format(entry.key.default)
