"""Who is eligible to lead: everything acknowledged is on all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.metadata.partition_states import (
    Policy,
    elect,
    forgetting,
    is_acknowledging,
    policy,
    resigning,
    with_isr,
    without,
)
from qbus.metadata.znodes import NO_LEADER, PartitionStateNode

REPLICAS = (1, 2, 3)
TWO = Policy(min_isr=2)


def state(
    leader: int, isr: tuple[int, ...], elr: tuple[int, ...] = (), last_in_sync: int = NO_LEADER
) -> PartitionStateNode:
    return PartitionStateNode(leader, 4, isr, 1, elr, last_in_sync)


def test_more_replicas_than_there_are_cannot_be_asked_for() -> None:
    assert policy(2, 1, is_durable=True) == Policy(1)
    assert policy(2, 3, is_durable=False) == Policy(2, is_durable=False)
    assert policy(0, 3, is_durable=True) == Policy(1)


def test_who_falls_out_of_sync_while_enough_are_left_is_not_eligible() -> None:
    assert with_isr(state(1, (1, 2, 3)), (1, 2), TWO) == state(1, (1, 2))


def test_who_falls_out_of_sync_when_too_few_are_left_stays_eligible() -> None:
    assert with_isr(state(1, (1, 2)), (1,), TWO) == state(1, (1,), elr=(2,))
    assert not is_acknowledging(state(1, (1,), elr=(2,)), TWO)


def test_when_enough_are_in_sync_again_nobody_else_is_eligible() -> None:
    assert with_isr(state(1, (1,), elr=(2,)), (1, 3), TWO) == state(1, (1, 3))


def test_fewer_needed_is_not_enough_until_it_is_written_down() -> None:
    lone = state(1, (1,), elr=(2,))
    assert not is_acknowledging(lone, Policy(1))
    assert is_acknowledging(with_isr(lone, lone.isr, Policy(1)), Policy(1))


def test_in_memory_nobody_but_the_leader_writes_off_who_is_eligible() -> None:
    """A leader that is elected may have lost its power, and what it held, before anybody knows."""
    memory, at_present = Policy(1, is_durable=False), state(1, (1, 2), (3,))
    assert elect(at_present, REPLICAS, {2}, 1, wanted=memory).elr == (1, 3)
    assert elect(state(NO_LEADER, (), (2, 3)), REPLICAS, {2}, 1, wanted=memory).elr == (3,)
    assert without(at_present, 2, memory).elr == (2, 3)
    assert forgetting(state(1, (1,), (2, 3)), 2, memory).elr == (3,)


def test_in_memory_the_leader_first_says_that_it_goes_on_without() -> None:
    memory = Policy(1, is_durable=False)
    left = with_isr(state(1, (1, 2)), (1,), memory)
    assert left == state(1, (1,), elr=(2,))
    assert with_isr(left, (1,), memory) == state(1, (1,))


def test_the_last_in_sync_that_fails_stays_eligible() -> None:
    failed = without(state(1, (1,)), 1, Policy(1))
    assert failed == state(NO_LEADER, (), elr=(1,))._replace(leader_epoch=5)
    nobody = elect(failed, REPLICAS, {2, 3}, 9, wanted=Policy(1))
    assert nobody.leader == NO_LEADER
    assert elect(failed, REPLICAS, {1, 2, 3}, 9, wanted=Policy(1)).leader == 1


def test_a_leader_comes_from_those_in_sync_in_order_of_preference() -> None:
    elected = elect(state(1, (3, 2)), REPLICAS, {2, 3}, 9, wanted=TWO)
    assert elected == PartitionStateNode(2, 5, (3, 2), 9)


def test_else_from_those_eligible() -> None:
    elected = elect(state(NO_LEADER, (2,), elr=(1, 3)), REPLICAS, {3}, 9, wanted=TWO)
    assert elected == PartitionStateNode(3, 5, (3,), 9, elr=(2, 1))


def test_else_the_one_that_was_in_sync_last() -> None:
    lost = forgetting(state(2, (2,)), 2, TWO)
    assert lost == PartitionStateNode(NO_LEADER, 5, (), 1, last_in_sync=2)
    assert elect(lost, REPLICAS, {1, 3}, 9, wanted=TWO).leader == NO_LEADER
    assert elect(lost, REPLICAS, {1, 2, 3}, 9, wanted=TWO) == PartitionStateNode(2, 6, (2,), 9)


def test_else_anyone_if_losing_records_is_chosen() -> None:
    gone = state(NO_LEADER, (), elr=(1,))
    elected = elect(gone, REPLICAS, {3}, 9, wanted=TWO, unclean=True)
    assert elected == PartitionStateNode(3, 5, (3,), 9)


def test_who_forgot_is_not_eligible_and_not_remembered_while_others_are() -> None:
    assert forgetting(state(1, (1, 2)), 2, TWO) == state(1, (1,))
    assert forgetting(state(1, (1,), elr=(2, 3)), 3, TWO) == state(1, (1,), elr=(2,))
    assert forgetting(state(1, (1,)), 3, TWO) == state(1, (1,))


def test_another_that_forgets_does_not_take_the_place_of_the_last() -> None:
    lost = PartitionStateNode(NO_LEADER, 5, (), 1, last_in_sync=2)
    assert forgetting(lost, 3, TWO) == lost


def test_who_resigns_keeps_what_it_holds() -> None:
    resigned = resigning(state(1, (1, 2)), 1)
    assert resigned == PartitionStateNode(NO_LEADER, 5, (1, 2), 1)
    assert resigning(state(1, (1, 2)), 2) == state(1, (1, 2))


some = st.lists(st.sampled_from(REPLICAS), unique=True).map(tuple)


@given(isr=some, elr=some, live=st.sets(st.sampled_from(REPLICAS)), min_isr=st.integers(1, 3))
def test_no_election_makes_more_eligible_than_were(
    isr: tuple[int, ...], elr: tuple[int, ...], live: set[int], min_isr: int
) -> None:
    elr = tuple(one for one in elr if one not in isr)
    for is_durable in (True, False):
        wanted = Policy(min_isr, is_durable)
        elected = elect(state(NO_LEADER, isr, elr), REPLICAS, live, 9, wanted=wanted)
        assert {*elected.isr, *elected.elr} <= {*isr, *elr}
        assert not set(elected.isr) & set(elected.elr)
        assert (elected.leader != NO_LEADER) == bool(live & {*isr, *elr})
        if elected.leader != NO_LEADER:
            assert elected.leader in live & set(elected.isr)
            assert elected.leader_epoch == 5


@pytest.mark.parametrize("replica", REPLICAS)
def test_who_fails_never_leads(replica: int) -> None:
    assert without(state(1, REPLICAS), replica, TWO).leader != replica
