"""ShareAcknowledge (key 79): what became of records that a member of a share group acquired.

The answer comes when it is stored. Each partition's acknowledgements count together or not at all;
what lies before the group's start is done already, and is passed over.
Epoch -1 ends the member's session, after what it acknowledges; what it has besides becomes
available. Version 2 renews locks (KIP-1222), which begin anew when the answer is sent.
"""

import asyncio
from typing import TYPE_CHECKING

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.share_acknowledge import (
    AcknowledgePartition,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

from ...authorization import Operation
from ...authorization import group as group_resource
from ...partition.purgatory import Delayed
from ...turns import in_pieces
from ..context import RequestContext
from ..share_requests import (
    acknowledge,
    failure,
    later,
    names,
    read_acknowledgements,
    renews,
)
from ..share_sessions import CLOSE, OPEN, ShareSession
from .leaders import leader_of, reachable

if TYPE_CHECKING:
    from ...broker import Broker


def handle(
    broker: "Broker", context: RequestContext, request: ShareAcknowledgeRequest
) -> Delayed[ShareAcknowledgeResponse]:
    """Acknowledge, and end the session if that is wanted."""
    group, member = names(request.group_id, request.member_id)
    context.authorize(Operation.READ, group_resource(group))
    if request.share_session_epoch == OPEN:
        raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a session begins with a ShareFetch")
    session = broker.share_sessions.go_on(group, member, request.share_session_epoch)
    return later(_answer(broker, context, request, session))


async def _answer(
    broker: "Broker",
    context: RequestContext,
    request: ShareAcknowledgeRequest,
    session: ShareSession,
) -> ShareAcknowledgeResponse:
    config = broker.metadata.group_config(session.group)
    may_renew = renews(
        context, is_renew_ack=request.is_renew_ack, allowed=config.share_renew_acknowledge_enable
    )

    async def answer(topic_id: bytes, wanted: AcknowledgePartition) -> PartitionData:
        data = PartitionData(partition_index=wanted.partition_index)
        place = topic_id, wanted.partition_index
        try:
            read = read_acknowledgements(wanted.acknowledgement_batches, renews=may_renew)
            await acknowledge(
                broker.group_queues, context, session.group, session.owner, place, read
            )
        except Exception as error:  # noqa: BLE001 - of this partition alone
            known = failure(error)
            data.error_code, data.error_message = known.code, known.message
            if known.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader = leader_of(broker.metadata, *place)
                data.current_leader = LeaderIdAndEpoch(
                    leader_id=leader.id, leader_epoch=leader.epoch
                )
        return data

    places = [(topic.topic_id, one) for topic in request.topics for one in topic.partitions]
    answers: list[PartitionData] = []
    async for piece in in_pieces(places):
        answers += await asyncio.gather(*(answer(topic_id, one) for topic_id, one in piece))
    if request.share_session_epoch == CLOSE:
        await broker.share_sessions.release(session)
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    for (topic_id, _), data in zip(places, answers, strict=True):
        topic = topics.setdefault(topic_id, ShareAcknowledgeTopicResponse(topic_id=topic_id))
        topic.partitions.append(data)
    leaders = {data.current_leader.leader_id for data in answers}
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=config.share_record_lock_duration_ms,
        responses=list(topics.values()),
        node_endpoints=[
            NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in reachable(broker.metadata, leaders, context.peer.listener.name)
        ],
    )
