"""Topic to topic and topic to Parquet on a cluster in which everything dies: each record once."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from qbus import Admin, QbusError
from tests.support import spark_session, zookeeper_process
from tests.support.local_cluster import PATIENCE, Up
from tests.support.numbered_load import Load, read_all
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

from .copied import Files, count_records
from .driver import Driver
from .faults import Faults

pytestmark = pytest.mark.timeout(900)

SOURCE, TARGET = "source", "target"
_LONG = 300.0  # PATIENCE is for what a machine does that has nothing else to do


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """Three brokers, and Spark's master with two workers."""
    skip_because_of(zookeeper_process.missing() or spark_session.missing())
    options = ("zookeeper.session.timeout.ms=6000", "min.insync.replicas=2")
    with Up(tmp_path / "cluster", *options, spark=True) as up:
        yield up


class Copying:
    """A topic that is written, and an application that copies it."""

    def __init__(self, up: Up, directory: Path, *, to_files: bool = True) -> None:
        for topic in (SOURCE, TARGET):
            up.qbus("topic", "create", topic, "--partitions", "2", "--replication-factor", "3")
        self.up = up
        self.files = Files(directory / "files") if to_files else None
        self.load = Load(up.bootstrap, SOURCE, pause=0.03)
        self.admin = Admin(up.bootstrap)
        port = up.status()["spark"]["master"]["port"]
        self.driver = Driver(
            directory / "driver.log",
            master=f"spark://127.0.0.1:{port}",
            bootstrap=up.bootstrap,
            source=SOURCE,
            target=TARGET,
            directory=str(directory),
            copies="topic files" if to_files else "topic",
        )

    def __enter__(self) -> Self:
        self.load.start()
        self.driver.keep_running()
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.kill()
        self.load.stop()
        self.admin.close()

    def wait_begun(self) -> None:
        """Wait until there is something to copy, and a copy of it."""
        wait_until(lambda: len(self.load.acknowledged) > 10, "records", PATIENCE)
        self.wait_copied()

    def wait_copied(self) -> None:
        """Wait until all copies have what is acknowledged by now."""
        count = len(self.load.acknowledged)

        def are_copied() -> bool:
            self.driver.keep_running()
            try:
                records = count_records(self.admin, TARGET)
            except QbusError:  # brokers are away, or do not all know a new partition yet
                return False
            return records >= count and (self.files is None or self.files.count() >= count)

        try:
            wait_until(are_copied, f"{count} copies", _LONG, pause=1.0)
        except AssertionError as error:
            end = self.driver.log.read_text(errors="replace")[-4000:]
            files = "no" if self.files is None else self.files.count()
            raise AssertionError(f"{error}: {files} in files; the driver says: {end}") from None

    def check(self) -> None:
        """Every record that was acknowledged is in each copy, once."""
        self.load.stop()
        assert self.load.failed == []
        self.wait_copied()
        self.driver.kill()
        sent = Counter(self.load.acknowledged)
        records = count_records(self.admin, TARGET)
        assert Counter(read_all(self.up.bootstrap, TARGET, records)) == sent
        if self.files is not None:
            assert Counter(self.files.values()) == sent


def run(up: Up, directory: Path, seed: int, count: int | None = None) -> None:
    """Let ``count`` faults happen, or each of them once; then nothing is missing or there twice."""
    chance = random.Random(seed)
    with Copying(up, directory) as copying:
        copying.wait_begun()
        faults = Faults(up, copying.driver, [SOURCE, TARGET], chance)
        every = faults.all()
        chosen = (
            chance.sample(every, len(every)) if count is None else chance.choices(every, k=count)
        )
        print(f"seed {seed}: {', '.join(fault.__name__ for fault in chosen)}")
        for fault in chosen:
            fault()
            copying.wait_copied()
        copying.check()


@pytest.mark.nightly
def test_killed_workers_and_drivers_and_a_broker_that_restarts(up: Up, tmp_path: Path) -> None:
    with Copying(up, tmp_path, to_files=False) as copying:
        copying.wait_begun()
        faults = Faults(up, copying.driver, [SOURCE, TARGET], random.Random())
        faults.kill_a_python_worker()
        faults.kill_an_executor()
        copying.wait_copied()
        faults.restart_a_broker()
        faults.kill_the_driver()
        copying.check()
        assert copying.driver.starts > 1


@pytest.mark.nightly
def test_each_fault_once(up: Up, tmp_path: Path) -> None:
    run(up, tmp_path, random.randrange(1 << 32))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(8))
def test_many_faults(up: Up, tmp_path: Path, seed: int) -> None:
    run(up, tmp_path, seed, count=8)
