"""Random transactions while brokers die, stop and are cut off; nothing contradicts itself."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import namespaces, slow_disk, stepped_clock
from tests.support.namespaces import Network
from tests.support.qbus_cluster import NODES
from tests.support.slow_disk import SlowDisk
from tests.support.stepped_clock import SteppedClock
from tests.support.tools import skip_because_of
from tests.transactions.checker import check
from tests.transactions.history import History, Outcome
from tests.transactions.load import TransactionalLoad

from .probe import create_topic
from .run import PARTITIONS, Run
from .storm import Storm
from .targets import cluster, names

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

NIGHTLY = int(os.environ.get("QBUS_TRANSACTIONS", "10000"))
LONGEST_S = float(os.environ.get("QBUS_TRANSACTIONS_SECONDS", "6000"))
TOPIC = "transactions"
_TIMEOUT_MS = 20_000


@contextmanager
def transactions(run: Run) -> Iterator[TransactionalLoad]:
    """Five transactional clients over a topic of their own, beside the run's load."""
    create_topic(run.cluster.bootstrap, TOPIC, PARTITIONS)
    load = TransactionalLoad(
        run.cluster.bootstrap, TOPIC, PARTITIONS, seed=run.seed, timeout_ms=_TIMEOUT_MS
    )
    load.start()
    yield load


def conclude(run: Run, load: TransactionalLoad) -> History:
    """End the faults; fail unless every promise was kept, of both loads."""
    run.conclude()
    history = load.finish()
    report = check(history)
    print(report)
    print(f"a last stable offset stood still for at most {longest_standstill(history):.1f} s")
    assert not report.findings, str(report)
    assert history.told(Outcome.COMMITTED) > 50
    assert sum(len(one.polls) for one in history.transactions) > 20
    return history


def longest_standstill(history: History) -> float:
    """Seconds for which a last stable offset was seen to be the same, below the end."""
    longest, since = 0.0, dict[int, tuple[int, float]]()
    for ends in sorted(history.ends, key=lambda ends: ends.asked):
        stable, began = since.get(ends.partition, (-1, ends.asked))
        if ends.stable == ends.end or ends.stable != stable:
            began = ends.asked
        since[ends.partition] = ends.stable, began
        longest = max(longest, ends.told - began)
    return longest


def test_brokers_die_one_after_the_other(run: Run) -> None:
    """Each of them leads a partition, and coordinates a client."""
    with transactions(run) as load:
        load.wait_done(30)
        for node in list(run.cluster.brokers):
            run.kill(node)
            load.wait_done(15)
            run.start_brokers(node)
            run.wait_whole()
        load.wait_done(30)
        conclude(run, load)


@pytest.mark.nightly
def test_all_brokers_die_at_once(run: Run) -> None:
    with transactions(run) as load:
        load.wait_done(30)
        nodes = list(run.cluster.brokers)
        run.kill(*nodes)
        run.start_brokers(*nodes)
        load.wait_done(30)
        conclude(run, load)


@pytest.mark.nightly
def test_a_leader_stops_for_longer_than_its_session(run: Run) -> None:
    with transactions(run) as load:
        load.wait_done(30)
        leader = run.leader()
        run.stop(leader)
        run.wait_deposed(leader)
        load.wait_done(15)
        run.resume(leader)
        load.wait_done(30)
        conclude(run, load)


@pytest.mark.nightly
def test_brokers_are_cut_off_one_after_the_other(networked_run: Run, network: Network) -> None:
    """The clients still reach them: leader and coordinator of before, who do not know it yet."""
    run = networked_run
    with transactions(run) as load:
        load.wait_done(30)
        for node in NODES:
            network.isolate([str(node)])
            run.wait_deposed(node)
            load.wait_done(15)
            network.heal()
            run.wait_whole()
        load.wait_done(30)
        conclude(run, load)


