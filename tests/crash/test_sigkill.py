"""A broker killed under load, again and again, keeps every promise it made."""

import random
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.broker_process import BrokerProcess

from .audit import Load, audit, read_all

pytestmark = [pytest.mark.crash, pytest.mark.integration]

PARTITIONS = 3


def create_topic(bootstrap: str, topic: str, partitions: int, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(30)


def run_kills(data_dir: Path, kills: int, *options: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with BrokerProcess(data_dir, *options) as broker:
        # Small segments: rolls, indexes and snapshots are hit by kills too.
        create_topic(broker.bootstrap, "kills", PARTITIONS, **{"segment.bytes": "1048576"})
        load = Load(broker.bootstrap, "kills", PARTITIONS)
        load.start()
        try:
            for _ in range(kills):
                time.sleep(chance.uniform(0.1, 0.8))
                broker.kill()
                broker.start()
        finally:
            acknowledged = load.finish()
        assert not acknowledged.failures
        assert acknowledged.count == load.sent > 100 * kills
        audit(acknowledged, read_all(broker.bootstrap, "kills", PARTITIONS))


@pytest.mark.parametrize("durability", ["fsync", "memory"])
def test_ten_kills_lose_nothing_and_repeat_nothing(tmp_path: Path, durability: str) -> None:
    run_kills(tmp_path, 10, "-o", f"durability={durability}")


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("durability", ["fsync", "memory"])
def test_a_hundred_kills_lose_nothing_and_repeat_nothing(tmp_path: Path, durability: str) -> None:
    run_kills(tmp_path, 100, "-o", f"durability={durability}")
