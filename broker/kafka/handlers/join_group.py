"""JoinGroup (key 11): a member's way into the next generation of its group.

Version 1 tells the rebalance time-out; where there is none (-1), it is the session's. From version
4 on a client without a member id is sent away with one, to come back with it (KIP-394). Version 5
brings static members, 8 a reason to log, 9 static leaders that need not assign (KIP-814). The
protocol's name is null in an error from version 7 on, empty before.
"""

from typing import TYPE_CHECKING
from uuid import uuid4

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

from ...authorization import Operation, group
from ...group import GroupProtocol, Join, JoinResult
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_MAX_REASON = 255
_MOST_PROTOCOLS = 100  # every member's are kept, and compared with all others'


async def handle(
    broker: "Broker", context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse:
    """Wait until the group has its next generation."""
    context.authorize(Operation.READ, group(request.group_id))
    if len(request.protocols) > _MOST_PROTOCOLS:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{len(request.protocols)} protocols, more than {_MOST_PROTOCOLS}",
        )
    if broker.shares.is_known(request.group_id):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "this is a share group")
    result = await broker.groups.join(request.group_id, _join(context, request))
    return _response(result, context.api_version)


def _join(context: RequestContext, request: JoinGroupRequest) -> Join:
    version = context.api_version
    client_id = context.client_id or ""
    session_ms, rebalance_ms = request.session_timeout_ms, request.rebalance_timeout_ms
    return Join(
        member_id=request.member_id,
        new_member_id=f"{request.group_instance_id or client_id}-{uuid4()}",
        instance_id=request.group_instance_id,
        client_id=client_id,
        client_host=context.client_host,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=session_ms if rebalance_ms < 0 else rebalance_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(GroupProtocol(item.name, item.metadata) for item in request.protocols),
        reason=(request.reason or "")[:_MAX_REASON],
        needs_known_id=version >= 4,
        knows_skip_assignment=version >= 9,
    )


def _response(result: JoinResult, version: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol if version >= 7 else result.protocol or "",
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in result.members
        ],
    )
