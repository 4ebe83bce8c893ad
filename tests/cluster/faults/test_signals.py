"""Brokers that are killed, or stopped for longer than their session time-out."""

import pytest

from .run import Run

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.mark.parametrize("role", ["leader", pytest.param("controller", marks=pytest.mark.nightly)])
def test_a_leader_or_the_controller_is_killed(run: Run, role: str) -> None:
    victim = run.leader() if role == "leader" else run.view.controller()
    run.kill(victim)
    run.wait_deposed(victim)
    run.wait_served()
    if role == "controller":
        assert run.view.controller(without=victim) not in {victim, -1}
    run.start_brokers(victim)
    run.conclude()


@pytest.mark.nightly
def test_a_follower_is_killed(run: Run) -> None:
    follower = run.follower()
    run.kill(follower)
    run.wait_served()
    run.start_brokers(follower)
    run.conclude()


def test_all_are_killed_at_once(run: Run) -> None:
    nodes = list(run.cluster.brokers)
    run.kill(*nodes)
    run.start_brokers(*nodes)
    run.wait_served()
    run.conclude()


def test_a_leader_stops_for_longer_than_its_session(run: Run) -> None:
    leader = run.leader()
    run.stop(leader)
    run.wait_deposed(leader)
    run.wait_served()
    run.resume(leader)  # it still considers itself the leader
    run.conclude()


@pytest.mark.nightly
def test_a_follower_stops_for_longer_than_its_session(run: Run) -> None:
    follower = run.follower()
    run.stop(follower)
    run.wait_out_of_sync(follower)
    run.wait_served()
    run.resume(follower)
    run.conclude()
