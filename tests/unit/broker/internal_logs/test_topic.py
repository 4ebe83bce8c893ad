"""Which partition of an internal topic has a key: the same as in Kafka."""

import pytest

from qbus.broker.internal_logs import partition_for, suitable
from qbus.broker.internal_logs.topic import java_hash
from qbus.config import BrokerConfig


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("\U0001f600", 1772899),  # two units of UTF-16
    ],
)
def test_the_hash_is_that_of_javas_strings(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed


def test_the_one_number_without_an_absolute_value_is_zero() -> None:
    assert partition_for("polygenelubricants", 50) == 0


def test_a_partition_is_the_hash_without_its_sign() -> None:
    assert partition_for("a", 50) == 97 % 50


def test_a_broker_alone_makes_few_partitions_of_one_replica() -> None:
    topic = suitable(
        BrokerConfig(), "__t", partitions=-1, replication_factor=-1, min_isr=2, segment_bytes=1024
    )
    assert (topic.partitions, topic.replication_factor) == (5, 1)


def test_a_cluster_makes_what_kafka_makes() -> None:
    config = BrokerConfig({"zookeeper.connect": "localhost:2181"})
    topic = suitable(
        config, "__t", partitions=-1, replication_factor=-1, min_isr=2, segment_bytes=1024
    )
    assert (topic.partitions, topic.replication_factor) == (50, 3)


def test_what_is_configured_counts() -> None:
    topic = suitable(
        BrokerConfig(), "__t", partitions=7, replication_factor=2, min_isr=1, segment_bytes=1024
    )
    assert (topic.partitions, topic.replication_factor) == (7, 2)
