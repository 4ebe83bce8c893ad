"""DescribeGroups at every version."""

import pytest

from qbus.errors import ErrorCode
from qbus.metadata import StoreUnavailable
from qbus.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest

from ...group.shell import at
from .group_broker import GroupBroker, versions

NOT_ASKED = -(2**31)


async def describe(
    broker: GroupBroker, version: int, group_id: str = "g", **fields: bool
) -> DescribedGroup:
    response = await broker.ask(version, DescribeGroupsRequest(groups=[group_id], **fields))
    (group,) = response.groups
    assert group.group_id == group_id
    assert isinstance(group, DescribedGroup)
    return group


@pytest.mark.parametrize("version", versions("DESCRIBE_GROUPS"))
class TestAtEveryVersion:
    async def test_tells_all_of_a_stable_group(self, version: int) -> None:
        broker = GroupBroker()
        member_id = await broker.member(group_instance_id="one")

        group = await describe(broker, version)

        assert group.error_code == ErrorCode.NONE
        assert group.group_state == "Stable"
        assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
        (member,) = group.members
        assert member.member_id == member_id
        assert member.group_instance_id == ("one" if version >= 4 else None)
        assert (member.client_id, member.client_host) == ("client", "10.0.0.1")
        assert (member.member_metadata, member.member_assignment) == (b"topics", b"all")
        assert group.authorized_operations == NOT_ASKED

    async def test_tells_less_of_a_group_in_a_rebalance(self, version: int) -> None:
        broker = GroupBroker()
        await broker.join()

        group = await describe(broker, version)

        assert group.group_state == "CompletingRebalance"
        assert (group.protocol_type, group.protocol_data) == ("consumer", "")
        assert [(m.member_metadata, m.member_assignment) for m in group.members] == [(b"", b"")]

    async def test_tells_of_a_group_that_only_commits(self, version: int) -> None:
        broker = GroupBroker()
        await broker.commit("g", "t", 0, at(1))

        group = await describe(broker, version)

        assert (group.group_state, group.protocol_type, group.members) == ("Empty", "", [])

    async def test_an_unknown_group_is_dead(self, version: int) -> None:
        group = await describe(GroupBroker(), version, "nobody")

        assert group.group_state == "Dead"
        expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
        assert group.error_code == expected
        assert group.error_message == ("Group nobody not found." if version >= 6 else None)

    async def test_that_cannot_be_read_is_to_be_tried_again(self, version: int) -> None:
        broker = GroupBroker()
        broker.shell.store.failures.append(StoreUnavailable("disk"))

        group = await describe(broker, version)

        assert group.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("version", [v for v in versions("DESCRIBE_GROUPS") if v >= 3])
async def test_tells_on_request_what_may_be_done(version: int) -> None:
    broker = GroupBroker()
    await broker.member()

    group = await describe(broker, version, include_authorized_operations=True)
    unknown = await describe(broker, version, "nobody", include_authorized_operations=True)

    read, delete, describing, configs = 1 << 3, 1 << 6, 1 << 8, 1 << 10 | 1 << 11
    assert group.authorized_operations == read | delete | describing | configs
    assert unknown.authorized_operations == (NOT_ASKED if version >= 6 else 3400)
