"""AlterConfigs (key 33): a new configuration in place of the old one (KIP-133).

What is not named goes back to its default; that is why IncrementalAlterConfigs came. But what
makes a topic a mirror stays: tools that do not know of it would end it unasked. The broker
``""`` stands for all brokers. Versions differ only in their encoding.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from qbus.config import Settings
from qbus.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

from ...controller import MIRROR_KEYS, replace
from ..context import RequestContext
from .configs import Change, alter, warnings_of

if TYPE_CHECKING:
    from ...broker import Broker


async def handle(
    broker: "Broker", context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    """Alter each resource for itself."""
    changes = [
        Change(
            resource.resource_type,
            resource.resource_name,
            partial(_replace, resource),
            warnings_of(resource.resource_type, (item.name for item in resource.configs)),
        )
        for resource in request.resources
    ]
    errors = await alter(broker, context, changes, validate_only=request.validate_only)
    return AlterConfigsResponse(
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


def _replace(
    resource: AlterConfigsResource, keys: type[Settings], current: Mapping[str, str]
) -> dict[str, str]:
    kept = {name: text for name, text in current.items() if name in MIRROR_KEYS}
    return kept | replace(keys, ((item.name, item.value) for item in resource.configs))