@pytest.mark.nightly
def test_cuts_come_and_go_in_one_direction_or_both(networked_run: Run, network: Network) -> None:
    run = networked_run
    with transactions(run) as load:
        load.wait_done(30)
        for _ in range(12):
            one, other = run.random.sample(sorted(network.hosts), 2)
            network.cut(one, other, both=run.random.random() < 0.5)
            time.sleep(run.random.uniform(0.2, 8.0))
            network.heal()
            time.sleep(run.random.uniform(0.0, 1.0))
        run.heal()
        load.wait_done(60)
        conclude(run, load)


@pytest.mark.nightly
def test_disks_are_slow_and_stand_still(target: str, tmp_path: Path) -> None:
    """One of them takes a fifth of a second, and for a while no sync returns; brokers die, too."""
    disks = {node: slow(tmp_path, node, sync_ms=200 if node == 2 else 5) for node in NODES}
    with cluster(target, tmp_path, env={node: disks[node].env for node in NODES}) as whole:
        run = Run(whole, "slow", _seed())
        try:
            run.start()
            with transactions(run) as load:
                load.wait_done(20)
                for node in NODES:
                    with disks[node].stuck():
                        time.sleep(run.random.choice([2.0, 6.0]))
                        if run.random.random() < 0.5:
                            run.kill(node)
                    run.heal()
                    load.wait_done(15)
                load.wait_done(30)
                conclude(run, load)
        finally:
            run.close()


@pytest.mark.nightly
def test_clocks_step_forward_and_back(target: str, tmp_path: Path) -> None:
    """Each broker's own, while one after the other dies and comes back with a clock that is off.

    The steps are shorter than the time-out of transactions, which the coordinator's clock tells.
    """
    skip_because_of(stepped_clock.missing())
    clocks = {node: SteppedClock(tmp_path, f"clock-{node}") for node in NODES}
    with cluster(target, tmp_path, env={node: clocks[node].env for node in NODES}) as whole:
        run = Run(whole, "clocks", _seed())
        try:
            run.start()
            with transactions(run) as load:
                load.wait_done(20)
                for node in [*NODES, *NODES]:
                    for clock in clocks.values():
                        clock.step(run.random.uniform(-8, 8))
                    load.wait_done(10)
                    run.kill(node)
                    clocks[node].step(run.random.uniform(-8, 8))
                    load.wait_done(10)
                    run.start_brokers(node)
                    run.wait_whole()
                for clock in clocks.values():
                    clock.step(0.0)
                load.wait_done(30)
                conclude(run, load)
        finally:
            run.close()


def slow(directory: Path, node: int, sync_ms: int) -> SlowDisk:
    """The disk of a node."""
    skip_because_of(slow_disk.missing())
    return SlowDisk(directory / f"node-{node}", directory / f"disk-{node}.so", sync_ms)


def rage(run: Run) -> None:
    """Storms until the clients have committed NIGHTLY transactions."""
    try:
        run.start()
        with transactions(run) as load:
            deadline = time.monotonic() + LONGEST_S
            while load.done < NIGHTLY and time.monotonic() < deadline:
                Storm(run).rage(6)
                run.heal()
                load.wait_done(100, 300.0)
            history = conclude(run, load)
        assert history.told(Outcome.COMMITTED) >= NIGHTLY or LONGEST_S < 6_000
    finally:
        run.close()
        run.heal()


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_storms(target: str, tmp_path: Path) -> None:
    with cluster(target, tmp_path) as whole:
        rage(Run(whole, "storm", _seed()))


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_storms_that_cut_networks_as_well(target: str, tmp_path: Path) -> None:
    skip_because_of(namespaces.missing())
    with Network(names(target, 3)) as network, cluster(target, tmp_path, network, 3) as whole:
        run = Run(whole, "storm", _seed())
        run.network = network
        rage(run)


def _seed() -> int | None:
    given = os.environ.get("QBUS_SEED")
    return int(given) if given else None
