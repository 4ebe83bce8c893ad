"""ShareGroupDescribe (key 77): the state of share groups, their members and what these read."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)

from ...authorization import Operation
from ...authorization import group as group_resource
from ...share import ShareMemberDescription
from ..context import RequestContext
from .consumer_group_describe import check_sees

if TYPE_CHECKING:
    from ...broker import Broker

_ASSIGNOR: Final = "simple"


async def handle(
    broker: "Broker", context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """Describe each group that is asked for."""
    unknown = await broker.shares.unknown(request.group_ids)
    groups = [
        await _describe(broker, context, group_id, is_unknown=group_id in unknown)
        for group_id in request.group_ids
    ]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                resource = group_resource(group.group_id)
                group.authorized_operations = context.authorized_operations(resource)
    return ShareGroupDescribeResponse(groups=groups)


async def _describe(
    broker: "Broker", context: RequestContext, group_id: str, *, is_unknown: bool
) -> DescribedGroup:
    try:
        context.authorize(Operation.DESCRIBE, group_resource(group_id))
        group = None if is_unknown else await broker.shares.describe(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        check_sees(context, _topics(broker, group.members))
    except ApiError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=_ASSIGNOR,
        members=[_member(broker, member) for member in group.members],
    )


def _topics(broker: "Broker", members: Iterable[ShareMemberDescription]) -> set[str]:
    """The topics that a description of the group names."""
    known = broker.metadata.topics_by_id
    ids = {one for member in members for one, _ in member.assignment if one in known}
    return {name for member in members for name in member.topics} | {known[i].name for i in ids}


def _member(broker: "Broker", member: ShareMemberDescription) -> Member:
    known = broker.metadata.topics_by_id
    topics: dict[bytes, TopicPartitions] = {}
    for topic_id, index in sorted(member.assignment):
        if topic_id in known:
            name = known[topic_id].name
            topic = topics.setdefault(topic_id, TopicPartitions(topic_id=topic_id, topic_name=name))
            topic.partitions.append(index)
    return Member(
        member_id=member.member_id,
        rack_id=member.rack,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        assignment=Assignment(topic_partitions=list(topics.values())),
    )
