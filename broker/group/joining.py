"""JoinGroup: who may come in, under which name, and whether that means a rebalance."""

from qbus.errors import ErrorCode

from .core import GroupCore
from .rebalance import complete_if_all_in, joined, start
from .requests import Join, JoinResult
from .roster import Member
from .state import GroupState


def join(group: GroupCore, request: Join, now: float) -> None:
    """Answer or park a wish to be in the next generation."""
    if group.state is GroupState.DEAD:
        group.reply(request, request.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    elif not _has_room_for(group, request.member_id):
        _turn_away(group, request, now)
    elif not _supports(group, request):
        group.reply(request, request.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    elif not request.member_id:
        _join_unknown(group, request, now)
    elif request.member_id in group.pending and request.instance_id is None:
        _add(group, request.member_id, request, now)
    else:
        _rejoin(group, request, now)


def _has_room_for(group: GroupCore, member_id: str) -> bool:
    """Whether the group may have this member.

    While preparing, those who are in count and not those who should be: when the limit was
    lowered, the last to rejoin are the ones that must go.
    """
    limit = group.limits.max_size
    if group.state is GroupState.EMPTY:
        return True
    if group.state is GroupState.PREPARING:
        return member_id in group.joining or len(group.joining) < limit
    return member_id in group.members or len(group.members) < limit


def _turn_away(group: GroupCore, request: Join, now: float) -> None:
    group.pending.pop(request.member_id, None)
    if request.member_id in group.members:
        group.remove(request.member_id)
    group.reply(request, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
    complete_if_all_in(group, now)


def _supports(group: GroupCore, request: Join) -> bool:
    if group.state is GroupState.EMPTY:
        return bool(request.protocol_type and request.protocols)
    same_type = request.protocol_type == group.protocol_type
    return same_type and group.members.supports(request.protocols)


def _join_unknown(group: GroupCore, request: Join, now: float) -> None:
    """A client without a member id: new, or a static member that started again."""
    member_id = request.new_member_id
    holder = group.members.instance(request.instance_id)
    if holder is not None:
        _replace(group, holder, request, now)
    elif request.instance_id is None and request.needs_known_id:
        group.pending[member_id] = now + request.session_timeout_ms / 1000
        group.wake_by(group.pending[member_id])
        group.reply(request, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(group, member_id, request, now)


def _add(group: GroupCore, member_id: str, request: Join, now: float) -> None:
    group.pending.pop(member_id, None)
    if not group.members:
        group.protocol_type = request.protocol_type
        group.leader = member_id
    member = Member(
        member_id,
        request.instance_id,
        request.client_id,
        request.client_host,
        request.session_timeout_ms,
        request.rebalance_timeout_ms,
        request.protocols,
        is_new=True,
    )
    group.members.add(member)
    group.extend_session(member, now)
    group.joining[member_id] = request
    if group.initial:
        group.initial.grew = True
    start(group, f"{member_id} joins: {request.reason or 'no reason given'}", now)


def _rejoin(group: GroupCore, request: Join, now: float) -> None:
    if error := group.members.check(request.member_id, request.instance_id):
        group.reply(request, request.refuse(error))
        return
    member = group.members[request.member_id]
    if _is_up_to_date(group, member, request):
        group.extend_session(member, now)
        group.reply(request, joined(group, member))
        return
    _update(group, member, request)
    start(group, f"{member.member_id} rejoins: {request.reason or 'no reason given'}", now)


def _is_up_to_date(group: GroupCore, member: Member, request: Join) -> bool:
    """Whether the member only missed the answer that told it of the current generation.

    A leader may see changes that nobody's metadata shows, such as new partitions: when it rejoins
    a stable group it wants a rebalance.
    """
    if member.protocols != request.protocols:
        return False
    if group.state is GroupState.STABLE:
        return member.member_id != group.leader
    return group.state is GroupState.COMPLETING


def _update(group: GroupCore, member: Member, request: Join) -> None:
    group.members.set_protocols(member, request.protocols)
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    group.refuse_parked(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)
    group.joining[member.member_id] = request


def _replace(group: GroupCore, old: Member, request: Join, now: float) -> None:
    """Give a static member's place to its next incarnation; the old one is fenced from now on."""
    old_leader = group.leader
    group.refuse_parked(old.member_id, ErrorCode.FENCED_INSTANCE_ID)
    group.unsynced.discard(old.member_id)
    member = group.members.rename(old.member_id, request.new_member_id)
    if group.leader == old.member_id:
        group.leader = member.member_id
    member.client_id, member.client_host = request.client_id, request.client_host
    _update(group, member, request)
    group.extend_session(member, now)
    group.save()
    if group.state is GroupState.STABLE and group.members.vote() == group.protocol:
        del group.joining[member.member_id]
        group.reply(request, _resumed(group, member, request, old_leader))
    else:
        # While completing, the leader may already be assigning to the old id.
        start(group, f"{member.instance_id} is now {member.member_id}", now)


def _resumed(group: GroupCore, member: Member, request: Join, old_leader: str | None) -> JoinResult:
    """What a static member that comes back to a stable group is told: go on, do not assign."""
    if request.knows_skip_assignment:
        return joined(group, member, skip_assignment=member.member_id == group.leader)
    # Older clients would take themselves for the leader of a rebalance, were they named here.
    return joined(group, member, leader=old_leader, members=())
