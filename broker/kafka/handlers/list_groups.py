"""ListGroups (key 16): the groups that this broker coordinates; clients ask all brokers.

Version 4 asks for those in given states (KIP-518), version 5 for those of given types: classic
ones, those of the consumer protocol (KIP-848), and share groups. Filters do not mind upper and
lower case.
"""

from typing import TYPE_CHECKING, Final

from qbus.errors import ApiError
from qbus.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

from ...authorization import CLUSTER, Operation
from ...authorization import group as group_resource
from ...consumer_group import ConsumerGroup
from ...group import GroupMachine
from ...turns import in_pieces
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_CLASSIC: Final = "classic"
_CONSUMER: Final = "consumer"
_SHARE: Final = "share"


async def handle(
    broker: "Broker", context: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse:
    """List the groups that pass both filters; an empty one lets all pass."""
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    groups: list[ListedGroup] = []
    try:
        if not types or not types.isdisjoint({_CLASSIC, _CONSUMER}):
            groups += [
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state.value,
                    group_type=kind,
                )
                for group in await broker.groups.groups()
                if (kind := _kind(group)) in types or not types
            ]
        if not types or _SHARE in types:
            groups += [
                ListedGroup(
                    group_id=group_id,
                    protocol_type=_SHARE,
                    group_state=state.value,
                    group_type=_SHARE,
                )
                for group_id, state in await broker.shares.groups()
            ]
    except ApiError as error:
        return ListGroupsResponse(error_code=error.code)
    sees_all = context.may(Operation.DESCRIBE, CLUSTER)
    seen: list[ListedGroup] = []
    async for piece in in_pieces(groups):
        seen += [
            group
            for group in piece
            if not states or group.group_state.lower() in states
            if sees_all or context.may(Operation.DESCRIBE, group_resource(group.group_id))
        ]
    return ListGroupsResponse(groups=seen)


def _kind(group: GroupMachine) -> str:
    return _CONSUMER if isinstance(group, ConsumerGroup) else _CLASSIC
