"""ConsumerGroupDescribe (key 69): consumer groups of KIP-848, their members and what these have.

A group of another kind is GROUP_ID_NOT_FOUND: tools then ask with DescribeGroups. Version 1 tells
of each member which protocol it speaks.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

from ... import consumer_group
from ...authorization import Operation
from ...authorization import group as group_resource
from ...authorization import topic as topic_resource
from ...consumer_group import ConsumerGroup, Partitions
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_CLASSIC: Final = 0
_CONSUMER: Final = 1


async def handle(
    broker: "Broker", context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe each group that is asked for."""
    unknown = await broker.groups.unknown(request.group_ids)
    groups = [
        await _describe(broker, context, group_id, is_unknown=group_id in unknown)
        for group_id in request.group_ids
    ]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                resource = group_resource(group.group_id)
                group.authorized_operations = context.authorized_operations(resource)
    return ConsumerGroupDescribeResponse(groups=groups)


async def _describe(
    broker: "Broker", context: RequestContext, group_id: str, *, is_unknown: bool
) -> DescribedGroup:
    try:
        context.authorize(Operation.DESCRIBE, group_resource(group_id))
        group = None if is_unknown else await broker.groups.describe(group_id)
        if not isinstance(group, ConsumerGroup):
            what = "not found" if group is None else "not one of the consumer protocol"
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is {what}.")
        check_sees(context, _topics(broker, group))
    except ApiError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[_member(broker, member) for member in group.members],
    )


def _topics(broker: "Broker", group: ConsumerGroup) -> set[str]:
    """The topics that a description of the group names."""
    names = {name for member in group.members for name in member.subscription}
    known = broker.metadata.topics_by_id
    ids = {one for m in group.members for one, _ in m.assigned | m.target if one in known}
    return names | {known[one].name for one in ids}


def check_sees(context: RequestContext, topics: Iterable[str]) -> None:
    """Check that the client may know of all topics that a group's description names.

    Raises:
        ApiError: TOPIC_AUTHORIZATION_FAILED; the group is not described then, as in Kafka.
    """
    if not all(context.allows(Operation.DESCRIBE, topic_resource(name)) for name in sorted(topics)):
        raise ApiError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "The group has described topic(s) that the client is not authorized to describe.",
        )


def _member(broker: "Broker", member: consumer_group.Member) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.pattern or None,
        assignment=_assignment(broker, member.assigned),
        target_assignment=_assignment(broker, member.target),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _assignment(broker: "Broker", partitions: Partitions) -> Assignment:
    known = broker.metadata.topics_by_id
    topics: dict[bytes, TopicPartitions] = {}
    for topic_id, index in sorted(partitions):
        if topic_id in known:
            name = known[topic_id].name
            topic = topics.setdefault(topic_id, TopicPartitions(topic_id=topic_id, topic_name=name))
            topic.partitions.append(index)
    return Assignment(topic_partitions=list(topics.values()))
