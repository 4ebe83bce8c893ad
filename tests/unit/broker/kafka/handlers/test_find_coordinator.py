"""FindCoordinator at every version."""

import pytest

from qbus.broker.group.ownership import coordinator_of
from qbus.broker.metadata.image import BrokerInfo
from qbus.config import Address, ListenerInfo, SecurityProtocol
from qbus.errors import ErrorCode
from qbus.wire.messages.find_coordinator import FindCoordinatorRequest

from .group_broker import NODE, GroupBroker, versions

GROUP, SHARE = 0, 2
SINGLE = [version for version in versions("FIND_COORDINATOR") if version < 4]
MANY = [version for version in versions("FIND_COORDINATOR") if version >= 4]


@pytest.mark.parametrize("version", SINGLE)
async def test_the_only_broker_coordinates_a_group(version: int) -> None:
    response = await GroupBroker().ask(version, FindCoordinatorRequest(key="g"))

    assert response.error_code == ErrorCode.NONE
    assert (response.node_id, response.host, response.port) == (NODE.id, NODE.host, NODE.port)
    assert response.error_message == ("NONE" if version else "")


@pytest.mark.parametrize("version", MANY)
async def test_the_only_broker_coordinates_all_groups(version: int) -> None:
    request = FindCoordinatorRequest(coordinator_keys=["g", "", "ü/.."])

    response = await GroupBroker().ask(version, request)

    assert [(c.key, c.node_id, c.host, c.port, c.error_code) for c in response.coordinators] == [
        (key, NODE.id, NODE.host, NODE.port, ErrorCode.NONE) for key in ("g", "", "ü/..")
    ]


@pytest.mark.parametrize("version", [v for v in versions("FIND_COORDINATOR") if v >= 1])
@pytest.mark.parametrize(
    ("key_type", "error"),
    [
        (SHARE, ErrorCode.INVALID_REQUEST),
        (99, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_other_coordinators_there_are_none(
    version: int, key_type: int, error: ErrorCode
) -> None:
    request = FindCoordinatorRequest(key_type=key_type)
    if version >= 4:
        request.coordinator_keys = ["x"]
    else:
        request.key = "x"

    response = await GroupBroker().ask(version, request)

    answer = response.coordinators[0] if version >= 4 else response
    assert answer.error_code == error
    assert not ErrorCode(answer.error_code).retriable
    assert (answer.node_id, answer.host, answer.port) == (-1, "", -1)


async def test_a_broker_that_does_not_know_itself_yet_is_to_be_asked_again() -> None:
    broker = GroupBroker()
    broker.brokers.clear()

    response = await broker.ask(0, FindCoordinatorRequest(key="g"))

    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_coordinator_that_the_client_cannot_reach_is_none() -> None:
    broker = GroupBroker()
    inside = ListenerInfo("INSIDE", SecurityProtocol.SASL_SSL, Address("broker.example", 9094))
    broker.brokers[7] = BrokerInfo(7, "broker.example", 9094, listeners=(inside,))

    response = await broker.ask(0, FindCoordinatorRequest(key="g"))

    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_each_group_has_the_coordinator_that_its_name_says() -> None:
    broker = GroupBroker()
    broker.brokers[8] = BrokerInfo(8, "other.example", 9093)
    keys = [f"group-{number}" for number in range(20)]

    response = await broker.ask(6, FindCoordinatorRequest(coordinator_keys=keys))

    found = {(c.node_id, c.host, c.port) for c in response.coordinators}
    assert found == {(7, "broker.example", 9092), (8, "other.example", 9093)}
    for coordinator in response.coordinators:
        single = await broker.ask(3, FindCoordinatorRequest(key=coordinator.key))
        assert single.node_id == coordinator.node_id == coordinator_of(coordinator.key, [8, 7])
