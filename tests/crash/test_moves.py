"""Replicas move between data directories under load, and the broker is killed: nothing is lost."""

import asyncio
import random
import time
from pathlib import Path

import pytest

from qbus.clients import Admin, TopicPartition
from tests.support.broker_process import BrokerProcess

from .audit import Load, audit, read_all
from .test_sigkill import BREATHER, PARTITIONS, await_progress, create_topic

pytestmark = [pytest.mark.crash, pytest.mark.integration]

TOPIC = "moves"


async def begin_moves(bootstrap: str, chance: random.Random, paths: list[str]) -> None:
    async with Admin(bootstrap) as admin:
        (broker,) = (await admin.describe_cluster()).nodes
        wanted = {TopicPartition(TOPIC, index): chance.choice(paths) for index in range(PARTITIONS)}
        await admin.alter_replica_log_dirs(broker.id, wanted)


async def where(bootstrap: str) -> dict[str, str]:
    """The directory of each partition that is where it is to be."""
    async with Admin(bootstrap) as admin:
        return {
            str(replica.partition): directory.path
            for directory in await admin.describe_log_dirs()
            for replica in directory.replicas
            if not replica.is_future
        }


def run_moves(data_dir: Path, moves: int, kills: bool, *options: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    paths = [str(data_dir / name) for name in ("one", "two")]
    with BrokerProcess(Path(paths[0]), "--data-dir", paths[1], *options) as broker:
        create_topic(broker.bootstrap, TOPIC, PARTITIONS, **{"segment.bytes": "1048576"})
        load = Load(broker.bootstrap, TOPIC, PARTITIONS)
        load.start()
        places = set()
        try:
            for number in range(moves):
                if not number % BREATHER:
                    await_progress(load)
                asyncio.run(begin_moves(broker.bootstrap, chance, paths))
                time.sleep(chance.uniform(0.01, 0.5))
                if kills:
                    broker.kill()
                    broker.start()
                places.add(tuple(sorted(asyncio.run(where(broker.bootstrap)).items())))
        finally:
            acknowledged = load.finish()
        assert not acknowledged.failures
        assert acknowledged.count == load.sent > 100 * moves
        assert len(places) > 2
        audit(acknowledged, read_all(broker.bootstrap, TOPIC, PARTITIONS))


@pytest.mark.parametrize(
    ("durability", "kills"), [("memory", False), ("fsync", True)], ids=["lives", "is killed"]
)
def test_ten_moves_lose_nothing_and_repeat_nothing(
    tmp_path: Path, durability: str, kills: bool
) -> None:
    run_moves(tmp_path, 10, kills, "-o", f"durability={durability}")


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("durability", ["fsync", "memory"])
def test_a_hundred_moves_lose_nothing_and_repeat_nothing(tmp_path: Path, durability: str) -> None:
    run_moves(tmp_path, 100, True, "-o", f"durability={durability}")
