"""Workers, the hub and the supervisor killed under load keep every promise they made."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.support import slow_disk
from tests.support.slow_disk import SlowDisk
from tests.support.small_disk import CannotMountError, small_disk
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until
from tests.support.workers_process import WorkersProcess

from .audit import Acknowledged, Load, audit, read_all
from .group_load import GroupLoad
from .test_sigkill import BREATHER, await_progress, create_topic

pytestmark = [pytest.mark.crash, pytest.mark.integration]

TOPIC = "kills"
WORKERS = 2
PARTITIONS = 4

Kill = Callable[[WorkersProcess, random.Random], None]


def kill_worker(broker: WorkersProcess, chance: random.Random) -> None:
    """One of them; the supervisor starts it again."""
    broker.kill_worker(chance.randint(1, broker.count))


def kill_hub(broker: WorkersProcess, _: random.Random) -> None:
    """The workers end with it, and all start again."""
    os.kill(broker.hub_pid(), signal.SIGKILL)


def kill_supervisor(broker: WorkersProcess, _: random.Random) -> None:
    """Everything ends with it."""
    broker.kill()
    broker.wait_for_children()
    broker.start()


def kill_all(broker: WorkersProcess, _: random.Random) -> None:
    """Every process at once."""
    broker.kill_all()
    broker.start()


def kill_something(broker: WorkersProcess, chance: random.Random) -> None:
    """One worker most of the time."""
    kills: list[Kill] = [kill_hub, kill_supervisor, kill_all, *[kill_worker] * 5]
    chance.choice(kills)(broker, chance)


def all_lead(broker: WorkersProcess) -> bool:
    if not broker.serves():
        return False
    try:
        metadata = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(TOPIC, 10)
    except KafkaException:  # they have ended meanwhile, with the hub
        return False
    partitions = metadata.topics[TOPIC].partitions
    return len(partitions) == PARTITIONS and all(one.leader > 0 for one in partitions.values())


@dataclass
class Clients:
    """A producer, a group, and what was acknowledged so far."""

    load: Load
    group: GroupLoad
    acknowledged: Acknowledged

    def take_more(self) -> None:
        """Wait until more was acknowledged."""
        before = self.acknowledged.count
        wait_until(lambda: self.acknowledged.count > before, "more to be acknowledged", 60)


@contextmanager
def used(broker: WorkersProcess) -> Iterator[Clients]:
    """An idempotent producer and a group use the broker meanwhile; then all is audited."""
    create_topic(broker.bootstrap, TOPIC, PARTITIONS, **{"segment.bytes": "1048576"})
    load = Load(broker.bootstrap, TOPIC, PARTITIONS)
    group = GroupLoad(broker.bootstrap, TOPIC, PARTITIONS)
    load.start()
    group.start()
    try:
        try:
            yield Clients(load, group, load.acknowledged)
        finally:
            acknowledged = load.finish()
        found = read_all(broker.bootstrap, TOPIC, PARTITIONS)
        # What was acknowledged is audited even if other records were given up.
        audit(acknowledged, found)
        assert not acknowledged.failures
        assert acknowledged.count == load.sent
        group.finish(found)
    finally:
        group.leave()


def run_kills(broker: WorkersProcess, kills: int, kill: Kill) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with broker, used(broker) as clients:
        for number in range(1, kills + 1):
            time.sleep(chance.uniform(0.1, 0.8))
            kill(broker, chance)
            wait_until(lambda: all_lead(broker), "a leader for each partition", pause=0.1)
            if not number % BREATHER:
                await_progress(clients.load)
        clients.take_more()
    assert clients.acknowledged.count > 100 * kills
    assert clients.group.commits > kills


def workers(data_dir: Path, durability: str, count: int = WORKERS) -> WorkersProcess:
    return WorkersProcess(data_dir, count, "-o", f"durability={durability}")


def workers_with_slow_disk(directory: Path, sync_ms: int) -> tuple[WorkersProcess, SlowDisk]:
    """Each worker has half of its partitions on a disk that is slow."""
    skip_because_of(slow_disk.missing())
    disk = SlowDisk(directory / "slow", directory / "slow_disk.so", sync_ms)
    options = ("--data-dir", str(disk.path), "-o", "durability=fsync")
    return WorkersProcess(directory / "fast", WORKERS, *options, env=disk.env), disk


@pytest.mark.parametrize("durability", [pytest.param("fsync", marks=pytest.mark.nightly), "memory"])
def test_ten_kills_lose_nothing_and_repeat_nothing(tmp_path: Path, durability: str) -> None:
    run_kills(workers(tmp_path, durability), 10, kill_something)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("durability", ["fsync", "memory"])
@pytest.mark.parametrize("kill", [kill_something, kill_worker, kill_supervisor, kill_all])
def test_a_hundred_kills_lose_nothing_and_repeat_nothing(
    tmp_path: Path, kill: Kill, durability: str
) -> None:
    run_kills(workers(tmp_path, durability), 100, kill)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_hundred_kills_of_one_of_four(tmp_path: Path) -> None:
    run_kills(workers(tmp_path, "fsync", count=4), 100, kill_worker)


@pytest.mark.parametrize(
    "kills", [5, pytest.param(100, marks=[pytest.mark.nightly, pytest.mark.timeout(1800)])]
)
def test_one_slow_disk_and_kills(tmp_path: Path, kills: int) -> None:
    broker, _ = workers_with_slow_disk(tmp_path, 100)
    run_kills(broker, kills, kill_worker)


def on_disk(disk: Path) -> set[int]:
    """The partitions that lie there, whichever worker has them."""
    found = [*disk.glob(f"{TOPIC}-*"), *disk.glob(f"workers/*/{TOPIC}-*")]
    return {int(path.name.rpartition("-")[2]) for path in found}


def test_a_disk_that_hangs_holds_up_nothing_but_what_lies_on_it(tmp_path: Path) -> None:
    broker, disk = workers_with_slow_disk(tmp_path, 0)
    with broker:
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        wait_until(
            lambda: len(on_disk(disk.path) | on_disk(tmp_path / "fast")) == PARTITIONS,
            "a directory for each partition",
        )
        slow, fast = on_disk(disk.path), on_disk(tmp_path / "fast")
        assert len(slow) == len(fast) == PARTITIONS // 2
        # A connection's answers keep their order: each partition has one of its own.
        loads = {index: Load(broker.bootstrap, TOPIC, 1, first=index) for index in slow | fast}
        for load in loads.values():
            load.start()
        with disk.stuck():
            time.sleep(1)  # what was under way before is answered
            before = {index: load.acknowledged.count for index, load in loads.items()}
            wait_until(
                lambda: all(loads[one].acknowledged.count > before[one] + 100 for one in fast),
                "the other disk to go on",
            )
            assert all(loads[one].acknowledged.count == before[one] for one in slow)
        acknowledged = {index: load.finish() for index, load in loads.items()}
        found = read_all(broker.bootstrap, TOPIC, PARTITIONS)
        for index, load in loads.items():
            assert not acknowledged[index].failures
            assert acknowledged[index].count == load.sent
            audit(acknowledged[index], {index: found[index]})


def fill(path: Path) -> None:
    """Leave no room on the disk."""
    with path.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(65536))
    with path.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(512))


@pytest.mark.parametrize(
    "kill", [None, pytest.param(kill_worker, marks=pytest.mark.nightly), kill_hub]
)
def test_a_full_disk_of_all_workers_loses_nothing_and_passes(
    tmp_path: Path, kill: Kill | None
) -> None:
    try:
        with small_disk(tmp_path / "disk", "96m") as disk:
            run_full(disk, kill)
    except CannotMountError as reason:
        pytest.skip(str(reason))


def run_full(disk: Path, kill: Kill | None) -> None:
    """The disk is filled twice; something is killed while it is full."""
    ballast = disk / "ballast"
    broker = workers(disk / "data", "fsync")
    with broker, used(broker) as clients:
        for turn in range(2):
            clients.take_more()
            fill(ballast)
            wait_until(partial(has_been_full, broker, turn + 1), "a disk that is full")
            if kill is not None:
                kill(broker, random.Random(turn))
                time.sleep(1)
            else:
                assert all_lead(broker), "what is stored is read"
            ballast.unlink()
            wait_until(lambda: all_lead(broker), "a leader for each partition", 60)
            clients.take_more()


def has_been_full(broker: WorkersProcess, times: int) -> bool:
    return broker.log_text().count("is full: cannot") >= times
