"""The states that are due when brokers come and go."""

from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.controller.elections import (
    StateChange,
    TopicRules,
    View,
    due_elections,
    first_state,
    shutdown_elections,
)
from qbus.broker.metadata.image import PartitionInfo, Topic
from qbus.metadata.znodes import NO_LEADER, PartitionStateNode

CAREFUL = TopicRules(min_isr=2, is_durable=True, is_unclean=False)


def topic(*partitions: PartitionInfo) -> Topic:
    return Topic("t", b"t" * 16, partitions)


def partition(
    leader: int,
    isr: tuple[int, ...],
    elr: tuple[int, ...] = (),
    replicas: tuple[int, ...] = (1, 2, 3),
    version: int = 7,
) -> PartitionInfo:
    return PartitionInfo(leader, 4, replicas, isr, version, elr)


def view(
    live: set[int], rules: TopicRules = CAREFUL, stopping: frozenset[int] = frozenset()
) -> View:
    return View(live, live - stopping, 9, lambda _: rules)


def only(changes: list[StateChange]) -> PartitionStateNode:
    (change,) = changes
    assert (change.topic.name, change.partition, change.version) == ("t", 0, 7)
    return change.state


def test_a_new_partition_is_led_by_its_preferred_replica() -> None:
    assert first_state((2, 1), 7) == PartitionStateNode(2, 0, (2, 1), 7)


def test_nothing_is_due_while_all_brokers_are_live() -> None:
    assert (
        due_elections([topic(partition(1, (1, 2, 3)), partition(2, (2,), (3,)))], view({1, 2, 3}))
        == []
    )


def test_a_full_leader_is_replaced_by_a_replica_with_space() -> None:
    full = view({1, 2, 3})._replace(full={1})
    state = only(due_elections([topic(partition(1, (1, 2, 3)))], full))
    assert (state.leader, state.leader_epoch, state.isr, state.elr) == (2, 5, (2, 3), ())


def test_a_full_leader_stays_without_an_alternative() -> None:
    for isr, full in (((1,), {1}), ((1, 2), {1, 2})):
        at_present = [topic(partition(1, isr))]
        assert due_elections(at_present, view({1, 2, 3})._replace(full=full)) == []
    nobody_stays = view({1, 2}, stopping=frozenset({2}))._replace(full={1})
    assert due_elections([topic(partition(1, (1, 2)))], nobody_stays) == []


def test_a_replica_with_space_precedes_a_full_preferred_one() -> None:
    full = view({1, 2, 3})._replace(full={1})
    assert only(due_elections([topic(partition(NO_LEADER, (1, 2)))], full)).leader == 2
    assert only(due_elections([topic(partition(NO_LEADER, (1,)))], full)).leader == 1
    assert only(shutdown_elections([topic(partition(3, (1, 2, 3)))], 3, full)).leader == 2


def test_a_dead_leader_is_replaced_and_leaves_the_isr() -> None:
    state = only(due_elections([topic(partition(1, (1, 2, 3)))], view({2, 3})))
    assert (state.leader, state.isr, state.elr, state.controller_epoch) == (2, (2, 3), (), 9)
    assert state.leader_epoch > 4


def test_a_dead_follower_leaves_the_isr_in_the_same_epoch() -> None:
    state = only(due_elections([topic(partition(1, (1, 2, 3)))], view({1, 2})))
    assert state == PartitionStateNode(1, 4, (1, 2), 9)


def test_below_min_isr_a_dead_replica_stays_eligible() -> None:
    state = only(due_elections([topic(partition(1, (1, 2)))], view({1})))
    assert state == PartitionStateNode(1, 4, (1,), 9, elr=(2,))


def test_with_memory_durability_a_dead_replica_stays_eligible() -> None:
    rules = CAREFUL._replace(is_durable=False)
    state = only(due_elections([topic(partition(1, (1, 2, 3)))], view({1, 2}, rules)))
    assert state == PartitionStateNode(1, 4, (1, 2), 9, elr=(3,))


