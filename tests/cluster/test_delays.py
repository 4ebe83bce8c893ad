"""Delayed records while their partitions' leaders change: each once, none early, in order."""

import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from qbus import Admin
from tests.support.delayed_load import DelayedLoad, Reader, create_topic, finish
from tests.support.qbus_cluster import QbusCluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[QbusCluster]:
    with QbusCluster(tmp_path) as running:
        create_topic(running.bootstrap, "d", 3, min_insync_replicas="2", segment_bytes="300000")
        yield running


def test_each_broker_is_killed_in_turn(cluster: QbusCluster) -> None:
    load, reader = DelayedLoad(cluster.bootstrap, "d"), Reader(cluster.bootstrap, "d")
    for broker in cluster.brokers.values():
        time.sleep(2)
        broker.kill()
        time.sleep(1)
        broker.start()
    finish(load, reader)


def test_a_rolling_restart(cluster: QbusCluster) -> None:
    load, reader = DelayedLoad(cluster.bootstrap, "d"), Reader(cluster.bootstrap, "d")
    for broker in cluster.brokers.values():
        time.sleep(2)
        broker.stop()
        broker.start()
    finish(load, reader)


@pytest.mark.nightly
def test_without_enough_replicas_what_is_due_waits(cluster: QbusCluster) -> None:
    load, reader = DelayedLoad(cluster.bootstrap, "d"), Reader(cluster.bootstrap, "d")
    time.sleep(2)
    for node in (2, 3):
        cluster.brokers[node].send_signal(signal.SIGSTOP)
    time.sleep(8)
    for node in (2, 3):
        cluster.brokers[node].send_signal(signal.SIGCONT)
    finish(load, reader)


@pytest.mark.nightly
def test_a_time_without_zookeeper(cluster: QbusCluster) -> None:
    load, reader = DelayedLoad(cluster.bootstrap, "d"), Reader(cluster.bootstrap, "d")
    time.sleep(2)
    for zookeeper in cluster.zookeepers:
        zookeeper.send_signal(signal.SIGSTOP)
    time.sleep(10)
    for zookeeper in cluster.zookeepers:
        zookeeper.send_signal(signal.SIGCONT)
    finish(load, reader)


@pytest.mark.nightly
def test_a_replica_that_begins_with_an_empty_disk_delivers_all(cluster: QbusCluster) -> None:
    create_topic(cluster.bootstrap, "e", 3, min_insync_replicas="1", segment_bytes="300000")
    load, reader = DelayedLoad(cluster.bootstrap, "e"), Reader(cluster.bootstrap, "e")
    time.sleep(2)
    empty = cluster.brokers[3]
    empty.stop()
    shutil.rmtree(cluster.log_dir(3))
    empty.start()
    with Admin(cluster.bootstrap) as admin:
        wait_until(
            lambda: all(3 in one.isr for one in admin.describe_topic("e").partitions),
            "the replica to be in sync",
        )
    cluster.brokers[1].stop()
    cluster.brokers[2].stop()
    finish(load, reader)


def test_a_dead_letter_topic_that_another_broker_leads(cluster: QbusCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    late = {"qbus.delay.enable": "true", "qbus.delay.dead.letter.topic": "dead"}
    admin.create_topics([NewTopic("late", 3, 3, config=late)])["late"].result(60)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(30):
        headers: list[tuple[str, str | bytes | None]] = [
            ("qbus-deliver-at", str(round(time.time() * 1000) + 2_000)),
            ("qbus-ttl", "500ms"),
        ]
        producer.produce("late", b"%d" % number, partition=number % 3, headers=headers)
    assert producer.flush(30) == 0
    for node in (2, 3):
        cluster.brokers[node].send_signal(signal.SIGSTOP)  # so that nobody leads with replicas
    cluster.brokers[1].send_signal(signal.SIGSTOP)
    time.sleep(4)
    for broker in cluster.brokers.values():
        broker.send_signal(signal.SIGCONT)
    # It is created only now: until then they wait for it.
    admin.create_topics([NewTopic("dead", 1, 3)])["dead"].result(60)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    consumer.assign(
        [TopicPartition("dead", 0, 0), *(TopicPartition("late", n, 0) for n in range(3))]
    )
    came: dict[bytes, str] = {}
    deadline = time.monotonic() + 60
    while len(came) < 30 and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            came[message.value() or b""] = message.topic() or ""
    consumer.close()
    assert came == {b"%d" % number: "dead" for number in range(30)}
