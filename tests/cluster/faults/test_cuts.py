"""Network cuts: between brokers, between brokers and ZooKeeper, one-way and repeated."""

import time

import pytest

from tests.support.cluster_view import View
from tests.support.namespaces import Network
from tests.support.waiting import wait_until

from .run import Run
from .targets import SESSION

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

NODES = {1, 2, 3}
ZOOKEEPER = "zk1"


@pytest.fixture
def run(networked_run: Run) -> Run:
    """Three brokers and a ZooKeeper in network namespaces, under load."""
    return networked_run


@pytest.fixture
def zookeeper(target: str, network: Network) -> str:
    """The name of the ZooKeeper."""
    if target == "kafka":
        pytest.skip("Kafka has no ZooKeeper")
    return ZOOKEEPER


def test_a_leader_is_cut_from_all_others(run: Run, network: Network) -> None:
    leader = run.leader()
    network.isolate([str(leader)])
    run.wait_deposed(leader)
    run.wait_served()
    run.conclude()


@pytest.mark.nightly
def test_a_follower_is_cut_from_its_leader_alone(run: Run, network: Network) -> None:
    follower = run.follower()
    network.cut(str(follower), str(run.leader()))
    wait_until(
        lambda: (now := run.partitions()) and len(now[0].isr_nodes) < 3,
        "a replica to be out of sync",
        60,
    )
    run.wait_served()
    run.conclude()


@pytest.mark.nightly
def test_requests_arrive_and_responses_do_not(run: Run, network: Network) -> None:
    leader = run.leader()
    for other in NODES - {leader}:
        network.cut(str(leader), str(other), both=False)
    time.sleep(SESSION)
    run.conclude()


@pytest.mark.nightly
def test_cuts_come_and_go(run: Run, network: Network) -> None:
    for _ in range(4):
        one, other = run.random.sample(sorted(network.hosts), 2)
        network.cut(one, other, both=run.random.random() < 0.5)
        time.sleep(run.random.uniform(0.2, 3.0))
        network.heal()
        time.sleep(run.random.uniform(0.0, 1.0))
    run.wait_served()
    run.conclude()


@pytest.mark.nightly
def test_a_leader_is_cut_from_zookeeper(zookeeper: str, run: Run, network: Network) -> None:
    leader = run.leader()
    network.cut(str(leader), zookeeper)
    run.wait_deposed(leader)
    run.wait_served()
    itself = View({leader: run.cluster.brokers[leader]})

    wait_until(
        lambda: not itself.partitions(run.topic),
        "a leader that does not tell of the past any more",
        SESSION + 30,
    )
    run.conclude()


@pytest.mark.nightly
def test_the_controller_is_cut_from_zookeeper(zookeeper: str, run: Run, network: Network) -> None:
    controller = run.view.controller()
    network.cut(str(controller), zookeeper)
    run.wait_deposed(controller)
    run.wait_served()
    run.conclude()


def test_all_brokers_are_cut_from_zookeeper(zookeeper: str, run: Run, network: Network) -> None:
    network.isolate([zookeeper])
    time.sleep(SESSION * 1.5)
    network.heal()
    run.wait_served()
    run.conclude()


def test_a_session_ends_in_the_middle_of_a_change(
    zookeeper: str, run: Run, network: Network
) -> None:
    """The leader shrinks the ISR; the write succeeds, but its response comes too late."""
    leader = run.leader()
    network.cut(str(run.follower()), str(leader))
    network.cut(zookeeper, str(leader), both=False)
    run.wait_deposed(leader)
    run.wait_served()
    run.conclude()
