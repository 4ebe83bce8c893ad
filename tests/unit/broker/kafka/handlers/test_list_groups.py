"""ListGroups at every version."""

import pytest

from qbus.errors import ErrorCode
from qbus.metadata import StoreUnavailable
from qbus.wire.messages.list_groups import ListGroupsRequest

from ...group.shell import at
from .group_broker import GroupBroker, versions


async def broker_with_groups() -> GroupBroker:
    broker = GroupBroker()
    await broker.member("members")
    await broker.commit("simple", "t", 0, at(1))
    return broker


async def names(broker: GroupBroker, version: int, **filters: list[str]) -> list[str]:
    response = await broker.ask(version, ListGroupsRequest(**filters))
    assert response.error_code == ErrorCode.NONE
    return sorted(group.group_id for group in response.groups)


@pytest.mark.parametrize("version", versions("LIST_GROUPS"))
async def test_lists_all_groups(version: int) -> None:
    broker = await broker_with_groups()

    response = await broker.ask(version, ListGroupsRequest())

    found = {
        group.group_id: (group.protocol_type, group.group_state, group.group_type)
        for group in response.groups
    }
    kind = "classic" if version >= 5 else ""
    assert found == {
        "members": ("consumer", "Stable" if version >= 4 else "", kind),
        "simple": ("", "Empty" if version >= 4 else "", kind),
    }


@pytest.mark.parametrize("version", versions("LIST_GROUPS"))
async def test_lists_what_is_stored_and_not_in_memory(version: int) -> None:
    broker = await broker_with_groups()
    broker.shell.restart()

    assert await names(broker, version) == ["members", "simple"]


@pytest.mark.parametrize("version", versions("LIST_GROUPS"))
async def test_is_to_be_tried_again_when_groups_cannot_be_read(version: int) -> None:
    broker = await broker_with_groups()
    broker.shell.restart()
    broker.shell.store.failures.append(StoreUnavailable("disk"))

    response = await broker.ask(version, ListGroupsRequest())

    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("version", [4, 5])
async def test_states_filter(version: int) -> None:
    broker = await broker_with_groups()

    assert await names(broker, version, states_filter=["STABLE"]) == ["members"]
    assert await names(broker, version, states_filter=["Empty", "stable"]) == ["members", "simple"]
    assert await names(broker, version, states_filter=["nonsense"]) == []


async def test_types_filter() -> None:
    broker = await broker_with_groups()

    assert await names(broker, 5, types_filter=["Classic"]) == ["members", "simple"]
    assert await names(broker, 5, types_filter=["consumer"]) == []


async def test_types_filter_share_groups() -> None:
    broker = await broker_with_groups()
    await broker.join_share_group("shared")

    assert await names(broker, 5, types_filter=["Share"]) == ["shared"]
    assert await names(broker, 5, types_filter=["classic"]) == ["members", "simple"]
    assert await names(broker, 5) == ["members", "shared", "simple"]
    assert await names(broker, 5, types_filter=["share"], states_filter=["empty"]) == []

    response = await broker.ask(5, ListGroupsRequest(types_filter=["share"]))
    (group,) = response.groups
    assert (group.protocol_type, group.group_state, group.group_type) == (
        "share",
        "Stable",
        "share",
    )
