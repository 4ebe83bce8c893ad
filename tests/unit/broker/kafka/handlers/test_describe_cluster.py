"""DescribeCluster: who is there, and who decides."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qbus.broker.metadata.image import BrokerInfo
from qbus.config import Address, ListenerInfo, SecurityProtocol
from qbus.errors import ErrorCode
from qbus.wire import API, ApiKey
from qbus.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tests.support.metadata_plane import MetadataPlane, metadata_plane

ALL_VERSIONS = range(3)
ON_CLUSTER, NOT_ASKED = 8096, -(2**31)


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[MetadataPlane]:
    async with metadata_plane(tmp_path, others=(BrokerInfo(2, "b2", 9093),)) as plane:
        yield plane


async def ask(
    plane: MetadataPlane, version: int, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    response = await plane.ask(ApiKey.DESCRIBE_CLUSTER, version, request)
    assert isinstance(response, DescribeClusterResponse)
    return response


async def test_brokers_are_where_the_clients_listener_has_them(tmp_path: Path) -> None:
    inside = ListenerInfo("INSIDE", SecurityProtocol.SASL_SSL, Address("10.0.0.2", 9094))
    async with metadata_plane(
        tmp_path, others=(BrokerInfo(2, "b2", 9093, listeners=(inside,)),)
    ) as plane:
        request = DescribeClusterRequest()
        response = await plane.ask(ApiKey.DESCRIBE_CLUSTER, 2, request, "INSIDE")
        assert [(one.broker_id, one.host, one.port) for one in response.brokers] == [
            (2, "10.0.0.2", 9094)
        ]


def test_serves_what_kafka_serves() -> None:
    api = API[ApiKey.DESCRIBE_CLUSTER]
    assert range(api.min_version, api.max_version + 1) == ALL_VERSIONS


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_tells_of_the_cluster(plane: MetadataPlane, version: int) -> None:
    assert await ask(plane, version, DescribeClusterRequest()) == DescribeClusterResponse(
        endpoint_type=1,
        cluster_id=plane.cluster_id,
        controller_id=1,
        brokers=[
            DescribeClusterBroker(broker_id=1, host="bus.example", port=9092, rack="rack-1"),
            DescribeClusterBroker(broker_id=2, host="b2", port=9093),
        ],
        cluster_authorized_operations=NOT_ASKED,
    )


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_tells_on_request_what_the_client_may_do(plane: MetadataPlane, version: int) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert (await ask(plane, version, request)).cluster_authorized_operations == ON_CLUSTER


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("endpoint_type", "expected"),
    [
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (-1, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
async def test_knows_of_brokers_only(
    plane: MetadataPlane, version: int, endpoint_type: int, expected: ErrorCode
) -> None:
    request = DescribeClusterRequest(endpoint_type=endpoint_type)
    response = await ask(plane, version, request)
    assert response.error_code == expected
    assert response.error_message
    assert response.brokers == []


async def test_fenced_brokers_are_none(plane: MetadataPlane) -> None:
    response = await ask(plane, 2, DescribeClusterRequest(include_fenced_brokers=True))
    assert [broker.is_fenced for broker in response.brokers] == [False, False]
