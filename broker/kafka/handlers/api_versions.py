"""ApiVersions (key 18): what a client may ask of this broker.

Version 3 tells the client's software (KIP-511), by which logs know it; a name or version that is
not made of letters, digits, dashes and dots is INVALID_REQUEST. Version 5 tells whom the client
believes to talk to (KIP-1242): if that is another broker, or a broker of another cluster,
REBOOTSTRAP_REQUIRED sends it back to its first addresses.

A version that is not served is answered in the form of version 0, with this API's range: from that
the client learns which to use.

One feature is advertised, share.version 1: Kafka's tools look for it before they use share groups.
(Were its minimum 0, as Kafka's is, versions below 4 would have to leave it out: KAFKA-17011.)
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
_SHARE_VERSION = "share.version"
_LEVEL = 1
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


@cache
def _served() -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[_range(key) for key in API],
        supported_features=[
            SupportedFeatureKey(name=_SHARE_VERSION, min_version=_LEVEL, max_version=_LEVEL)
        ],
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeatureKey(
                name=_SHARE_VERSION, min_version_level=_LEVEL, max_version_level=_LEVEL
            )
        ],
    )


def _range(key: ApiKey) -> ApiVersion:
    api = API[key]
    return ApiVersion(api_key=key, min_version=api.advertised_min, max_version=api.max_version)
