"""A broker killed under load, again and again, keeps every promise it made."""

import random
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until

from .audit import Load, audit, read_all

pytestmark = [pytest.mark.crash, pytest.mark.integration]

PARTITIONS = 3
BREATHER = 10
"""After so many kills the broker lives until it has acknowledged something."""


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
            for number in range(1, kills + 1):
                time.sleep(chance.uniform(0.1, 0.8))
                broker.kill()
                broker.start()
                if not number % BREATHER:
                    await_progress(load)
        finally:
            acknowledged = load.finish()
        # What was acknowledged is audited even if other records were given up.
        audit(acknowledged, read_all(broker.bootstrap, "kills", PARTITIONS))
        assert not acknowledged.failures
        assert acknowledged.count == load.sent > 100 * kills


def await_progress(load: Load) -> None:
    """Return when a record more is acknowledged.

    On a busy machine none may be for as long as a client's patience lasts, if each start is
    followed by a kill that soon.
    """
    before = load.acknowledged.count
    wait_until(lambda: load.acknowledged.count > before, "a record to be acknowledged", 100)


@pytest.mark.parametrize("durability", ["fsync", "memory"])
def test_ten_kills_lose_nothing_and_repeat_nothing(tmp_path: Path, durability: str) -> None:
    run_kills(tmp_path, 10, "-o", f"durability={durability}")


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("durability", ["fsync", "memory"])
def test_a_hundred_kills_lose_nothing_and_repeat_nothing(tmp_path: Path, durability: str) -> None:
    run_kills(tmp_path, 100, "-o", f"durability={durability}")
