"""The definitions themselves: Kafka's names, types and defaults, and what Qbus adds."""

import pytest

from qbus.config import BROKER_CONFIG, TOPIC_CONFIG, ConfigKey, ConfigType, Settings, TopicConfig
from qbus.config.synonyms import SYNONYMS
from qbus.errors import ConfigError

ALL = [*TOPIC_CONFIG.values(), *BROKER_CONFIG.values()]

# As `kafka-configs.sh --describe --all` of Apache Kafka 4.1 shows them for a new topic.
KAFKA_TOPIC_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}

KAFKA_BROKER_DEFAULTS = {
    "auto.create.topics.enable": "true",
    "auto.leader.rebalance.enable": "true",
    "connections.max.idle.ms": "600000",
    "default.replication.factor": "1",
    "delete.topic.enable": "true",
    "follower.replication.throttled.rate": "9223372036854775807",
    "fetch.max.bytes": "57671680",
    "group.initial.rebalance.delay.ms": "3000",
    "group.max.session.timeout.ms": "1800000",
    "group.max.size": "2147483647",
    "group.min.session.timeout.ms": "6000",
    "leader.imbalance.check.interval.seconds": "300",
    "leader.imbalance.per.broker.percentage": "10",
    "leader.replication.throttled.rate": "9223372036854775807",
    "log.flush.offset.checkpoint.interval.ms": "60000",
    "log.retention.check.interval.ms": "300000",
    "log.cleaner.backoff.ms": "15000",
    "log.cleaner.dedupe.buffer.size": "134217728",
    "log.cleaner.delete.retention.ms": "86400000",
    "log.cleaner.enable": "true",
    "log.cleaner.io.buffer.load.factor": "0.9",
    "log.cleaner.io.buffer.size": "524288",
    "log.cleaner.max.compaction.lag.ms": "9223372036854775807",
    "log.cleaner.min.cleanable.ratio": "0.5",
    "log.cleaner.min.compaction.lag.ms": "0",
    "log.cleaner.threads": "1",
    "log.cleanup.policy": "delete",
    "log.retention.hours": "168",
    "log.roll.hours": "168",
    "log.segment.bytes": "1073741824",
    "max.connections": "2147483647",
    "message.max.bytes": "1048588",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "2",
    "offset.metadata.max.bytes": "4096",
    "offsets.retention.minutes": "10080",
    "producer.id.expiration.ms": "86400000",
    "replica.fetch.backoff.ms": "1000",
    "replica.fetch.max.bytes": "1048576",
    "replica.fetch.min.bytes": "1",
    "replica.fetch.response.max.bytes": "10485760",
    "replica.fetch.wait.max.ms": "500",
    "replica.high.watermark.checkpoint.interval.ms": "5000",
    "replica.lag.time.max.ms": "30000",
    "replica.socket.receive.buffer.bytes": "65536",
    "replica.socket.timeout.ms": "30000",
    "socket.request.max.bytes": "104857600",
}


@pytest.mark.parametrize(("name", "default"), KAFKA_TOPIC_DEFAULTS.items())
def test_topics_have_kafkas_defaults(name: str, default: str) -> None:
    key = TOPIC_CONFIG[name]
    assert key.format(key.default) == default


def test_topics_have_no_other_keys_than_kafkas_and_ours() -> None:
    ours = {name for name in TOPIC_CONFIG if name.startswith("qbus.")}
    assert TOPIC_CONFIG.keys() == KAFKA_TOPIC_DEFAULTS.keys() | ours
    assert ours == {
        "qbus.durability",
        "qbus.mirror.source",
        "qbus.mirror.topic.id",
        "qbus.mirror.path",
        "qbus.mirror.former.source",
        "qbus.compacted",
        "qbus.delay.enable",
        "qbus.delay.max.ms",
        "qbus.delay.max.pending",
        "qbus.delay.dead.letter.topic",
        "qbus.queue.pause",
        "qbus.queue.group.idle.ms",
        "qbus.queue.idle.ms",
        "qbus.queue.delivery.limit",
        "qbus.queue.retry.backoff.ms",
        "qbus.queue.retry.backoff.max.ms",
        "qbus.queue.dead.letter.topic",
        "qbus.queue.retention",
    }


