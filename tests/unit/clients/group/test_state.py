"""A member's place: what each answer does to it, and what it does not."""

import pytest

from qbus.clients.committed import Membership
from qbus.clients.errors import ConnectionFailed
from qbus.clients.group.state import MemberState, Phase, Remedy
from qbus.clients.types import TopicPartition
from qbus.errors import ApiError, ErrorCode

P = (TopicPartition("t", 0),)


def stable(instance: str | None = None) -> MemberState:
    state = MemberState(instance)
    state.start()
    sent = state.joined("m", 3, "range")
    assert state.synced(sent, P)
    return state


def test_the_way_to_an_assignment() -> None:
    state = MemberState()
    state.request_rejoin("subscription has changed")
    assert state.is_lost
    assert state.start() == Membership()
    assert state.phase is Phase.JOINING
    sent = state.joined("m", 3, "range")
    assert (state.phase, state.may_commit, state.rejoin_reason) == (Phase.SYNCING, False, None)
    assert state.synced(sent, P)
    assert (state.phase, state.may_commit, state.is_lost) == (Phase.STABLE, True, False)
    assert state.previous == (P, 3)


@pytest.mark.parametrize(
    ("code", "remedy", "left"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Remedy.RETRY, ("m", 3)),
        (ErrorCode.REQUEST_TIMED_OUT, Remedy.RETRY, ("m", 3)),
        (ErrorCode.NOT_COORDINATOR, Remedy.MOVED, ("m", 3)),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Remedy.MOVED, ("m", 3)),
        (ErrorCode.REBALANCE_IN_PROGRESS, Remedy.REJOIN, ("m", 3)),
        (ErrorCode.ILLEGAL_GENERATION, Remedy.NEW_GENERATION, ("m", -1)),
        (ErrorCode.UNKNOWN_MEMBER_ID, Remedy.NEW_MEMBER, ("", -1)),
        (ErrorCode.FENCED_INSTANCE_ID, Remedy.FAIL, ("m", 3)),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, Remedy.FAIL, ("m", 3)),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, Remedy.FAIL, ("m", 3)),
    ],
)
def test_what_errors_do(code: ErrorCode, remedy: Remedy, left: tuple[str, int]) -> None:
    state = stable("i")
    assert state.refused(ApiError(code), state.membership) is remedy
    assert state.membership == (*left, "i")
    assert (state.failure is not None) == (remedy is Remedy.FAIL)
    rejoins = {Remedy.REJOIN, Remedy.NEW_GENERATION, Remedy.NEW_MEMBER}
    assert (state.rejoin_reason is not None) == (remedy in rejoins)


@pytest.mark.parametrize("code", [code for code in ErrorCode if code > 0])
def test_answers_to_an_earlier_generation_say_nothing(code: ErrorCode) -> None:
    state = stable()
    earlier = state.membership._replace(generation=2)
    assert state.refused(ApiError(code), earlier) is Remedy.NOTHING
    assert (state.membership, state.failure, state.rejoin_reason) == (("m", 3, None), None, None)


def test_a_broken_connection_costs_nothing() -> None:
    state = stable()
    assert state.refused(ConnectionFailed("cut"), state.membership) is Remedy.RETRY
    assert not state.is_lost


def test_what_stops_a_join_lets_it_be_tried_again() -> None:
    state = MemberState()
    sent = state.start()
    assert state.refused(ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED), sent) is Remedy.FAIL
    assert state.failure is None


def test_a_fenced_instance_never_goes_on() -> None:
    state = MemberState("i")
    sent = state.start()
    state.refused(ApiError(ErrorCode.FENCED_INSTANCE_ID), sent)
    assert state.failure is not None
    assert not state.failure.retriable


def test_a_rebalance_before_the_assignment_is_the_same_rebalance() -> None:
    state = MemberState()
    state.start()
    sent = state.joined("m", 1, "range")
    state.refused(ApiError(ErrorCode.REBALANCE_IN_PROGRESS), sent)
    assert state.rejoin_reason is None


def test_an_assignment_after_a_lost_membership_is_ignored() -> None:
    state = MemberState()
    state.start()
    sent = state.joined("m", 1, "range")
    state.lose("left")
    assert not state.synced(sent, P)
    assert (state.phase, state.previous) == (Phase.UNJOINED, None)


def test_the_first_reason_to_rejoin_is_told() -> None:
    state = stable()
    state.request_rejoin("first")
    state.request_rejoin("second")
    assert state.rejoin_reason == "first"


@pytest.mark.parametrize(
    ("code", "is_lost", "has_failed"),
    [
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, False, False),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False, False),
        (ErrorCode.REQUEST_TIMED_OUT, False, False),
        (ErrorCode.UNKNOWN_MEMBER_ID, True, False),
        (ErrorCode.FENCED_INSTANCE_ID, False, True),
    ],
)
def test_refused_commits_count_only_for_the_place(
    code: ErrorCode, is_lost: bool, has_failed: bool
) -> None:
    state = stable("i")
    state.commit_refused(ApiError(code), state.membership)
    assert (state.is_lost, state.failure is not None) == (is_lost, has_failed)


def test_the_member_id_of_an_illegal_generation_is_kept() -> None:
    state = stable()
    state.refused(ApiError(ErrorCode.ILLEGAL_GENERATION), state.membership)
    assert state.start() == ("m", -1, None)
