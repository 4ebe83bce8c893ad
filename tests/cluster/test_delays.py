"""Delayed records while their partitions' leaders change: each once, none early, in order."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.delayed_load import DelayedLoad, Reader, create_topic, finish
from tests.support.qbus_cluster import QbusCluster

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


def test_without_enough_replicas_what_is_due_waits(cluster: QbusCluster) -> None:
    load, reader = DelayedLoad(cluster.bootstrap, "d"), Reader(cluster.bootstrap, "d")
    time.sleep(2)
    for node in (2, 3):
        cluster.brokers[node].send_signal(signal.SIGSTOP)
    time.sleep(8)
    for node in (2, 3):
        cluster.brokers[node].send_signal(signal.SIGCONT)
    finish(load, reader)
