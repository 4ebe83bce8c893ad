"""DescribeGroups (key 15): a group's state and members.

What members support and were assigned is told while the group is stable. A group that does not
exist is Dead, and from version 6 on GROUP_ID_NOT_FOUND as well (KIP-1043); so is one of the
consumer protocol (KIP-848), which ConsumerGroupDescribe describes. Version 3 tells on request what
the client may do.
"""

from typing import TYPE_CHECKING

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

from ...authorization import Operation
from ...authorization import group as group_resource
from ...group import Group, GroupState
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker


async def handle(
    broker: "Broker", context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Describe each group that is asked for."""
    unknown = await broker.groups.unknown(request.groups)
    groups = [
        await _describe(broker, context, group_id, is_unknown=group_id in unknown)
        for group_id in request.groups
    ]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                resource = group_resource(group.group_id)
                group.authorized_operations = context.authorized_operations(resource)
    return DescribeGroupsResponse(groups=groups)


async def _describe(
    broker: "Broker", context: RequestContext, group_id: str, *, is_unknown: bool
) -> DescribedGroup:
    try:
        context.authorize(Operation.DESCRIBE, group_resource(group_id))
        group = None if is_unknown else await broker.groups.describe(group_id)
    except ApiError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    if not isinstance(group, Group):
        return _unknown(group_id, context.api_version, exists=group is not None)
    is_stable = group.state is GroupState.STABLE
    protocol = group.protocol if is_stable else None
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(protocol),
                member_assignment=member.assignment if is_stable else b"",
            )
            for member in group.members
        ],
    )


def _unknown(group_id: str, version: int, *, exists: bool) -> DescribedGroup:
    described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    if version >= 6:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        what = "is not a classic group" if exists else "not found"
        described.error_message = f"Group {group_id} {what}."
    return described
