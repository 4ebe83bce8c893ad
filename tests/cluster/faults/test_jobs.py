"""Jobs over RESP on three brokers: workers and brokers killed, leaders moved, networks cut.

A hundred workers, each with a connection to one node at a time. None of the jobs is lost, and none
comes again once its acknowledgement was answered, wherever it was given; no two workers have one at
a time under one leader, and the deliveries are counted right. Exactly those beyond the limit are
dead letters. With RETRY 0 none comes twice, ever.
"""

import math
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from qbus import Admin, QbusError
from tests.support import job_letters, namespaces, zookeeper_process
from tests.support.cluster_view import View
from tests.support.job_audit import Seen
from tests.support.job_load import JobLoad
from tests.support.leader_watch import LeaderWatch
from tests.support.namespaces import Network
from tests.support.ports import free_port
from tests.support.qbus_cluster import NODES, QbusCluster
from tests.support.resp_client import RespClient
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

from .targets import SESSION, cluster, names

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

LOCK_S = 4
PROCESSES, TASKS = 5, 20
ZOOKEEPER = "zk1"
QUEUE = "q"
POISON = 100
SCALE = float(os.environ.get("QBUS_JOBS_SCALE", "1"))
"""Factor on the million jobs of a night: ``QBUS_JOBS_SCALE=0.1`` takes a tenth of the time."""
SECONDS = float(os.environ.get("QBUS_JOBS_SECONDS", "inf"))
"""For how long jobs are added at most."""
_FEW = 1_000
_MOST_PEACE_S = 8.0
_ON_ITS_WAY_S = 1.0
"""For how long a node may have had a job of another one when a worker gets it: its lock runs."""
_AT_LEAST_ONCE = ("RETRY", str(LOCK_S), "REPLICATE", "2")
_AT_MOST_ONCE = ("RETRY", "0", "REPLICATE", "1")


class World:
    """The brokers, their network, and who works on their jobs."""

    def __init__(
        self,
        whole: QbusCluster,
        network: Network,
        load: JobLoad,
        watch: LeaderWatch,
        seed: int,
    ) -> None:
        self.cluster = whole
        self.network = network
        self.load = load
        self.watch = watch
        self.chance = random.Random(seed)
        self.letters = job_letters.DeadLetters(whole.bootstrap)

    # What may happen

    def kill_worker(self) -> None:
        self.load.kill_worker(TASKS)

    def kill_broker(self) -> None:
        broker = self.cluster.brokers[self.chance.choice(NODES)]
        began = time.monotonic_ns()
        broker.kill()
        time.sleep(self.chance.uniform(0.0, SESSION))
        broker.start()
        self.watch.may_have_changed(began, time.monotonic_ns())

    def move_leaders(self) -> None:
        """Let another replica of each partition lead it; where that cannot be, it fails."""
        view = View(self.cluster.brokers)
        found = view.partitions(QUEUE)
        targets = {
            (QUEUE, index): [*one.replica_nodes[1:], one.replica_nodes[0]]
            for index, one in found.items()
        }
        with suppress(QbusError), Admin(self.cluster.bootstrap, request_timeout_ms=5_000) as admin:
            admin.alter_reassignments(targets)
            time.sleep(1)
            admin.elect_leaders(list(targets))

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

    def run(self, kinds: list[Callable[[], None]], least: int, until_done: int) -> None:
        """Have faults happen, one after the other, until so many jobs are done."""
        happened: dict[str, int] = {}
        end = time.monotonic() + SECONDS
        while sum(happened.values()) < least or self.load.seen().done < until_done:
            if time.monotonic() > end:
                self.load.end_adding()
                break
            kind = self.chance.choice(kinds)
            happened[kind.__name__] = happened.get(kind.__name__, 0) + 1
            kind()
            time.sleep(self.chance.uniform(0.5, _MOST_PEACE_S))
        print(f"{happened}, {self.load.seen().done} jobs are done")

    # How it ends

    def finish(self, count: int, patience_s: float) -> Seen:
        """Wait until all is done or given up, and a while longer; what was seen."""
        load, poison = self.load, job_letters.poisoned(range(count), POISON)
        wait_until(lambda: load.is_added, "all jobs to be added", patience_s, pause=1.0)

        def left() -> object:
            seen = load.seen()
            more = seen.added - seen.done - len(seen.unanswered())
            if more > len(poison) + _FEW:
                return more
            return seen.lost(self.letters.read())

        wait_until(lambda: not left(), "all jobs to be done", patience_s, pause=1.0)
        time.sleep(2 * LOCK_S)
        dead = self.letters.read()
        wait_until(lambda: not load.undone().keys() - dead.keys(), "what was acknowledged", 60)
        seen = load.stop()
        breaks = self.watch.breaks()
        judged, pairs = seen.pairs(breaks)
        print(f"given out {seen.histogram()}; {load.deaths} processes of workers were killed")
        print(f"leaders may have changed: {breaks}")
        print(f"{len(dead)} dead letters; {judged} of {pairs} deliveries came after others")
        assert seen.added == count or not math.isinf(SECONDS)
        assert not seen.lost(dead)
        assert not seen.done_twice()
        assert not seen.given_after_done()
        assert not seen.given_within_lock(LOCK_S - _ON_ITS_WAY_S, breaks)
        assert not seen.miscounted(LOCK_S, breaks)
        job_letters.check_letters(seen, POISON, dead)
        return seen


