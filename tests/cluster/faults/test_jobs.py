"""Jobs over RESP on three brokers: workers and brokers killed, networks and ZooKeeper cut.

A hundred workers, each with a connection to one node at a time. None of the jobs is lost, and none
comes again once its acknowledgement was answered, wherever it was given.
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import namespaces, zookeeper_process
from tests.support.cluster_view import View
from tests.support.job_load import JobLoad, Seen, histogram
from tests.support.namespaces import Network
from tests.support.ports import free_port
from tests.support.qbus_cluster import NODES, QbusCluster
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

from .targets import SESSION, cluster, names

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

LOCK_S = 4
PROCESSES, TASKS = 5, 20
ZOOKEEPER = "zk1"
SCALE = float(os.environ.get("QBUS_JOBS_SCALE", "1"))
"""Factor on the million jobs of a night: ``QBUS_JOBS_SCALE=0.1`` takes a tenth of the time."""


class World:
    """The brokers, their network, and who works on their jobs."""

    def __init__(self, whole: QbusCluster, network: Network, load: JobLoad, seed: int) -> None:
        self.cluster = whole
        self.network = network
        self.load = load
        self.chance = random.Random(seed)

    # What may happen

    def kill_worker(self) -> None:
        self.load.kill_worker(TASKS)

    def kill_broker(self) -> None:
        broker = self.cluster.brokers[self.chance.choice(NODES)]
        broker.kill()
        time.sleep(self.chance.uniform(0.0, SESSION))
        broker.start()

    def cut_broker(self) -> None:
        """Clients reach it; neither the others nor ZooKeeper do."""
        self.network.isolate([str(self.chance.choice(NODES))])
        time.sleep(self.chance.uniform(1.0, 1.5 * SESSION))
        self.network.heal()

    def cut_two(self) -> None:
        one, other = self.chance.sample(NODES, 2)
        self.network.cut(str(one), str(other), both=self.chance.random() < 0.5)
        time.sleep(self.chance.uniform(1.0, SESSION))
        self.network.heal()

    def cut_zookeeper(self) -> None:
        self.network.isolate([ZOOKEEPER])
        time.sleep(self.chance.uniform(1.0, 1.5 * SESSION))
        self.network.heal()

    def run(self, faults: int, kinds: list[Callable[[], None]]) -> None:
        """Have so many faults happen, one after the other."""
        for _ in range(faults):
            self.chance.choice(kinds)()
            time.sleep(self.chance.uniform(0.5, 3.0))

    def finish(self, count: int, patience_s: float) -> Seen:
        """Wait until all is done, and a while longer; what was seen."""
        wait_until(lambda: self.load.is_added, "all jobs to be added", patience_s, pause=1.0)
        wait_until(
            lambda: not self.load.seen().lost(), "all jobs to be done", patience_s, pause=2.0
        )
        time.sleep(2 * LOCK_S)
        seen = self.load.stop()
        print(histogram(seen))
        assert len(seen.added) == count
        return seen


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    skip_because_of(namespaces.missing() or zookeeper_process.missing())
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    (journals := tmp_path / "journals").mkdir()
    with Network(names("qbus", 1)) as network:
        whole = cluster("qbus", tmp_path, network)
        assert isinstance(whole, QbusCluster)
        nodes = []
        for broker in whole.brokers.values():
            port = free_port()
            broker.options = (*broker.options, "--disque-listen", f"{broker.host}:{port}")
            nodes.append((broker.host, port))
        with whole:
            wait_until(View(whole.brokers).are_all_there, "all brokers", 60)
            load = JobLoad(journals, nodes, "q", ["RETRY", str(LOCK_S), "REPLICATE", "2"], seed)
            try:
                yield World(whole, network, load, seed)
            finally:
                load.stop()


def check(seen: Seen) -> None:
    assert not seen.lost()
    assert not seen.done_twice()
    assert not seen.given_after_done()


@pytest.mark.nightly
def test_workers_and_brokers_die_and_networks_are_cut(world: World) -> None:
    world.load.work(PROCESSES, TASKS)
    world.load.add(20_000, 2, 4)
    world.kill_worker()
    world.kill_broker()
    world.cut_broker()
    world.kill_worker()
    check(world.finish(20_000, 300))


@pytest.mark.nightly
@pytest.mark.timeout(14_400)
def test_a_million_jobs(world: World) -> None:
    world.load.work(PROCESSES, TASKS)
    count = int(1_000_000 * SCALE)
    world.load.add(count, 4, 16)
    kinds = [world.kill_worker, world.kill_worker, world.kill_broker]
    kinds += [world.cut_broker, world.cut_two, world.cut_zookeeper]
    while not world.load.is_added:
        world.run(5, kinds)
    check(world.finish(count, 3600))
