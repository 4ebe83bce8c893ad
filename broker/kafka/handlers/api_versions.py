"""ApiVersions (key 18): what a client may ask of this broker.

Version 3 tells the client's software (KIP-511), by which logs know it; a name or version that is
not made of letters, digits, dashes and dots is INVALID_REQUEST. Version 5 tells whom the client
believes to talk to (KIP-1242): if that is another broker, or a broker of another cluster,
REBOOTSTRAP_REQUIRED sends it back to its first addresses.

A version that is not served is answered in the form of version 0, with this API's range: from that
the client learns which to use.

Features are advertised as finalised at their highest level, by which clients choose how they use
share groups, transactions and groups (share.version 1, KIP-932; transaction.version 2, KIP-890;
group.version 1, KIP-848). All start with 1 here. (With a minimum of 0, as Kafka's have, versions
below 4 would have to leave them out: KAFKA-17011.)
"""

import re
from functools import cache
from typing import TYPE_CHECKING

from qbus.errors import ErrorCode
from qbus.wire import API, ApiKey
from qbus.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_FIRST_WITH_SOFTWARE = 3
_SOFTWARE_SHOWN = 64
_ANY_NODE = -1
_LEAST_LEVEL = 1
_LEVELS = {
    "share.version": 1,
    "transaction.version": 2,
    "group.version": 1,
}
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(
    broker: "Broker", context: RequestContext, request: ApiVersionsRequest
) -> ApiVersionsResponse:
    """The table of APIs; the same object each time."""
    if context.api_version >= _FIRST_WITH_SOFTWARE:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.peer.software = f"{name[:_SOFTWARE_SHOWN]}/{version[:_SOFTWARE_SHOWN]}"
    if _is_misrouted(broker, request):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    return _served()


def unsupported_version(_broker: "Broker") -> ApiVersionsResponse:
    """The answer, in version 0, to a version that is not served (KIP-511)."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_range(ApiKey.API_VERSIONS)]
    )


def _is_misrouted(broker: "Broker", request: ApiVersionsRequest) -> bool:
    return request.cluster_id not in {None, broker.cluster_id} or request.node_id not in {
        _ANY_NODE,
        broker.node_id,
    }


def finalized_levels() -> dict[str, int]:
    """The features that the cluster has, and their levels."""
    return {feature.name: feature.max_version_level for feature in _served().finalized_features}


@cache
def _served() -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[_range(key) for key, api in API.items() if api.is_advertised],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=_LEAST_LEVEL, max_version=level)
            for name, level in _LEVELS.items()
        ],
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in _LEVELS.items()
        ],
    )


def _range(key: ApiKey) -> ApiVersion:
    api = API[key]
    return ApiVersion(api_key=key, min_version=api.advertised_min, max_version=api.max_version)
