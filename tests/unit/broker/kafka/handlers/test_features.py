"""UpdateFeatures, which changes nothing, and DescribeQuorum, which is refused."""

from typing import Any

import pytest

from qbus.broker.kafka.handlers.api_versions import finalized_levels
from qbus.errors import ApiError, ErrorCode
from qbus.wire import API, ApiKey
from qbus.wire.messages.describe_quorum import DescribeQuorumRequest
from qbus.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.support.data_plane import DataPlane

SHARES = "share.version"


async def update(plane: DataPlane, version: int, **levels: int) -> UpdateFeaturesResponse:
    updates = [
        FeatureUpdateKey(feature=name.replace("_", "."), max_version_level=level)
        for name, level in levels.items()
    ]
    response: Any = await plane.call(
        ApiKey.UPDATE_FEATURES, version, UpdateFeaturesRequest(feature_updates=updates)
    )
    assert isinstance(response, UpdateFeaturesResponse)
    return response


@pytest.mark.parametrize("version", range(3))
async def test_the_level_in_force_can_be_asked_for(plane: DataPlane, version: int) -> None:
    response = await update(plane, version, share_version=finalized_levels()[SHARES])
    assert response.error_code == ErrorCode.NONE
    assert [result.error_code for result in response.results] == [0] * (version < 2)


@pytest.mark.parametrize("version", range(2))
async def test_other_levels_are_refused_each_for_itself(plane: DataPlane, version: int) -> None:
    response = await update(plane, version, share_version=9, other=1)
    assert response.error_code == ErrorCode.NONE
    refused = ErrorCode.FEATURE_UPDATE_FAILED
    assert [(r.feature, r.error_code) for r in response.results] == [
        (SHARES, refused),
        ("other", refused),
    ]
    assert all(result.error_message for result in response.results)


async def test_from_version_2_on_they_are_refused_as_a_whole(plane: DataPlane) -> None:
    with pytest.raises(ApiError, match="part of this version") as caught:
        await update(plane, 2, share_version=9)
    assert caught.value.code is ErrorCode.FEATURE_UPDATE_FAILED


@pytest.mark.parametrize("version", range(3))
async def test_there_is_no_quorum_to_describe(plane: DataPlane, version: int) -> None:
    with pytest.raises(ApiError, match="KRaft") as caught:
        await plane.call(ApiKey.DESCRIBE_QUORUM, version, DescribeQuorumRequest())
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_clients_are_not_told_that_they_could_ask_for_a_quorum() -> None:
    assert [key.name for key, api in API.items() if not api.is_advertised] == ["DESCRIBE_QUORUM"]
