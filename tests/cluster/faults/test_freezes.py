"""A leader whose event loop stands still: others take over, though all its threads live.

ZooKeeper's pings come from a thread. As long as they came whatever the loop did, a frozen leader
kept its session, its registration and its leadership, and every producer waited for it.
"""

import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import zookeeper_process
from tests.support.freezing_main import PROGRAM, VARIABLE
from tests.support.ports import free_ports
from tests.support.qbus_cluster import NODES, QbusCluster
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

from .run import Run
from .targets import SESSION, cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

_LONG = 4 * SESSION
_SHORT = 0.8 * SESSION
_ZOOKEEPERS_TICK = 2.0
# A third more than the session time-out, as ZooKeeper rounds it, and the election.
_WITHIN = SESSION * 4 / 3 + _ZOOKEEPERS_TICK + 3.0


class Frozen(Run):
    """A run whose brokers can be frozen, and show their metrics."""

    metrics: dict[int, int]

    def freeze(self, node: int) -> None:
        """Hold the broker's event loop."""
        self.cluster.brokers[node].send_signal(signal.SIGUSR1)

    def value(self, node: int, metric: str) -> float:
        """The value of one sample of a broker's metrics; 0.0: there is none."""
        address = f"http://127.0.0.1:{self.metrics[node]}/metrics"
        with urllib.request.urlopen(address, timeout=10) as page:
            for line in page.read().decode().splitlines():
                if line.startswith(f"{metric} "):
                    return float(line.rpartition(" ")[2])
        return 0.0

    def log(self, node: int) -> str:
        return self.cluster.brokers[node].log_text()


@pytest.fixture
def freeze_s(request: pytest.FixtureRequest) -> float:
    return float(request.param)


@pytest.fixture
def run(tmp_path: Path, freeze_s: float) -> Iterator[Frozen]:
    """Three brokers under load."""
    skip_because_of(zookeeper_process.missing())
    env = {node: {VARIABLE: str(freeze_s)} for node in NODES}
    whole = cluster("qbus", tmp_path, env=env)
    assert isinstance(whole, QbusCluster)
    ports = dict(zip(NODES, free_ports(len(NODES)), strict=True))
    for node, broker in whole.brokers.items():
        broker.program = PROGRAM
        broker.options = (*broker.options, "--metrics-listen", f"127.0.0.1:{ports[node]}")
    with whole:
        run = Frozen(whole, "freezes")
        run.metrics = ports
        try:
            run.start()
            yield run
        finally:
            run.close()


@pytest.mark.parametrize("freeze_s", [_LONG], indirect=True)
def test_a_leader_that_stands_still_for_longer_than_its_session_is_deposed(run: Frozen) -> None:
    leader = run.leader()
    epoch = run.partitions()[0].leader_epoch
    run.freeze(leader)
    frozen_at = time.monotonic()
    wait_until(lambda: "stood still" in run.log(leader), "a line while it stands")
    assert "is at time.sleep" in run.log(leader)
    assert run.value(leader, "qbus_event_loop_stall_seconds") > 1.0
    run.wait_deposed(leader)
    assert time.monotonic() - frozen_at < _WITHIN
    run.wait_served()  # an honest producer goes on
    assert time.monotonic() - frozen_at < _LONG, "it is still frozen"
    assert run.value(leader, "qbus_event_loop_stall_seconds") > SESSION

    run.wait_whole()  # it is back, as a follower
    assert time.monotonic() - frozen_at > _LONG
    assert run.partitions()[0].leader_id != leader
    assert run.partitions()[0].leader_epoch > epoch
    assert run.value(leader, 'qbus_slow_handlers_total{handler="time.sleep"}') == 1.0
    log = run.log(leader)
    assert "time.sleep held the event loop for " in log
    assert "nothing is acknowledged until it is known" in log
    assert "this broker's session or registration has ended: serving stops" in log
    run.conclude()


@pytest.mark.nightly
@pytest.mark.parametrize("freeze_s", [_SHORT], indirect=True)
def test_a_stall_shorter_than_the_session_changes_no_leader(run: Frozen) -> None:
    leader = run.leader()
    before = {index: one.leader_epoch for index, one in run.partitions().items()}
    run.freeze(leader)
    wait_until(lambda: "held the event loop for" in run.log(leader), "the end of the stall")
    run.wait_served()
    run.conclude()
    assert {index: one.leader_epoch for index, one in run.partitions().items()} == before
    assert "serving stops" not in run.log(leader)
