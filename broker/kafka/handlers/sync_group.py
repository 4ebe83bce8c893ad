"""SyncGroup (key 14): a member calls for its assignment, and the leader brings everyone's.

Version 3 brings static members. Version 5 tells the protocol that the member knows of, which must
be the group's (KIP-559); leaving it out is INCONSISTENT_GROUP_PROTOCOL.
"""

from typing import TYPE_CHECKING

from qbus.errors import ErrorCode
from qbus.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

from ...authorization import Operation, group
from ...group import Sync
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker


async def handle(
    broker: "Broker", context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse:
    """Wait until the leader has assigned."""
    tells_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= 5 and not tells_protocol:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    context.authorize(Operation.READ, group(request.group_id))
    sync = Sync(
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        request.protocol_type,
        request.protocol_name,
        {item.member_id: item.assignment for item in request.assignments},
    )
    result = await broker.groups.sync(request.group_id, sync)
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        assignment=result.assignment,
    )
