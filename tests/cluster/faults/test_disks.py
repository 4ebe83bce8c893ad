"""A replica whose disk is full for a while, is lost, or has a flipped bit."""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.small_disk import CannotMountError, small_disk
from tests.support.waiting import wait_until

from .replicas import batches
from .run import PARTITIONS, Run
from .targets import cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

_NODE = 2


@pytest.fixture
def crowded(target: str, tmp_path: Path) -> Iterator[Run]:
    """A cluster in which one broker has a small disk."""
    if target == "kafka":
        pytest.skip("Kafka stops when its only disk fails")
    try:
        with small_disk(tmp_path / f"node-{_NODE}", "24m"), cluster(target, tmp_path) as whole:
            run = Run(whole, "crowded")
            try:
                run.start()
                yield run
            finally:
                run.close()
    except CannotMountError as reason:
        pytest.skip(str(reason))


def fill(disk: Path) -> Path:
    """Fill the disk; return the file to remove to have room again."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(os.urandom(1 << 16))
    assert os.statvfs(disk).f_bavail == 0
    return ballast


@pytest.mark.nightly
def test_one_disk_is_full_for_a_while(crowded: Run) -> None:
    run = crowded
    ballast = fill(run.cluster.log_dir(_NODE))
    run.wait_deposed(_NODE)
    run.wait_out_of_sync(_NODE)
    run.wait_served()
    assert run.view.are_led([run.topic], PARTITIONS, without=_NODE), "while its disk is full"
    ballast.unlink()
    run.conclude()


@pytest.mark.nightly
def test_a_disk_is_lost_with_all_its_data(run: Run) -> None:
    """The broker, a leader or a follower, comes back with an empty disk under the same id."""
    for victim in (run.leader(), run.follower()):
        run.kill(victim)
        shutil.rmtree(run.cluster.log_dir(victim))
        run.wait_served()
        run.start_brokers(victim)
        run.wait_whole()
    run.conclude()


def test_a_bit_flips_on_one_replica(run: Run) -> None:
    found = run.partitions()[0]
    victim = run.random.choice(list(found.replica_nodes))
    directory = run.cluster.log_dir(victim) / f"{run.topic}-0"
    wait_until(lambda: len(batches(directory)) > 20, "some batches")
    run.kill(victim)
    segment = max(directory.glob("*.log"), key=lambda file: file.stat().st_size)
    data = bytearray(segment.read_bytes())
    place = run.random.randrange(len(data) // 2)
    data[place] ^= 1 << run.random.randrange(8)
    segment.write_bytes(data)
    print(f"bit flipped at {place} of {len(data)} of {segment}")
    run.wait_served()
    run.start_brokers(victim)
    run.conclude()
