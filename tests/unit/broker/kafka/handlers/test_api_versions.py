"""ApiVersions: the table of APIs, and the clients that are turned away."""

from typing import Any

import pytest

from qbus.broker.kafka.context import RequestContext
from qbus.broker.kafka.handlers.api_versions import handle, unsupported_version
from qbus.broker.net.peer import Peer
from qbus.config import ListenerInfo
from qbus.errors import ErrorCode
from qbus.wire import API, ApiKey
from qbus.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.support.data_plane import CLUSTER, NODE, DataPlane, over_the_wire

LEVELS = {"share.version": 1, "transaction.version": 2, "group.version": 1}
VERSIONS = range(API[ApiKey.API_VERSIONS].max_version + 1)


def software(name: str = "librdkafka", version: str = "2.16.1", **fields: Any) -> Any:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version, **fields)


def ranges(response: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version_tells_what_is_served(plane: DataPlane, version: int) -> None:
    response = await plane.call(ApiKey.API_VERSIONS, version, software())
    assert response.error_code == 0
    served = ranges(response)
    assert served == {
        key: (api.advertised_min, api.max_version) for key, api in API.items() if api.is_advertised
    }
    assert served[ApiKey.PRODUCE] == (0, 13)  # older clients match exact numbers
    assert list(served) == sorted(served)
    if version >= 3:
        supported, finalized = response.supported_features, response.finalized_features
        assert {one.name: one.max_version for one in supported} == LEVELS
        assert {one.name: one.max_version_level for one in finalized} == LEVELS
        assert response.finalized_features_epoch == 0


def test_a_version_that_is_not_served_is_answered_in_version_0() -> None:
    response = over_the_wire(ApiKey.API_VERSIONS, 0, unsupported_version(None))  # type: ignore[arg-type]
    assert ErrorCode(response.error_code) is ErrorCode.UNSUPPORTED_VERSION
    assert ranges(response) == {ApiKey.API_VERSIONS: (0, VERSIONS[-1])}


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("", "1.0"),
        ("client", ""),
        ("-client", "1.0"),
        ("client-", "1.0"),
        ("cli ent", "1.0"),
        ("client", "1.0\n"),
        ("cliént", "1.0"),
    ],
)
async def test_software_that_is_not_named_properly(
    plane: DataPlane, name: str, version: str
) -> None:
    response = await plane.call(ApiKey.API_VERSIONS, 3, software(name, version))
    assert ErrorCode(response.error_code) is ErrorCode.INVALID_REQUEST


async def test_versions_without_software_are_not_asked_for_it(plane: DataPlane) -> None:
    response = await plane.call(ApiKey.API_VERSIONS, 2, ApiVersionsRequest())
    assert response.error_code == 0


async def test_the_software_is_remembered(plane: DataPlane) -> None:
    peer = Peer(1, "127.0.0.1", ListenerInfo.plaintext("127.0.0.1", 9092))
    context = RequestContext(ApiKey.API_VERSIONS, 3, None, peer)
    handle(plane.broker, context, software("apache-kafka-java", "4.1.0"))
    assert context.client_software == "apache-kafka-java/4.1.0"
    handle(plane.broker, context, software("x" * 30_000, "1"))
    assert len(context.client_software) < 200


@pytest.mark.parametrize(
    ("believed", "code"),
    [
        ({}, ErrorCode.NONE),
        ({"cluster_id": CLUSTER, "node_id": NODE}, ErrorCode.NONE),
        ({"cluster_id": "another"}, ErrorCode.REBOOTSTRAP_REQUIRED),
        ({"cluster_id": CLUSTER, "node_id": NODE + 1}, ErrorCode.REBOOTSTRAP_REQUIRED),
    ],
)
async def test_a_client_that_takes_this_broker_for_another(
    plane: DataPlane, believed: dict[str, Any], code: ErrorCode
) -> None:
    response = await plane.call(ApiKey.API_VERSIONS, 5, software(**believed))
    assert ErrorCode(response.error_code) is code
