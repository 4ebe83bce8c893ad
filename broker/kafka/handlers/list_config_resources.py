"""ListConfigResources (key 74): the names of what has a configuration (KIP-1000, KIP-1142).

Version 0 asks for subscriptions to clients' metrics, of which there are none: what clients push is
a setting of the brokers. Version 1 asks by types; none: all of topics, brokers and groups.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

from ...authorization import CLUSTER, Operation
from ..context import RequestContext
from .configs import ResourceType

if TYPE_CHECKING:
    from ...broker import Broker

_FIRST_WITH_TYPES = 1
_LISTED = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


def handle(
    broker: "Broker", context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """List the names of each type that is asked for.

    Raises:
        ApiError: UNSUPPORTED_VERSION, there is no such type.
    """
    context.authorize(Operation.DESCRIBE_CONFIGS, CLUSTER)
    wanted: Iterable[int] = (ResourceType.CLIENT_METRICS,)
    if context.api_version >= _FIRST_WITH_TYPES:
        wanted = dict.fromkeys(request.resource_types) or _LISTED
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in wanted
            for name in sorted(_names(broker, kind))
        ]
    )


def _names(broker: "Broker", kind: int) -> Iterable[str]:
    if kind not in _LISTED:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"resources of type {kind} are not listed")
    if kind == ResourceType.TOPIC:
        return broker.metadata.topics
    if kind in {ResourceType.BROKER, ResourceType.BROKER_LOGGER}:
        return map(str, broker.metadata.brokers)
    if kind == ResourceType.GROUP:
        return broker.metadata.group_configs
    return ()
