"""JoinGroup at every version."""

import pytest

from qbus.broker.group import Group
from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.heartbeat import HeartbeatRequest

from .group_broker import GroupBroker, join_request, versions


@pytest.mark.parametrize("version", versions("JOIN_GROUP"))
async def test_a_lone_member_leads_the_first_generation(version: int) -> None:
    broker = GroupBroker()

    response = await broker.join(version)

    assert response.error_code == ErrorCode.NONE
    assert response.generation_id == 1
    assert response.protocol_type == ("consumer" if version >= 7 else None)
    assert response.protocol_name == "range"
    assert response.member_id == response.leader
    assert response.member_id.startswith("client-")
    assert [(m.member_id, m.metadata) for m in response.members] == [
        (response.member_id, b"topics")
    ]
    assert not response.skip_assignment


@pytest.mark.parametrize("version", versions("JOIN_GROUP"))
async def test_members_without_an_id_are_sent_back_from_version_4_on(version: int) -> None:
    broker = GroupBroker()

    request = await broker.shell.soon(broker.send(version, join_request()))

    if version < 4:
        assert not request.done()
        await broker.shell.timers.advance(3)
        assert (await request).error_code == ErrorCode.NONE
    else:
        assert (await request).error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert (await request).member_id.startswith("client-")


@pytest.mark.parametrize("version", versions("JOIN_GROUP"))
async def test_an_error_can_be_told_at_every_version(version: int) -> None:
    broker = GroupBroker()

    unknown = await broker.ask(version, join_request(member_id="nobody"))
    nameless = await broker.ask(version, join_request(group_id=""))

    assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert unknown.member_id == "nobody"
    assert unknown.protocol_name == (None if version >= 7 else "")
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize(("version", "rebalance_ms"), [(0, 5), (1, -1), (9, -1)])
async def test_without_a_rebalance_timeout_the_sessions_is_taken(
    version: int, rebalance_ms: int
) -> None:
    broker = GroupBroker()

    await broker.join(version, session_timeout_ms=12_345, rebalance_timeout_ms=rebalance_ms)

    group = await broker.shell.groups.describe("g")
    assert isinstance(group, Group)
    assert [member.rebalance_timeout_ms for member in group.members] == [12_345]


@pytest.mark.parametrize(
    ("version", "is_spared"), [(v, v >= 9) for v in versions("JOIN_GROUP") if v >= 5]
)
async def test_a_static_leader_that_comes_back_need_not_assign(
    version: int, is_spared: bool
) -> None:
    broker = GroupBroker()
    old = await broker.member(group_instance_id="one")

    response = await broker.ask(version, join_request(group_instance_id="one"))

    assert response.generation_id == 1
    assert response.member_id.startswith("one-")
    assert response.skip_assignment == is_spared
    assert response.leader == (response.member_id if is_spared else old)
    heartbeat = HeartbeatRequest(
        group_id="g", generation_id=1, member_id=old, group_instance_id="one"
    )
    assert (await broker.ask(4, heartbeat)).error_code == ErrorCode.FENCED_INSTANCE_ID


async def test_a_client_without_a_name_gets_an_id_all_the_same() -> None:
    broker = GroupBroker()

    first = await broker.ask(9, join_request())
    second = await broker.ask(9, join_request())

    assert first.member_id != second.member_id


async def test_a_share_group_is_joined_otherwise() -> None:
    broker = GroupBroker()
    await broker.join_share_group("g")

    with pytest.raises(ApiError) as refused:
        await broker.send(9, join_request())

    assert refused.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_a_consumer_group_is_no_share_group() -> None:
    broker = GroupBroker()
    await broker.member("g")

    with pytest.raises(ApiError) as refused:
        await broker.join_share_group("g")

    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
