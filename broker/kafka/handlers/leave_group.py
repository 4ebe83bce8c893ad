"""LeaveGroup (key 13): members go, and the others rebalance at once.

Until version 2 one member leaves, and its error is the response's. From version 3 on many can, each
with an error of its own; an administrator names static members by their instance alone (KIP-345).
Version 5 tells a reason to log (KIP-800).
"""

from typing import TYPE_CHECKING

from qbus.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

from ...authorization import Operation, group
from ...group import Leave, Leaver
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_MAX_REASON = 255


async def handle(
    broker: "Broker", context: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse:
    """Remove the members."""
    context.authorize(Operation.READ, group(request.group_id))
    single = context.api_version < 3
    leavers = [Leaver(request.member_id, None)] if single else _leavers(request)
    result = await broker.groups.leave(request.group_id, Leave(tuple(leavers)))
    if single:
        errors = [outcome.error for outcome in result.outcomes]
        return LeaveGroupResponse(error_code=result.error or errors[0])
    members = [
        MemberResponse(
            member_id=leaver.member_id, group_instance_id=leaver.instance_id, error_code=error
        )
        for leaver, error in result.outcomes
    ]
    return LeaveGroupResponse(error_code=result.error, members=members)


def _leavers(request: LeaveGroupRequest) -> list[Leaver]:
    return [
        Leaver(member.member_id, member.group_instance_id, (member.reason or "")[:_MAX_REASON])
        for member in request.members
    ]