@contextmanager
def world(directory: Path, words: tuple[str, ...], poison: int) -> Iterator[World]:
    """Three brokers in a network of their own, and nobody who works yet."""
    skip_because_of(namespaces.missing() or zookeeper_process.missing())
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    (journals := directory / "journals").mkdir()
    with Network(names("qbus", 1)) as network:
        whole = cluster("qbus", directory, network)
        assert isinstance(whole, QbusCluster)
        nodes = []
        for broker in whole.brokers.values():
            port = free_port()
            broker.options = (
                *broker.options,
                *("--disque-listen", f"{broker.host}:{port}"),
                *("-o", "auto.leader.rebalance.enable=false"),  # leaders move when it is said
            )
            nodes.append((broker.host, port))
        with whole:
            view = View(whole.brokers)
            wait_until(view.are_all_there, "all brokers", 60)
            job_letters.prepare(whole.bootstrap, len(NODES))
            load = JobLoad(journals, nodes, QUEUE, words, seed, poison=poison)
            try:
                with LeaderWatch(view, QUEUE) as watch:
                    yield World(whole, network, load, watch, seed)
            finally:
                load.stop()


@pytest.mark.nightly
def test_workers_and_brokers_die_and_networks_are_cut(tmp_path: Path) -> None:
    with world(tmp_path, _AT_LEAST_ONCE, POISON) as all_there:
        all_there.load.work(PROCESSES, TASKS)
        all_there.load.add(20_000, 2, 4)
        all_there.kill_worker()
        all_there.kill_broker()
        all_there.move_leaders()
        all_there.cut_broker()
        all_there.kill_worker()
        all_there.finish(20_000, 300)


@pytest.mark.nightly
@pytest.mark.timeout(14_400)
def test_a_million_jobs(tmp_path: Path) -> None:
    count = int(1_000_000 * SCALE)
    with world(tmp_path, _AT_LEAST_ONCE, POISON) as all_there:
        all_there.load.work(PROCESSES, TASKS)
        all_there.load.add(count, 4, 8)
        all_there.run(kinds_of(all_there), 10, int(0.9 * count))
        all_there.finish(count, 3600)


@pytest.mark.nightly
def test_at_most_once_none_comes_twice(tmp_path: Path) -> None:
    count = int(100_000 * SCALE)
    with world(tmp_path, _AT_MOST_ONCE, 0) as all_there:
        load = all_there.load
        load.work(PROCESSES, TASKS)
        load.add(count, 2, 4)
        all_there.run(kinds_of(all_there), 10, 0)
        wait_until(lambda: load.is_added, "all jobs to be added", 300, pause=1.0)
        wait_until(lambda: load.seen().given > 0.8 * count, "most jobs", 300, pause=1.0)
        time.sleep(2 * LOCK_S)
        seen = load.stop()
        print(f"given out {seen.histogram()} of {seen.added}")
        assert seen.added == count
        assert not seen.given_twice()
        assert not seen.done_twice()


@pytest.mark.nightly
def test_a_job_that_comes_late_from_another_node_is_not_given_out(tmp_path: Path) -> None:
    """A cut keeps it on its way until somebody else has had it, and it is done."""
    with world(tmp_path, _AT_LEAST_ONCE, 0) as all_there:
        clients = [RespClient(port, host, 60) for host, port in all_there.load.nodes[:2]]
        with clients[1] as at_home, clients[0] as away:
            for number in range(20):  # all nodes learn of the queue
                at_home("ADDJOB", QUEUE, number, 10_000, "RETRY", 2)
            while jobs := at_home("GETJOB", "NOHANG", "COUNT", 20, "FROM", QUEUE):
                at_home("ACKJOB", *(job for _, job, _ in jobs))
            away.send("GETJOB", "TIMEOUT", 45_000, "FROM", QUEUE)
            time.sleep(1)  # it waits at the other nodes, too
            all_there.network.cut("2", "1", both=False)
            time.sleep(1)
            late = at_home("ADDJOB", QUEUE, "late", 20_000, "RETRY", 2, "ASYNC")

            def shown() -> dict[str, object]:
                words = at_home("SHOW", late)
                return dict(zip(words[::2], words[1::2], strict=True)) if words else {}

            wait_until(lambda: shown().get("state") == "active", "it to be on its way", 30)
            ((_, job, _),) = at_home("GETJOB", "TIMEOUT", 20_000, "FROM", QUEUE)
            assert job == late
            assert at_home("ACKJOB", job) == 1
            all_there.network.heal()
            assert away.receive() is None


def kinds_of(one: World) -> list[Callable[[], None]]:
    """What happens in a night, and how often."""
    kinds = [one.kill_worker, one.kill_worker, one.kill_broker, one.move_leaders]
    return [*kinds, one.cut_broker, one.cut_two, one.cut_zookeeper]
