"""DeleteGroups at every version."""

import pytest

from qbus.errors import ErrorCode
from qbus.metadata import StoreUnavailable
from qbus.wire.messages.delete_groups import DeleteGroupsRequest

from ...group.shell import at
from .group_broker import GroupBroker, versions


@pytest.mark.parametrize("version", versions("DELETE_GROUPS"))
async def test_each_group_has_an_answer(version: int) -> None:
    broker = GroupBroker()
    await broker.member("members")
    await broker.commit("simple", "t", 0, at(1))
    await broker.commit("", "t", 0, at(1))

    request = DeleteGroupsRequest(groups_names=["members", "simple", "nobody", "simple", ""])
    response = await broker.ask(version, request)

    assert {result.group_id: result.error_code for result in response.results} == {
        "members": ErrorCode.NON_EMPTY_GROUP,
        "simple": ErrorCode.NONE,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
        "": ErrorCode.NONE,
    }
    assert await broker.shell.groups.describe("simple") is None


@pytest.mark.parametrize("version", versions("DELETE_GROUPS"))
async def test_a_failure_is_told(version: int) -> None:
    broker = GroupBroker()
    await broker.commit("g", "t", 0, at(1))
    broker.shell.store.failures.append(StoreUnavailable("disk"))

    response = await broker.ask(version, DeleteGroupsRequest(groups_names=["g"]))

    (result,) = response.results
    assert result.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
