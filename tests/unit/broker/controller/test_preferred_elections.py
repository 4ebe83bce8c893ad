"""Requested elections, and periodic ones of preferred leaders."""

import pytest

from qbus.broker.controller.elections import (
    ElectionType,
    TopicRules,
    View,
    elected_state,
    preferred_elections,
)
from qbus.broker.metadata.image import PartitionInfo, Topic
from qbus.errors import ApiError, ErrorCode

RULES = TopicRules(min_isr=2, is_durable=True, is_unclean=False)
VIEW = View({1, 2, 3}, {1, 2}, 9, lambda _: RULES)
PREFERRED, UNCLEAN = ElectionType


def partition(
    leader: int, isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2)
) -> PartitionInfo:
    return PartitionInfo(leader, 4, replicas, isr, 7)


def test_the_preferred_replica_leads_in_a_new_epoch_and_all_stay_in_sync() -> None:
    state = elected_state(partition(2, (2, 1)), PREFERRED, VIEW, RULES)
    assert (state.leader, state.leader_epoch, set(state.isr)) == (1, 5, {1, 2})


def test_a_full_broker_is_not_elected_as_preferred() -> None:
    full, at_present = VIEW._replace(full={1}), partition(2, (2, 1))
    with pytest.raises(ApiError) as refused:
        elected_state(at_present, PREFERRED, full, RULES)
    assert refused.value.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert preferred_elections([Topic("t", b"t" * 16, (at_present,))], full, 0) == []
    assert preferred_elections([Topic("t", b"t" * 16, (at_present,))], VIEW, 0) != []


@pytest.mark.parametrize(
    ("at_present", "kind", "code"),
    [
        (partition(1, (1, 2)), PREFERRED, ErrorCode.ELECTION_NOT_NEEDED),
        (partition(2, (2,)), PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (partition(2, (2, 9), (9, 2)), PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (partition(2, (2, 3), (3, 2)), PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (partition(2, (2, 1)), UNCLEAN, ErrorCode.ELECTION_NOT_NEEDED),
        (partition(-1, (), (8, 9)), UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_a_failed_election_has_a_reason(
    at_present: PartitionInfo, kind: ElectionType, code: ErrorCode
) -> None:
    with pytest.raises(ApiError) as refused:
        elected_state(at_present, kind, VIEW, RULES)
    assert refused.value.code is code


def test_an_unclean_election_takes_any_that_lives() -> None:
    state = elected_state(partition(-1, (), (9, 2)), UNCLEAN, VIEW, RULES)
    assert (state.leader, state.isr) == (2, (2,))


def leads(*leaders: int) -> Topic:
    return Topic("t", b"t" * 16, tuple(partition(leader, (1, 2)) for leader in leaders))


def test_a_broker_within_the_imbalance_limit_is_left_alone() -> None:
    assert preferred_elections([leads(*[1] * 9, 2)], VIEW, 10) == []


def test_a_broker_beyond_the_imbalance_limit_leads_again() -> None:
    changes = preferred_elections([leads(*[1] * 8, 2, 2)], VIEW, 10)
    assert [(one.partition, one.state.leader) for one in changes] == [(8, 1), (9, 1)]


def test_a_partition_whose_preferred_replica_cannot_lead_is_left_alone() -> None:
    behind = partition(2, (2,))
    moving = PartitionInfo(2, 4, (1, 2), (1, 2), 7, adding=(1,))
    nobodys = PartitionInfo(-1, -1, (1, 2), (), -1)
    stopping = partition(2, (2, 3), (3, 2))
    topic = Topic("t", b"t" * 16, (behind, moving, nobodys, stopping))
    assert preferred_elections([topic], VIEW, 0) == []
