"""ShareGroupHeartbeat (key 76): join a share group, stay in it, leave it (KIP-932).

A member chooses its own id. Epoch 0 joins, -1 leaves. The assignment is told when it changed, and
to whoever joins or names its topics.
"""

from typing import TYPE_CHECKING

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

from ...authorization import Operation
from ...authorization import group as group_resource
from ...share import MemberHeartbeat, Partitions
from ..context import RequestContext
from .consumer_group_heartbeat import check_subscription

if TYPE_CHECKING:
    from ...broker import Broker


async def handle(
    broker: "Broker", context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    """Take in a member's sign of life."""
    context.authorize(Operation.READ, group_resource(request.group_id))
    names = request.subscribed_topic_names
    await check_subscription(context, names)
    _check(request)
    beat = MemberHeartbeat(
        request.member_id,
        request.member_epoch,
        request.rack_id,
        None if names is None else tuple(names),
        context.client_id or "",
        context.client_host,
    )
    result, config = await broker.shares.heartbeat(request.group_id, beat)
    return ShareGroupHeartbeatResponse(
        member_id=request.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=config.share_heartbeat_interval_ms,
        assignment=None if result.assignment is None else _assignment(result.assignment),
    )


def _check(request: ShareGroupHeartbeatRequest) -> None:
    """Raises ApiError INVALID_REQUEST."""
    if not request.group_id.strip():
        raise ApiError(ErrorCode.INVALID_REQUEST, "the group has no name")
    if not request.member_id.strip():
        raise ApiError(ErrorCode.INVALID_REQUEST, "the member has no id")
    if request.member_epoch < -1:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"no epoch is {request.member_epoch}")
    if request.rack_id is not None and not request.rack_id.strip():
        raise ApiError(ErrorCode.INVALID_REQUEST, "a rack has a name")


def _assignment(partitions: Partitions) -> Assignment:
    topics: dict[bytes, TopicPartitions] = {}
    for topic_id, index in sorted(partitions):
        topics.setdefault(topic_id, TopicPartitions(topic_id=topic_id)).partitions.append(index)
    return Assignment(topic_partitions=list(topics.values()))
