"""DeleteGroups (key 42): delete groups that nobody is in, with their offsets.

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

if TYPE_CHECKING:
    from ...broker import Broker


async def handle(
    broker: "Broker", context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    """Delete each group, or say why not."""
    names = dict.fromkeys(request.groups_names)
    results = await asyncio.gather(*(_delete(broker, context, group_id) for group_id in names))
    return DeleteGroupsResponse(results=results)


async def _delete(broker: "Broker", context: RequestContext, group_id: str) -> DeletableGroupResult:
    try:
        context.authorize(Operation.DELETE, group(group_id))
        await broker.groups.delete(group_id)
    except ApiError as error:
        return DeletableGroupResult(group_id=group_id, error_code=error.code)
    return DeletableGroupResult(group_id=group_id, error_code=ErrorCode.NONE)
