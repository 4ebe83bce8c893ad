"""LeaveGroup at every version."""

import pytest

from qbus.errors import ErrorCode
from qbus.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity

from .group_broker import GroupBroker, versions

SINGLE = [version for version in versions("LEAVE_GROUP") if version < 3]
MANY = [version for version in versions("LEAVE_GROUP") if version >= 3]


@pytest.mark.parametrize("version", SINGLE)
async def test_one_member_leaves_and_its_error_is_the_responses(version: int) -> None:
    broker = GroupBroker()
    member_id = await broker.member()

    first = await broker.ask(version, LeaveGroupRequest(group_id="g", member_id=member_id))
    again = await broker.ask(version, LeaveGroupRequest(group_id="g", member_id=member_id))
    nameless = await broker.ask(version, LeaveGroupRequest(member_id=member_id))

    assert first.error_code == ErrorCode.NONE
    assert again.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", MANY)
async def test_many_leave_each_with_an_error_of_its_own(version: int) -> None:
    broker = GroupBroker()
    member_id = await broker.member(group_instance_id="one")
    members = [
        MemberIdentity(member_id="nobody"),
        MemberIdentity(member_id="", group_instance_id="one"),
        MemberIdentity(member_id=member_id, group_instance_id="one"),
    ]

    response = await broker.ask(version, LeaveGroupRequest(group_id="g", members=members))

    assert response.error_code == ErrorCode.NONE
    assert [(m.member_id, m.group_instance_id, m.error_code) for m in response.members] == [
        ("nobody", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "one", ErrorCode.NONE),
        (member_id, "one", ErrorCode.UNKNOWN_MEMBER_ID),
    ]


@pytest.mark.parametrize("version", MANY)
async def test_the_group_itself_may_be_wrong(version: int) -> None:
    broker = GroupBroker()

    nameless = await broker.ask(version, LeaveGroupRequest(members=[MemberIdentity()]))
    nobody = await broker.ask(version, LeaveGroupRequest(group_id="g"))

    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID
    assert nameless.members == []
    assert nobody.error_code == ErrorCode.NONE