def test_without_eligible_replicas_the_missing_leader_is_written_once() -> None:
    gone = topic(partition(1, (1,), replicas=(1, 2)))
    state = only(due_elections([gone], view({2})))
    assert (state.leader, state.isr, state.elr) == (NO_LEADER, (), (1,))
    written = topic(PartitionInfo(-1, state.leader_epoch, (1, 2), (), 8, (1,)))
    assert due_elections([written], view({2})) == []
    assert due_elections([written], view({2, 3})) == []


def test_an_eligible_replica_leads_when_it_comes_back() -> None:
    state = only(due_elections([topic(partition(NO_LEADER, (), (1,)))], view({1, 2})))
    assert (state.leader, state.isr) == (1, (1,))


def test_a_topic_can_allow_unclean_elections() -> None:
    lost = topic(partition(1, (1,), replicas=(1, 2)))
    state = only(due_elections([lost], view({2}, CAREFUL._replace(is_unclean=True))))
    assert (state.leader, state.isr, state.elr) == (2, (2,), ())


def test_a_stopping_broker_keeps_leading_but_is_not_elected() -> None:
    leaving = frozenset({1})
    assert due_elections([topic(partition(1, (1, 2)))], view({1, 2}, stopping=leaving)) == []
    state = only(due_elections([topic(partition(2, (1, 2, 3)))], view({1, 3}, stopping=leaving)))
    assert state.leader == 3
    nobody = topic(partition(NO_LEADER, (1,)))
    assert due_elections([nobody], view({1, 3}, stopping=leaving)) == []


def test_a_partition_without_state_is_left_alone() -> None:
    assert due_elections([topic(partition(NO_LEADER, (), version=-1))], view({1})) == []


def test_shutdown_elects_other_replicas_in_sync() -> None:
    led = topic(
        partition(1, (1, 2, 3)),
        partition(1, (1,)),  # nobody else is in sync
        partition(1, (1, 2)),  # who is in sync leaves as well
        partition(3, (3, 1)),  # led by another
    )
    changes = shutdown_elections([led], 1, view({1, 2, 3}, stopping=frozenset({1, 2})))
    state = only(changes)
    assert (state.leader, state.leader_epoch, state.isr) == (3, 5, (3,))
    assert state.elr == (1, 2), "they hold everything until the new leader goes on without them"


brokers = st.sets(st.integers(0, 5), max_size=6)


@given(
    replicas=st.permutations(range(6)),
    in_sync=brokers,
    eligible=brokers,
    live=brokers,
    stopping=brokers,
    leader=st.integers(-1, 5),
    min_isr=st.integers(1, 6),
    is_durable=st.booleans(),
)
def test_only_replicas_with_all_records_are_elected_and_decisions_are_stable(
    replicas: list[int],
    in_sync: set[int],
    eligible: set[int],
    live: set[int],
    stopping: set[int],
    leader: int,
    min_isr: int,
    is_durable: bool,
) -> None:
    isr = tuple(one for one in replicas if one in in_sync)
    elr = tuple(one for one in replicas if one in eligible - in_sync)
    if leader not in in_sync:
        leader = NO_LEADER
    before = topic(partition(leader, isr, elr, tuple(replicas)))
    rules = TopicRules(min_isr, is_durable, is_unclean=False)
    seen = view(live, rules, frozenset(stopping))
    changes = due_elections([before], seen)
    if not changes:
        return
    state = only(changes)
    assert set(state.isr) <= live
    assert set(state.isr) <= set(isr) | set(elr)
    if state.leader != leader:
        assert state.leader_epoch > 4
    if state.leader != NO_LEADER:
        assert state.leader in state.isr
    if state.leader not in {leader, NO_LEADER}:
        assert state.leader in live - stopping
    after = PartitionInfo(
        state.leader, state.leader_epoch, tuple(replicas), state.isr, 8, state.elr
    )
    assert due_elections([topic(after)], seen) == [], "what was decided is not decided again"
