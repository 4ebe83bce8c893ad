"""Consumer groups and their members."""

from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from qbus.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from qbus.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

from ..cluster import Cluster, retrying
from ..consumer_protocol import decode_assignment
from ..coordination import asking_coordinator
from ..errors import check
from ..types import GroupDescription, GroupListing, MemberDescription

_CONSUMERS = "consumer"
_DEAD = "Dead"


async def list_all(cluster: Cluster) -> list[GroupListing]:
    """Every group of every broker, by name."""

    async def attempt() -> list[GroupListing]:
        await cluster.refresh(())
        found = []
        for node_id in sorted(cluster.metadata.nodes):
            response: ListGroupsResponse = await cluster.ask(
                node_id, ApiKey.LIST_GROUPS, ListGroupsRequest()
            )
            check(response.error_code)
            found += [
                GroupListing(group.group_id, group.protocol_type, group.group_state)
                for group in response.groups
            ]
        return sorted(found, key=lambda listing: listing.group)

    return await retrying(attempt, cluster.request_timeout)


async def describe(cluster: Cluster, group: str) -> GroupDescription:
    """One group."""

    async def attempt() -> GroupDescription:
        coordinator = await cluster.coordinator(group)
        if coordinator not in cluster.metadata.nodes:
            await cluster.refresh(())
        response: DescribeGroupsResponse = await cluster.ask_coordinator(
            group, ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[group])
        )
        (found,) = response.groups
        check(found.error_code, found.error_message, of=f"group {group}")
        if found.group_state == _DEAD:  # how brokers before DescribeGroups v6 say "no such group"
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group}")
        return GroupDescription(
            group=group,
            state=found.group_state,
            protocol_type=found.protocol_type,
            protocol=found.protocol_data,
            coordinator=cluster.metadata.nodes[coordinator],
            members=tuple(_member(found, member) for member in found.members),
        )

    return await asking_coordinator(cluster, group, attempt)


async def delete(cluster: Cluster, group: str) -> None:
    """Delete a group without members."""

    async def attempt() -> None:
        response: DeleteGroupsResponse = await cluster.ask_coordinator(
            group, ApiKey.DELETE_GROUPS, DeleteGroupsRequest(groups_names=[group])
        )
        for result in response.results:
            check(result.error_code, of=f"group {group}")

    await asking_coordinator(cluster, group, attempt)


def _member(group: DescribedGroup, member: DescribedGroupMember) -> MemberDescription:
    is_consumer = group.protocol_type == _CONSUMERS
    return MemberDescription(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=decode_assignment(bytes(member.member_assignment)) if is_consumer else (),
    )
