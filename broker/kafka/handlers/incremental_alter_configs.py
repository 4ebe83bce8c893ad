"""IncrementalAlterConfigs (key 44): keys set, set back, or extended; the others stay (KIP-339).

SET, DELETE (back to the default), and for lists APPEND and SUBTRACT. A key that comes twice, or an
operation other than DELETE without a value, is INVALID_REQUEST. The broker ``""`` stands for all
brokers. Versions differ only in their encoding.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from qbus.config import Settings
from qbus.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from ...controller import Edit, edit
from ..context import RequestContext
from .configs import Change, alter, warnings_of

if TYPE_CHECKING:
    from ...broker import Broker


async def handle(
    broker: "Broker", context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Alter each resource for itself."""
    changes = [
        Change(
            resource.resource_type,
            resource.resource_name,
            partial(_edit, resource),
            warnings_of(resource.resource_type, (item.name for item in resource.configs)),
        )
        for resource in request.resources
    ]
    errors = await alter(broker, context, changes, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=error.code if error else 0,
                error_message=error.message if error else None,
                resource_type=change.type,
                resource_name=change.name,
            )
            for change, error in zip(changes, errors, strict=True)
        ]
    )


def _edit(
    resource: AlterConfigsResource, keys: type[Settings], current: Mapping[str, str]
) -> dict[str, str]:
    edits = (Edit(item.name, item.config_operation, item.value) for item in resource.configs)
    return edit(keys, current, edits)
