"""ListConfigResources: the names of topics, brokers and groups."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qbus.broker.controller import NewTopic
from qbus.broker.metadata.image import BrokerInfo
from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tests.support.metadata_plane import MetadataPlane, metadata_plane

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[MetadataPlane]:
    async with metadata_plane(tmp_path, others=(BrokerInfo(2, "b2", 9093),)) as plane:
        for name in ("b", "a"):
            await plane.controller.create_topics([NewTopic(name)])
        yield plane


async def names(plane: MetadataPlane, version: int, *types: int) -> list[tuple[int, str]]:
    request = ListConfigResourcesRequest(resource_types=list(types))
    response = await plane.ask(ApiKey.LIST_CONFIG_RESOURCES, version, request)
    assert isinstance(response, ListConfigResourcesResponse)
    assert response.error_code == 0
    return [(found.resource_type, found.resource_name) for found in response.config_resources]


async def test_version_0_asks_for_subscriptions_of_which_there_are_none(
    plane: MetadataPlane,
) -> None:
    assert await names(plane, 0) == []


async def test_the_names_of_each_type(plane: MetadataPlane) -> None:
    assert await names(plane, 1, TOPIC) == [(TOPIC, "a"), (TOPIC, "b")]
    assert await names(plane, 1, BROKER, LOGGER) == [
        (BROKER, "1"),
        (BROKER, "2"),
        (LOGGER, "1"),
        (LOGGER, "2"),
    ]
    assert await names(plane, 1, GROUP, CLIENT_METRICS) == []


async def test_without_types_it_is_all_of_them(plane: MetadataPlane) -> None:
    assert {kind for kind, _ in await names(plane, 1)} == {TOPIC, BROKER, LOGGER}


@pytest.mark.parametrize("kind", [0, 3, 64])
async def test_another_type_is_refused(plane: MetadataPlane, kind: int) -> None:
    with pytest.raises(ApiError) as caught:
        await names(plane, 1, TOPIC, kind)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
