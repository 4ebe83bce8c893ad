"""The error message of a successful answer, which some clients compare."""

from collections.abc import Iterator

import pytest

from qbus.wire import ApiKey
from qbus.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from qbus.wire.messages.find_coordinator import FindCoordinatorRequest
from qbus.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.support.raw_client import RawClient

from .clients import Client

pytestmark = pytest.mark.compat


@pytest.fixture
def raw(bootstrap: str, reference: Client) -> Iterator[RawClient]:
    """Return a connection to the broker, whose group coordinator serves."""
    with RawClient(int(bootstrap.rpartition(":")[2])) as client:
        yield client


@pytest.mark.parametrize("version", [1, 2, 3])
def test_one_coordinator(raw: RawClient, version: int) -> None:
    answer = raw.ask(ApiKey.FIND_COORDINATOR, version, FindCoordinatorRequest(key="none"))
    assert (answer.error_code, answer.error_message) == (0, "NONE")


@pytest.mark.parametrize("version", [4, 5, 6])
def test_many_coordinators(raw: RawClient, version: int) -> None:
    request = FindCoordinatorRequest(coordinator_keys=["none"])
    (one,) = raw.ask(ApiKey.FIND_COORDINATOR, version, request).coordinators
    assert (one.error_code, one.error_message) == (0, "")


def test_alteration_of_reassignments(raw: RawClient) -> None:
    asked = AlterPartitionReassignmentsRequest()
    answer = raw.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, asked)
    assert (answer.error_code, answer.error_message) == (0, "")


def test_list_of_reassignments(raw: RawClient) -> None:
    asked = ListPartitionReassignmentsRequest()
    answer = raw.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, asked)
    assert (answer.error_code, answer.error_message) == (0, None)
