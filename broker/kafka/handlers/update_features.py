"""UpdateFeatures (key 57): asks for levels of features (KIP-584).

The levels are those of this version of Qbus, and nothing else raises or lowers them: a request for
the level that is in force succeeds, every other is FEATURE_UPDATE_FAILED. Version 2 answers for all
features as a whole.
"""

from typing import TYPE_CHECKING

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

from ...authorization import CLUSTER, Operation
from ..context import RequestContext
from .api_versions import finalized_levels

if TYPE_CHECKING:
    from ...broker import Broker

_FIRST_AS_A_WHOLE = 2


def handle(
    _broker: "Broker", context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """Compare each wanted level with the one in force."""
    context.authorize(Operation.ALTER, CLUSTER)
    errors = {
        update.feature: _refusal(update.feature, update.max_version_level)
        for update in request.feature_updates
    }
    if context.api_version >= _FIRST_AS_A_WHOLE:
        for error in errors.values():
            if error is not None:
                raise error
        return UpdateFeaturesResponse(error_message=None)
    return UpdateFeaturesResponse(
        error_message=None,
        results=[
            UpdatableFeatureResult(
                feature=feature,
                error_code=error.code if error else ErrorCode.NONE,
                error_message=error.message if error else None,
            )
            for feature, error in errors.items()
        ],
    )


def _refusal(feature: str, wanted: int) -> ApiError | None:
    level = finalized_levels().get(feature)
    if level is None:
        return ApiError(ErrorCode.FEATURE_UPDATE_FAILED, f"there is no feature {feature}")
    if level != wanted:
        return ApiError(
            ErrorCode.FEATURE_UPDATE_FAILED,
            f"{feature} is at level {level}, which is part of this version of the broker",
        )
    return None
