"""ConsumerGroupHeartbeat (key 68): join a group whose partitions the broker assigns (KIP-848).

Epoch 0 joins, -1 leaves, -2 leaves for a while (static members). What is left out is as before. The
response tells the partitions that the member may read when they changed, and to whoever says
everything. In version 0 the broker chooses the member's id; from version 1 on the member does.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

from ...authorization import Operation
from ...authorization import group as group_resource
from ...authorization import topic as topic_resource
from ...consumer_group import Partitions
from ...group import ConsumerHeartbeat
from ...turns import in_pieces
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_JOIN = 0
_LEAVE = -1
_LEAVE_STATIC = -2


MOST_TOPICS: Final = 10_000
"""Maximum number of topics that a member names; each member's are compared with all others'."""


async def handle(
    broker: "Broker", context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Take in a member's sign of life."""
    context.authorize(Operation.READ, group_resource(request.group_id))
    await check_subscription(context, request.subscribed_topic_names)
    _check(request, context.api_version)
    if broker.shares.is_known(request.group_id):
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"{request.group_id} is a share group")
    result = await broker.groups.consumer_heartbeat(request.group_id, _heartbeat(context, request))
    return ConsumerGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None if result.assignment is None else _assignment(result.assignment),
    )


async def check_subscription(context: RequestContext, names: Sequence[str] | None) -> None:
    """Check that a member may subscribe to topics.

    Raises:
        ApiError: INVALID_REQUEST, there are too many; TOPIC_AUTHORIZATION_FAILED.
    """
    if names is None:
        return
    if len(names) > MOST_TOPICS:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{len(names)} topics, more than {MOST_TOPICS}")
    async for piece in in_pieces(names):
        for name in piece:
            context.authorize(Operation.DESCRIBE, topic_resource(name))


def _heartbeat(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerHeartbeat:
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return ConsumerHeartbeat(
        request.member_id or str(uuid4()),
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        None if names is None else tuple(names),
        request.subscribed_topic_regex,
        request.server_assignor,
        None
        if owned is None
        else frozenset((topic.topic_id, index) for topic in owned for index in topic.partitions),
        context.client_id or "",
        context.client_host,
        context.sight,
        context.peer.connection_id,
    )


def _check(request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    """Raise ApiError INVALID_REQUEST for what no member says."""
    epoch = request.member_epoch
    for value, what in (
        (request.group_id, "the group has no name"),
        (request.instance_id, "an instance has an id"),
        (request.rack_id, "a rack has a name"),
    ):
        if value is not None and not value.strip():
            raise _invalid(what)
    if epoch < _LEAVE_STATIC:
        raise _invalid(f"no epoch is {epoch}")
    if not request.member_id and (version >= 1 or epoch != _JOIN):
        raise _invalid("the member has no id")
    if epoch == _LEAVE_STATIC and request.instance_id is None:
        raise _invalid("only a static member leaves in order to come back")
    if epoch == _JOIN:
        _check_join(request)


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms < 0:
        raise _invalid("a member that joins tells its rebalance time-out")
    if request.topic_partitions:
        raise _invalid("a member that joins has no partitions")
    if request.subscribed_topic_names is None and not request.subscribed_topic_regex:
        raise _invalid("a member that joins tells what it subscribes to")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def _assignment(partitions: Partitions) -> Assignment:
    topics: dict[bytes, TopicPartitions] = {}
    for topic_id, index in sorted(partitions):
        topics.setdefault(topic_id, TopicPartitions(topic_id=topic_id)).partitions.append(index)
    return Assignment(topic_partitions=list(topics.values()))
