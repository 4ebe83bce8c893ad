"""What members of a generation do: sync, heartbeat, commit, leave."""

import math
from typing import Final

from qbus.errors import ErrorCode

from .core import GroupCore
from .rebalance import start
from .requests import Heartbeat, Leave, LeaveOutcome, Leaver, LeaveResult, Sync, SyncResult
from .roster import Member
from .state import GroupState

# A member may heartbeat as soon as it knows its generation, thus also while others still sync.
_HEARTBEAT_ANSWERS: Final = {
    GroupState.PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
    GroupState.COMPLETING: ErrorCode.NONE,
    GroupState.STABLE: ErrorCode.NONE,
}
# While preparing, members may still commit what they did in the old generation; while completing
# they know of the new one, but not yet what they own in it.
_COMMIT_ANSWERS: Final = {
    GroupState.PREPARING: ErrorCode.NONE,
    GroupState.COMPLETING: ErrorCode.REBALANCE_IN_PROGRESS,
    GroupState.STABLE: ErrorCode.NONE,
}


def heartbeat(group: GroupCore, request: Heartbeat, now: float) -> None:
    """Take a sign of life, and tell the member of a rebalance."""
    if group.state is GroupState.DEAD:
        answer = ErrorCode.COORDINATOR_NOT_AVAILABLE
    else:
        answer = group.check(request.member_id, request.instance_id, request.generation)
    if not answer:
        group.extend_session(group.members[request.member_id], now)
        answer = _HEARTBEAT_ANSWERS[group.state]
    group.reply(request, answer)


def admit_commit(
    group: GroupCore, member_id: str, instance_id: str | None, generation: int, now: float
) -> ErrorCode:
    """Whether offsets may be committed; a member's commit is also a sign of life.

    Anyone may while the group is empty; otherwise only members of the current generation.
    """
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if error := group.check(member_id, instance_id, generation):
        return error
    group.extend_session(group.members[member_id], now)
    return _COMMIT_ANSWERS[group.state]


def sync(group: GroupCore, request: Sync, now: float) -> None:
    """Answer with the member's assignment, or park it until the leader brings it."""
    if error := _sync_error(group, request):
        group.reply(request, request.refuse(error))
        return
    member = group.members[request.member_id]
    group.extend_session(member, now)
    group.unsynced.discard(member.member_id)
    if not group.unsynced:
        group.phase_ends = math.inf
    if group.state is GroupState.STABLE:
        group.reply(request, _synced(group, member))
        return
    group.refuse_parked(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)
    group.syncing[member.member_id] = request
    if member.member_id == group.leader:
        _assign(group, request.assignments, now)


def _sync_error(group: GroupCore, request: Sync) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error := group.check(request.member_id, request.instance_id, request.generation):
        return error
    if _differ(request.protocol_type, group.protocol_type) or _differ(
        request.protocol, group.protocol
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differ(told: str | None, known: str | None) -> bool:
    return told is not None and known is not None and told != known


def _assign(group: GroupCore, assignments: dict[str, bytes], now: float) -> None:
    for member in group.members:
        member.assignment = assignments.get(member.member_id, b"")
    group.move(GroupState.STABLE, f"{group.leader} assigned generation {group.generation}")
    group.save()
    syncing, group.syncing = group.syncing, {}
    for member_id, request in syncing.items():
        member = group.members[member_id]
        group.extend_session(member, now)
        group.reply(request, _synced(group, member))


def _synced(group: GroupCore, member: Member) -> SyncResult:
    return SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment)


def leave(group: GroupCore, request: Leave, now: float) -> None:
    """Let members go, each with its own answer, and rebalance once for all of them."""
    if group.state is GroupState.DEAD:
        group.reply(request, request.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    before = len(group.members)
    outcomes = tuple(LeaveOutcome(leaver, _dismiss(group, leaver)) for leaver in request.leavers)
    group.reply(request, LeaveResult(ErrorCode.NONE, outcomes))
    if group.state is GroupState.PREPARING or len(group.members) < before:
        gone = [
            f"{leaver.member_id or leaver.instance_id} ({leaver.reason or 'no reason given'})"
            for leaver, error in outcomes
            if not error
        ]
        start(group, f"left: {', '.join(gone)}", now)


def _dismiss(group: GroupCore, leaver: Leaver) -> ErrorCode:
    member_id = leaver.member_id
    if not member_id:  # an administrator knows only the instance
        holder = group.members.instance(leaver.instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = holder.member_id
    elif group.pending.pop(member_id, None) is not None:
        return ErrorCode.NONE
    elif error := group.members.check(member_id, leaver.instance_id):
        return error
    group.remove(member_id)
    return ErrorCode.NONE
