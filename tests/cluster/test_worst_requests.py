"""A broker under the worst requests: clients of the other brokers go on, and no leader changes.

``QBUS_WORST_SHARE`` says which part of each request is sent: 10, a tenth (the default); 1, all of
about 1 MB.
"""

import os
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.history.history import History, Outcome
from tests.support import zookeeper_process
from tests.support.qbus_cluster import NODES, QbusCluster
from tests.support.server_process import WHOLE_LOG
from tests.support.slow_handlers import slow_handlers, table
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until
from tests.support.worst_requests import worst_requests

from .faults.run import Run
from .faults.targets import cluster
from .hostile_client import Attack, HostileClient

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

SHARE = int(os.environ.get("QBUS_WORST_SHARE", "10"))
SECONDS = 60.0
MOST_GROWTH = 512 << 20  # bytes

_WINDOW_S = 5.0
_QUIET_S = 10.0
_WITHIN_S = 900.0

_ENDS_OF_SESSIONS = (": lost", "serving stops", "has died")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Three brokers under an honest load."""
    skip_because_of(zookeeper_process.missing())
    with cluster("qbus", tmp_path) as whole:
        run = Run(whole, "honest")
        try:
            run.start()
            yield run
        finally:
            run.close()


@pytest.mark.timeout(_WITHIN_S + 600)
def test_clients_of_other_brokers_go_on(run: Run) -> None:
    leaders = {index: one.leader_id for index, one in run.partitions().items()}
    assert sorted(leaders.values()) == list(NODES), "each broker leads a partition"
    attacked = wait_until(lambda: max(run.view.controller(), 0), "a controller")
    others = [node for node in NODES if node != attacked]
    brokers = run.cluster.brokers
    with HostileClient(
        run.cluster.bootstrap, brokers[attacked].port, [attacked, *others], SHARE
    ) as hostile:
        hostile.wait_prepared()
        quiet_from = time.monotonic()
        time.sleep(_QUIET_S)  # the honest clients' waits without an attack
        epochs = _epochs(run)
        memory = {node: _memory(broker.pid, "VmRSS") for node, broker in brokers.items()}
        logged = {node: len(broker.log_text(WHOLE_LOG)) for node, broker in brokers.items()}
        attack = hostile.attack(SECONDS, _WITHIN_S)
    epochs_after = _epochs(run)
    logs = {node: broker.log_text(WHOLE_LOG)[logged[node] :] for node, broker in brokers.items()}
    grown = {node: _memory(broker.pid, "VmHWM") - memory[node] for node, broker in brokers.items()}
    history = run.conclude()

    print(f"broker {attacked} was attacked, others: {others}; leaders: {leaders}")
    _print_attack(attack)
    _print_waits(history, attack, quiet_from, leaders)
    for node, log in logs.items():
        print(
            f"broker {node} grew by {grown[node] >> 20} MB at most; suspended sessions:"
            f" {log.count(': suspended')}; changes of the honest topic's in-sync replicas:"
            f" {log.count(f'isr_changes: {run.topic}-')}; slow handlers:"
        )
        print(table(slow_handlers(log)))
    assert {name: epochs_after.get(name) for name in epochs} == epochs, "a leader changed"
    assert attack.sent >= len(list(worst_requests(SHARE)))
    assert attack.answered > attack.sent / 2
    assert attack.expressions_answered > attack.expressions / 2
    for node, log in logs.items():
        ended = [line for line in log.splitlines() if any(map(line.count, _ENDS_OF_SESSIONS))]
        assert not ended, f"broker {node}: {ended}"
        assert grown[node] < MOST_GROWTH, f"broker {node} grew by {grown[node] >> 20} MB"
    for partition in (index for index, leader in leaders.items() if leader != attacked):
        counts = _acknowledged(history, partition, attack)
        print(f"partition {partition}: acknowledged in each {_WINDOW_S:g} s: {counts}")
        assert len(counts) >= SECONDS / _WINDOW_S
        assert min(counts) > 0, f"partition {partition} stood still: {counts}"


def _epochs(run: Run) -> dict[str, dict[int, tuple[int, int]]]:
    """The leader and the epoch of each partition that clients do not delete."""
    assert isinstance(run.cluster, QbusCluster)
    return {
        name: {index: (one.leader_id, one.leader_epoch) for index, one in found.items()}
        for name, found in run.view.topics().items()
        if name == run.topic or name.startswith("__")
    }


def _memory(pid: int, name: str) -> int:
    """A process's memory in bytes: ``VmRSS`` now, ``VmHWM`` at most so far."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no memory")


def _acknowledged(history: History, partition: int, attack: Attack) -> list[int]:
    """The number of acknowledgements in each whole window of the attack."""
    counts = [0] * int((attack.ended - attack.began) / _WINDOW_S)
    for one in history.produces:
        if one.partition == partition and one.outcome is Outcome.OK and one.ended is not None:
            window = int((one.ended - attack.began) // _WINDOW_S)
            if 0 <= window < len(counts):
                counts[window] += 1
    return counts


def _print_attack(attack: Attack) -> None:
    print(
        f"{attack.ended - attack.began:.0f} s, {attack.rounds} whole rounds:"
        f" {attack.answered} of {attack.sent} requests answered,"
        f" {attack.expressions_answered} of {attack.expressions} regular expressions"
    )
    for title, seconds in attack.slowest_first[:10]:
        print(f"{seconds:7.2f} s  {title}")


def _print_waits(
    history: History, attack: Attack, quiet_from: float, leaders: dict[int, int]
) -> None:
    for when, began, ended in (
        ("before the attack", quiet_from, attack.began),
        ("in the attack", attack.began, attack.ended),
    ):
        for partition, leader in sorted(leaders.items()):
            sent = _longest_send(history, partition, began, ended)
            read = _longest_pause(history, partition, began, ended)
            print(
                f"{when}: partition {partition}, led by {leader}: the longest wait for an"
                f" acknowledgement {sent * 1e3:.0f} ms, for a record {read * 1e3:.0f} ms"
            )


def _longest_send(history: History, partition: int, began: float, ended: float) -> float:
    return max(
        (
            one.ended - one.started
            for one in history.produces
            if one.partition == partition and one.ended and began <= one.started < ended
        ),
        default=0.0,
    )


def _longest_pause(history: History, partition: int, began: float, ended: float) -> float:
    """The longest time from one poll with records to the next, of any consumer."""
    times: dict[str, list[float]] = {}
    for poll in history.polls:
        if poll.partition == partition and began <= poll.ended < ended:
            times.setdefault(poll.consumer, []).append(poll.ended)
    return max(
        (after - before for one in times.values() for before, after in pairwise(one)), default=0.0
    )
