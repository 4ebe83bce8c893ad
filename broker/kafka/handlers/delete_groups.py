"""DeleteGroups (key 42): delete groups that nobody is in, with their offsets.

Of a share group the leaders of partitions forget first what it did; where one cannot be reached,
the group stays, and may be deleted again.

Versions differ only in their encoding.
"""

import asyncio
from typing import TYPE_CHECKING

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

from ...authorization import Operation, group
from ..context import RequestContext
from ..queue_leaders import Action, first_error

if TYPE_CHECKING:
    from ...broker import Broker


async def handle(
    broker: "Broker", context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    """Delete each group, or say why not."""
    names = dict.fromkeys(request.groups_names)
    unknown = await broker.shares.unknown(names)
    if unknown:
        unknown = await broker.groups.unknown(unknown)
    results = await asyncio.gather(
        *(_delete(broker, context, one, is_unknown=one in unknown) for one in names)
    )
    return DeleteGroupsResponse(results=results)


async def _delete(
    broker: "Broker", context: RequestContext, group_id: str, *, is_unknown: bool
) -> DeletableGroupResult:
    try:
        context.authorize(Operation.DELETE, group(group_id))
        if is_unknown:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group_id and await broker.shares.exists(group_id):
            await _delete_share_group(broker, group_id)
        else:
            await broker.groups.delete(group_id)
    except ApiError as error:
        return DeletableGroupResult(group_id=group_id, error_code=error.code)
    return DeletableGroupResult(group_id=group_id, error_code=ErrorCode.NONE)


async def _delete_share_group(broker: "Broker", group_id: str) -> None:
    await broker.shares.check_empty(group_id)
    answers = await broker.queue_leaders.ask_all(Action.DELETE, group_id)
    code, message = first_error(list(answers.values()))
    if code:
        raise ApiError(ErrorCode(code), message)
    await broker.shares.delete(group_id)
