"""Heartbeat (key 12): a member's sign of life; the answer tells it of a rebalance.

Version 3 brings static members.
"""

from typing import TYPE_CHECKING

from qbus.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

from ...authorization import Operation, group
from ...group import Heartbeat
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker


async def handle(
    broker: "Broker", context: RequestContext, request: HeartbeatRequest
) -> HeartbeatResponse:
    """Extend the member's session."""
    context.authorize(Operation.READ, group(request.group_id))
    beat = Heartbeat(request.member_id, request.group_instance_id, request.generation_id)
    return HeartbeatResponse(error_code=await broker.groups.heartbeat(request.group_id, beat))
