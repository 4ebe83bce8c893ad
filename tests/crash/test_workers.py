"""Workers, the hub and the supervisor killed under load keep every promise they made."""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.small_disk import CannotMountError, small_disk
from tests.support.waiting import wait_until
from tests.support.workers_process import WorkersProcess

from .audit import Acknowledged, Load, audit, read_all
from .test_disk_full import audit_values, produce_until_refused
from .test_sigkill import create_topic

pytestmark = [pytest.mark.crash, pytest.mark.integration]

WORKERS = 2
PARTITIONS = 4


def kill_something(broker: WorkersProcess, chance: random.Random) -> None:
    """One worker most of the time; else the hub, the supervisor, or all of them."""
    match chance.randrange(8):
        case 0:
            os.kill(broker.hub_pid(), signal.SIGKILL)
        case 1:
            broker.kill()
            broker.wait_for_children()
            broker.start()
        case 2:
            broker.kill_all()
            broker.start()
        case _:
            broker.kill_worker(chance.randint(1, WORKERS))
    wait_until(lambda: all_lead(broker), "a leader for each partition", pause=0.1)


def all_lead(broker: WorkersProcess) -> bool:
    if not broker.serves():
        return False
    try:
        metadata = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics("kills", 10)
    except KafkaException:  # they have ended meanwhile, with the hub
        return False
    partitions = metadata.topics["kills"].partitions
    return len(partitions) == PARTITIONS and all(one.leader > 0 for one in partitions.values())


def run_kills(data_dir: Path, kills: int, *options: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with WorkersProcess(data_dir, WORKERS, *options) as broker:
        create_topic(broker.bootstrap, "kills", PARTITIONS, **{"segment.bytes": "1048576"})
        load = Load(broker.bootstrap, "kills", PARTITIONS)
        load.start()
        try:
            for _ in range(kills):
                time.sleep(chance.uniform(0.1, 0.8))
                kill_something(broker, chance)
        finally:
            acknowledged = load.finish()
        assert not acknowledged.failures
        assert acknowledged.count == load.sent > 100 * kills
        audit(acknowledged, read_all(broker.bootstrap, "kills", PARTITIONS))


@pytest.mark.parametrize("durability", ["fsync", "memory"])
def test_ten_kills_lose_nothing_and_repeat_nothing(tmp_path: Path, durability: str) -> None:
    run_kills(tmp_path, 10, "-o", f"durability={durability}")


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("durability", ["fsync", "memory"])
def test_a_hundred_kills_lose_nothing_and_repeat_nothing(tmp_path: Path, durability: str) -> None:
    run_kills(tmp_path, 100, "-o", f"durability={durability}")


def test_a_full_disk_of_all_workers_loses_nothing_and_passes(tmp_path: Path) -> None:
    try:
        with small_disk(tmp_path / "disk", "64m") as disk:
            ballast = disk / "ballast"
            ballast.write_bytes(os.urandom(24 << 20))
            with WorkersProcess(disk / "data", WORKERS) as broker:
                create_topic(broker.bootstrap, "full", 2, **{"segment.bytes": "8388608"})
                acknowledged = Acknowledged()
                assert produce_until_refused(broker.bootstrap, acknowledged)
                audit_values(acknowledged, read_all(broker.bootstrap, "full", 2))
                ballast.unlink()
                broker.restart()
                audit_values(acknowledged, read_all(broker.bootstrap, "full", 2))
    except CannotMountError as reason:
        pytest.skip(str(reason))
