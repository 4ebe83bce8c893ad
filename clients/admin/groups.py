"""Groups and their members."""

from collections.abc import Iterable

from qbus.consumer_protocol import decode_assignment
from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from qbus.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from qbus.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from qbus.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

from ..errors import api_error, check
from ..net.retry import Outcomes, each, retrying, succeeded
from ..net.routing import asking_coordinator
from ..types import GroupDescription, GroupListing, MemberDescription, Node
from .brokers import Brokers

_CONSUMERS = "consumer"
_DEAD = "Dead"


class Groups(Brokers):
    """The part of the admin client that is about groups."""

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        """Every group, by name; only those in ``states`` and of ``types`` when some are named.

        When some brokers do not answer, the :class:`~qbus.clients.PartialFailure` holds the groups
        of the others by their ids.
        """
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))

        async def ask(node_id: int) -> list[GroupListing]:
            async def attempt() -> ListGroupsResponse:
                response: ListGroupsResponse = await self._cluster.ask(
                    node_id, ApiKey.LIST_GROUPS, request
                )
                check(response.error_code, of=f"broker {node_id}")
                return response

            return [
                GroupListing(
                    group.group_id, group.protocol_type, group.group_state, group.group_type
                )
                for group in (await retrying(attempt, self._cluster.request_timeout)).groups
            ]

        await self._find_brokers()
        found = succeeded(await each(self._cluster.metadata.nodes, ask))
        listings = [listing for of_broker in found.values() for listing in of_broker]
        return sorted(listings, key=lambda listing: listing.group)

    async def describe_group(self, group: str) -> GroupDescription:
        """One group; GROUP_ID_NOT_FOUND when there is none of that name."""

        async def attempt() -> GroupDescription:
            coordinator = await self._cluster.coordinator(group)
            response: DescribeGroupsResponse = await self._cluster.ask_coordinator(
                group, ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[group])
            )
            for found in response.groups:
                if found.group_id == group:
                    return _description(found, await self._node(coordinator))
            raise ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker did not answer for group {group}"
            )

        return await asking_coordinator(self._cluster, group, attempt)

    async def describe_groups(self, groups: Iterable[str]) -> dict[str, GroupDescription]:
        """Several groups, by their names."""
        return succeeded(await each(groups, self.describe_group))

    async def delete_group(self, group: str) -> None:
        """Delete a group without members, and its offsets."""

        async def attempt() -> None:
            response: DeleteGroupsResponse = await self._cluster.ask_coordinator(
                group, ApiKey.DELETE_GROUPS, DeleteGroupsRequest(groups_names=[group])
            )
            for result in response.results:
                check(result.error_code, of=f"group {group}")

        await asking_coordinator(self._cluster, group, attempt)

    async def delete_groups(self, groups: Iterable[str]) -> None:
        """Delete several groups without members, and their offsets."""
        succeeded(await each(groups, self.delete_group))

    async def remove_members(
        self, group: str, members: Iterable[str] | None = None, *, reason: str | None = None
    ) -> None:
        """Remove members from a group, which rebalances; those that still live may join again.

        members: ids of members, or instance ids of static ones; None: all.
        reason: what the broker writes to its log.
        """
        described = (await self.describe_group(group)).members
        static = {member.instance_id for member in described if member.instance_id is not None}
        if members is None:
            members = [member.instance_id or member.member_id for member in described]
        leaving = [
            MemberIdentity(member_id="", group_instance_id=name, reason=reason)
            if name in static
            else MemberIdentity(member_id=name, reason=reason)
            for name in members
        ]
        if not leaving:
            return
        request = LeaveGroupRequest(group_id=group, members=leaving)

        async def attempt() -> Outcomes[str, None]:
            response: LeaveGroupResponse = await self._cluster.ask_coordinator(
                group, ApiKey.LEAVE_GROUP, request
            )
            check(response.error_code, of=f"group {group}")
            outcomes: Outcomes[str, None] = {}
            for member in response.members:
                name = member.group_instance_id or member.member_id
                code = member.error_code
                outcomes[name] = api_error(code, of=f"member {name}") if code else None
            return outcomes

        succeeded(await asking_coordinator(self._cluster, group, attempt))

    async def _node(self, node_id: int) -> Node:
        await self._cluster.need_node(node_id)
        return self._cluster.metadata.nodes[node_id]


def _description(found: DescribedGroup, coordinator: Node) -> GroupDescription:
    check(found.error_code, found.error_message, of=f"group {found.group_id}")
    if found.group_state == _DEAD:  # how brokers before DescribeGroups v6 say "no such group"
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {found.group_id}")
    return GroupDescription(
        group=found.group_id,
        state=found.group_state,
        protocol_type=found.protocol_type,
        protocol=found.protocol_data,
        coordinator=coordinator,
        members=tuple(_member(found, member) for member in found.members),
    )


def _member(group: DescribedGroup, member: DescribedGroupMember) -> MemberDescription:
    is_consumer = group.protocol_type == _CONSUMERS
    return MemberDescription(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=decode_assignment(bytes(member.member_assignment)) if is_consumer else (),
    )
