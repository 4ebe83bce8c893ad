"""Replicas that move under load, and throttled moves."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.qbus_cluster import QbusCluster
from tests.support.waiting import wait_until

from .run import PARTITIONS, Run
from .targets import cluster

pytestmark = [pytest.mark.integration, pytest.mark.nightly, pytest.mark.timeout(600)]

_MB = 1_000_000
_PATIENCE = 120.0


def qbus(bootstrap: str, *words: str, codes: tuple[int, ...] = (0,)) -> Any:
    """The output of a command."""
    command = [sys.executable, "-m", "qbus", *words, "--bootstrap", bootstrap, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in codes, done.stderr
    return json.loads(done.stdout)


def moves_of(topic: str, targets: Sequence[Sequence[int]]) -> list[str]:
    """The target replicas, as command-line options."""
    pairs = (f"{topic}:{n}={','.join(map(str, target))}" for n, target in enumerate(targets))
    return [word for pair in pairs for word in ("--move", pair)]


def wait_done(bootstrap: str, moves: Sequence[str]) -> None:
    """Wait until all moves are done; this removes the throttle, too."""

    def is_done() -> bool:
        states = qbus(bootstrap, "reassign", "verify", *moves, codes=(0, 3))["partitions"]
        return all(one["state"] == "done" for one in states)

    wait_until(is_done, "the moves", _PATIENCE, pause=0.3)


def test_replicas_move_away_and_back_under_load(target: str, run: Run) -> None:
    """The old replicas are deleted, the new ones have everything."""
    if target == "kafka":
        pytest.skip("our command")
    nodes = sorted(run.cluster.brokers)
    for _ in range(3):
        away = [run.random.sample(nodes, 2) for _ in range(PARTITIONS)]
        back = [run.random.sample(nodes, 3) for _ in range(PARTITIONS)]
        for targets in (away, back):
            moves = moves_of(run.topic, targets)
            qbus(run.cluster.bootstrap, "reassign", "execute", *moves)
            wait_done(run.cluster.bootstrap, moves)
            for index, chosen in enumerate(targets):
                for node in set(nodes) - set(chosen):
                    path = run.cluster.log_dir(node) / f"{run.topic}-{index}"
                    wait_until(lambda path=path: not path.exists(), f"{path} to be gone")  # type: ignore[misc]
        run.wait_whole()
    run.wait_served()
    run.conclude()


def test_a_leader_dies_while_its_replicas_move(target: str, run: Run) -> None:
    if target == "kafka":
        pytest.skip("our command")
    bootstrap, leader = run.cluster.bootstrap, run.leader()
    others = [node for node in run.cluster.brokers if node != leader]
    moves = moves_of(run.topic, [others] * PARTITIONS)
    qbus(bootstrap, "reassign", "execute", *moves)
    run.kill(leader)
    wait_done(bootstrap, moves)
    run.wait_served()
    run.start_brokers(leader)
    back = moves_of(run.topic, [sorted(run.cluster.brokers)] * PARTITIONS)
    qbus(bootstrap, "reassign", "execute", *back)
    wait_done(bootstrap, back)
    run.conclude()


def test_a_move_stays_below_its_throttle(target: str, tmp_path: Path) -> None:
    """The bytes copied by any time are at most what the rate allows."""
    if target == "kafka":
        pytest.skip("our command")
    size, rate = 16 * _MB, 2 * _MB
    slack = 4 * _MB  # a burst of one second, and what one response may have beyond it
    with cluster(target, tmp_path) as whole:
        assert isinstance(whole, QbusCluster)
        fill(whole.bootstrap, size)
        ((source,),) = replicas_of(whole.bootstrap, "heavy")
        goal = min(set(whole.brokers) - {source})
        copied = whole.log_dir(goal) / "heavy-0"
        moves = moves_of("heavy", [[goal]])
        started = time.monotonic()
        qbus(whole.bootstrap, "reassign", "execute", *moves, "--throttle", str(rate))

        def has_come() -> bool:
            found = sum(path.stat().st_size for path in copied.glob("*.log"))
            elapsed = time.monotonic() - started
            assert found <= rate * elapsed + slack, f"{found} bytes in {elapsed:.1f} s"
            return found >= size

        wait_until(has_come, "all of it to be copied", _PATIENCE)
        wait_done(whole.bootstrap, moves)
        assert replicas_of(whole.bootstrap, "heavy") == [[goal]]


def replicas_of(bootstrap: str, topic: str) -> list[list[int]]:
    """The replicas of each partition."""
    (described,) = qbus(bootstrap, "topic", "describe", topic)
    return [list(one["replicas"]) for one in described["partitions"]]


def fill(bootstrap: str, size: int) -> None:
    """Create a topic on one broker only."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("heavy", 1, 1)])["heavy"].result(60)
    producer = ck.Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    record = bytes(10_000)
    for _ in range(size // len(record)):
        producer.produce("heavy", record, partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0
