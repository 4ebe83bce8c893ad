"""Reassignments: begun, replaced, cancelled and completed."""

from collections.abc import Sequence

import pytest

from qbus.broker.controller.elections import TopicRules, View
from qbus.broker.controller.reassignments import Move, begin, cancel, complete, writes
from qbus.broker.metadata.image import PartitionInfo, Topic
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import Set
from qbus.metadata.znodes import NO_LEADER, PartitionStateNode, TopicNode

RULES = TopicRules(min_isr=2, is_durable=True, is_unclean=False)
VIEW = View({1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}, 9, lambda _: RULES)
HERE = PartitionInfo(1, 4, (1, 2), (1, 2), 7)


def replicas(move: Move) -> tuple[tuple[int, ...], ...]:
    partition, _ = move
    return partition.replicas, partition.adding, partition.removing


def after(move: Move, isr: tuple[int, ...] | None = None) -> PartitionInfo:
    """The partition when the move is written, and ``isr`` have caught up."""
    partition, state = move
    return PartitionInfo(
        state.leader,
        state.leader_epoch,
        partition.replicas,
        isr or state.isr,
        8,
        state.elr,
        adding=partition.adding,
        removing=partition.removing,
    )


def test_those_that_shall_hold_it_come_first_and_the_leader_learns_of_them() -> None:
    move = begin(HERE, [3, 2], VIEW, RULES)
    assert replicas(move) == ((3, 2, 1), (3,), (1,))
    assert move.state == PartitionStateNode(1, 5, (1, 2), 9)


def test_it_is_completed_when_all_are_in_sync_that_shall_hold_it() -> None:
    moving = begin(HERE, [3, 2], VIEW, RULES)
    assert complete(after(moving), VIEW, RULES) is None
    done = complete(after(moving, (1, 2, 3)), VIEW, RULES)
    assert done is not None
    assert replicas(done) == ((3, 2), (), ())
    assert done.state == PartitionStateNode(3, 7, (2, 3), 9), "whoever led had to go"
    assert complete(after(done), VIEW, RULES) is None


def test_who_leads_and_stays_leads_on() -> None:
    moving = begin(HERE, [3, 1], VIEW, RULES)
    done = complete(after(moving, (1, 2, 3)), VIEW, RULES)
    assert done is not None
    assert done.state == PartitionStateNode(1, 6, (1, 3), 9)


def test_replicas_that_only_go_are_gone_at_once_when_the_others_are_in_sync() -> None:
    moving = begin(HERE, [2], VIEW, RULES)
    assert replicas(moving) == ((2, 1), (), (1,))
    done = complete(after(moving), VIEW, RULES)
    assert done is not None
    assert (done.state.leader, done.state.isr) == (2, (2,))


def test_another_order_takes_effect_at_once() -> None:
    move = begin(HERE, [2, 1], VIEW, RULES)
    assert replicas(move) == ((2, 1), (), ())
    assert move.state == HERE.state(9), "nobody has to notice"


def test_a_move_takes_the_place_of_another_and_begins_where_that_began() -> None:
    moving = after(begin(HERE, [3, 4], VIEW, RULES), (1, 2, 3))
    move = begin(moving, [4, 5], VIEW, RULES)
    assert replicas(move) == ((4, 5, 1, 2), (4, 5), (1, 2))
    assert move.state.isr == (1, 2), "what the former move added is dropped"


def test_when_a_move_is_cancelled_everything_is_as_before() -> None:
    moving = after(begin(HERE, [3, 4], VIEW, RULES), (1, 2, 3))
    move = cancel(moving, VIEW, RULES)
    assert replicas(move) == ((1, 2), (), ())
    assert (move.state.leader, move.state.isr) == (1, (1, 2))


def test_who_was_added_and_leads_gives_way_when_the_move_is_cancelled() -> None:
    moving = after(begin(HERE, [3, 4], VIEW, RULES), (1, 2, 3))
    led = PartitionInfo(3, 9, moving.replicas, (2, 3), 9, (), -1, moving.adding, moving.removing)
    move = cancel(led, VIEW, RULES)
    assert (move.state.leader, move.state.isr) == (2, (2,))


def test_a_move_whose_end_alone_holds_the_records_is_not_cancelled() -> None:
    moving = after(begin(HERE, [3, 4], VIEW, RULES))
    alone = PartitionInfo(3, 9, moving.replicas, (3,), 9, (), -1, moving.adding, moving.removing)
    with pytest.raises(ApiError) as refused:
        cancel(alone, VIEW, RULES)
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_there_may_be_nothing_to_cancel() -> None:
    with pytest.raises(ApiError) as refused:
        cancel(HERE, VIEW, RULES)
    assert refused.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@pytest.mark.parametrize("target", [[], [1, 1], [1, 9], [-1]])
def test_refuses_replicas_that_cannot_be(target: Sequence[int]) -> None:
    with pytest.raises(ApiError) as refused:
        begin(HERE, target, VIEW, RULES)
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_the_number_of_replicas_may_be_kept() -> None:
    with pytest.raises(ApiError) as refused:
        begin(HERE, [1, 2, 3], VIEW, RULES, may_change_factor=False)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    moving = after(begin(HERE, [3, 4], VIEW, RULES))
    begin(moving, [4, 5], VIEW, RULES, may_change_factor=False)


def test_a_partition_without_a_leader_moves_too() -> None:
    nobody = PartitionInfo(NO_LEADER, 4, (1, 2), (), 7, (1,))
    move = begin(nobody, [3], VIEW, RULES)
    assert replicas(move) == ((3, 1, 2), (3,), (1, 2))
    assert complete(after(move), VIEW, RULES) is None


def test_moves_of_a_topic_are_written_together_and_nothing_else() -> None:
    topic = Topic("t", b"t" * 16, (HERE, HERE, HERE), version=3)
    moves = {1: begin(HERE, [3], VIEW, RULES), 2: begin(HERE, [2, 1], VIEW, RULES)}
    node = TopicNode(b"t" * 16, {0: (1, 2), 1: (3, 1, 2), 2: (2, 1)}, {1: (3,)}, {1: (1, 2)})
    assert writes(topic, moves) == [
        Set(TopicNode.path("t"), node.encode(), 3),
        Set(PartitionStateNode.path("t", 1), moves[1].state.encode(), 7),
    ]
    assert writes(topic, {}) == []


def test_brokers_of_one_machine_are_no_target() -> None:
    view = VIEW._replace(machines={1: "a", 2: "a", 3: "b", 4: "b"})
    assert replicas(begin(HERE, [1, 3], view, RULES))[0] == (1, 3, 2)
    with pytest.raises(ApiError, match=r"brokers \[3, 4\] run on one machine") as refused:
        begin(HERE, [3, 4], view, RULES)
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
