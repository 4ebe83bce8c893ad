"""The rebalance: from everyone being called in to a new generation, and what time does to it."""

import math

from qbus.errors import ErrorCode

from .core import GroupCore, InitialDelay
from .requests import JoinedMember, JoinResult
from .roster import Member
from .state import GroupState

_RETRY_SECONDS = 1.0  # a rebalance that nobody joined is not retried more often


def start(group: GroupCore, reason: str, now: float) -> None:
    """Call everyone in; or, when that is under way, see whether all are in now."""
    if group.state is GroupState.PREPARING:
        complete_if_all_in(group, now)
        return
    for member_id in list(group.syncing):
        group.refuse_parked(member_id, ErrorCode.REBALANCE_IN_PROGRESS)
        group.extend_session(group.members[member_id], now)
    group.unsynced.clear()
    was_empty = group.state is GroupState.EMPTY
    group.move(GroupState.PREPARING, reason)
    if was_empty:
        delay = group.limits.initial_rebalance_delay
        group.initial = InitialDelay(max(group.members.rebalance_timeout() - delay, 0.0))
        group.end_phase_at(now + delay)
    else:
        group.save()
        group.end_phase_at(now + group.members.rebalance_timeout())
        complete_if_all_in(group, now)


def complete_if_all_in(group: GroupCore, now: float) -> None:
    """End the first half of a rebalance early when there is nobody left to wait for."""
    all_in = len(group.joining) == len(group.members) and not group.pending
    if group.state is GroupState.PREPARING and not group.initial and all_in:
        _complete(group, now)


def _complete(group: GroupCore, now: float) -> None:
    """Go on with those who are in. Static members keep their place without rejoining."""
    group.initial = None
    for member in list(group.members):
        if member.member_id not in group.joining and member.instance_id is None:
            group.remove(member.member_id)
    if not group.members:
        _become_empty(group)
    elif not group.joining:
        group.end_phase_at(now + max(group.members.rebalance_timeout(), _RETRY_SECONDS))
    else:
        if group.leader not in group.joining:
            group.leader = next(iter(group.joining))
        _start_generation(group, now)


def _become_empty(group: GroupCore) -> None:
    group.generation += 1
    group.protocol = group.leader = None
    group.phase_ends = math.inf
    group.move(GroupState.EMPTY, "nobody is left")
    group.save()


def _start_generation(group: GroupCore, now: float) -> None:
    group.generation += 1
    group.protocol = group.members.vote()
    group.move(
        GroupState.COMPLETING, f"generation {group.generation} with {len(group.members)} members"
    )
    for member in group.members:
        member.is_new = False
        group.extend_session(member, now)
        group.unsynced.add(member.member_id)
    joining, group.joining = group.joining, {}
    for member_id, request in joining.items():
        group.reply(request, joined(group, group.members[member_id]))
    group.end_phase_at(now + group.members.rebalance_timeout())
    group.save()


def joined(
    group: GroupCore,
    member: Member,
    *,
    leader: str | None = None,
    members: tuple[JoinedMember, ...] | None = None,
    skip_assignment: bool = False,
) -> JoinResult:
    """What a member is told of the current generation; its leader hears of everyone."""
    if members is None:
        members = _roll(group) if member.member_id == group.leader else ()
    return JoinResult(
        ErrorCode.NONE,
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        leader or group.leader or "",
        members,
        skip_assignment,
    )


def _roll(group: GroupCore) -> tuple[JoinedMember, ...]:
    return tuple(
        JoinedMember(member.member_id, member.instance_id, member.metadata(group.protocol))
        for member in group.members
    )


def end_phase(group: GroupCore, now: float) -> None:
    """The time of the current phase is up: go on without those who are missing."""
    group.phase_ends = math.inf
    initial = group.initial
    if group.state is GroupState.PREPARING:
        if initial and initial.grew and initial.remaining > 0:
            _extend(group, initial, now)
        else:
            _complete(group, now)
    elif group.unsynced:
        laggards = sorted(group.unsynced)
        for member_id in laggards:
            group.remove(member_id)
        start(group, f"did not sync in time: {', '.join(laggards)}", now)


def _extend(group: GroupCore, initial: InitialDelay, now: float) -> None:
    delay = min(group.limits.initial_rebalance_delay, initial.remaining)
    initial.grew = False
    initial.remaining -= delay
    group.end_phase_at(now + delay)


def expire_sessions(group: GroupCore, now: float) -> None:
    """Drop the members that have been silent for too long."""
    for member_id in [key for key, deadline in group.pending.items() if deadline <= now]:
        del group.pending[member_id]
    gone = []
    for member in [member for member in group.members if member.deadline <= now]:
        parked = member.member_id in group.joining or member.member_id in group.syncing
        if parked and not member.is_new:
            member.deadline = math.inf  # a client that waits for us need not heartbeat
        else:
            group.remove(member.member_id)
            gone.append(member.member_id)
    if gone:
        start(group, f"session timed out: {', '.join(gone)}", now)
    complete_if_all_in(group, now)