@pytest.mark.parametrize(("name", "default"), KAFKA_BROKER_DEFAULTS.items())
def test_brokers_have_kafkas_defaults(name: str, default: str) -> None:
    key = BROKER_CONFIG[name]
    assert key.format(key.default) == default


@pytest.mark.parametrize("key", ALL, ids=lambda key: key.name)
def test_each_default_is_allowed(key: ConfigKey) -> None:
    if key.default is not None and key.default != ():
        assert key.parse(key.format(key.default)) == key.default


@pytest.mark.parametrize("key", ALL, ids=lambda key: key.name)
def test_each_key_is_documented(key: ConfigKey) -> None:
    assert key.doc.endswith(".")
    if key.name.endswith((".ms", ".bytes", ".minutes", ".hours")):
        assert key.unit == key.name.rpartition(".")[2]


def test_no_topic_key_needs_a_restart() -> None:
    assert not [key.name for key in TOPIC_CONFIG.values() if key.static]


@pytest.mark.parametrize("name", SYNONYMS)
def test_a_broker_default_is_of_its_topic_keys_type(name: str) -> None:
    for synonym in SYNONYMS[name]:
        default = BROKER_CONFIG[synonym.name]
        if synonym.factor == 1:
            assert default.type is TOPIC_CONFIG[name].type
        else:
            assert default.type is ConfigType.INT


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("cleanup.policy", "shred", "expected one of compact, delete"),
        ("cleanup.policy", "compact,shred", "expected one of compact, delete"),
        ("cleanup.policy", "", "expected compact, delete, or both"),
        ("compression.type", "none", "expected one of producer, uncompressed"),
        ("compression.type", "brotli", "expected one of producer, uncompressed"),
        ("compression.gzip.level", "0", "from 1 to 9"),
        ("preallocate", "true", "not preallocated"),
        ("message.timestamp.type", "createtime", "expected one of CreateTime, LogAppendTime"),
        ("qbus.durability", "none", "expected one of fsync, memory"),
        ("qbus.mirror.source", "a.b", "an IDC's name"),
        ("qbus.mirror.path", "a,b/c", "an IDC's name"),
        ("retention.ms", "-2", "at least -1"),
        ("segment.bytes", "0", "at least 1024"),
        ("min.insync.replicas", "0", "at least 1"),
        ("min.cleanable.dirty.ratio", "1.1", "from 0 to 1"),
        ("max.message.bytes", str(2**31), "at least 0"),
        ("leader.replication.throttled.replicas", "0:1,1", "partition:broker"),
        ("leader.replication.throttled.replicas", "0:-1", "partition:broker"),
        ("follower.replication.throttled.replicas", "*,0:1", "alone"),
    ],
)
def test_says_why_a_topics_value_is_refused(name: str, value: str, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        TOPIC_CONFIG[name].parse(value)
    assert str(refused.value).startswith(f"{name}={value}: ")
    assert why in str(refused.value)


def test_an_unknown_key_is_refused_with_the_closest_one() -> None:
    with pytest.raises(ConfigError, match=r"'retention\.msec'; did you mean retention\.ms\?"):
        TopicConfig.key("retention.msec")
    with pytest.raises(ConfigError, match=r"unknown configuration 'zzz'$"):
        TopicConfig.key("zzz")


def test_an_unknown_key_costs_bounded_time_and_memory() -> None:
    with pytest.raises(ConfigError) as refused:
        TopicConfig.key("x" * 32_000)
    assert len(str(refused.value)) < 400


def test_keys_are_defined_once_and_read_through_instances() -> None:
    assert TopicConfig.segment_bytes.key is TOPIC_CONFIG["segment.bytes"]
    assert Settings.KEYS == {}
