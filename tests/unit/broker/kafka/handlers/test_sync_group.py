"""SyncGroup at every version."""

from typing import Any

import pytest

from qbus.errors import ErrorCode
from qbus.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

from .group_broker import GroupBroker, versions


@pytest.mark.parametrize("version", versions("SYNC_GROUP"))
async def test_the_leader_hands_in_and_gets_its_part(version: int) -> None:
    broker = GroupBroker()
    joined = await broker.join()
    request = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"\0x")],
    )

    response = await broker.ask(version, request)

    assert response.error_code == ErrorCode.NONE
    assert response.assignment == b"\0x"
    assert response.protocol_name == ("range" if version >= 5 else None)
    assert response.protocol_type == ("consumer" if version >= 5 else None)


@pytest.mark.parametrize("version", versions("SYNC_GROUP"))
async def test_an_unknown_member_is_refused(version: int) -> None:
    request = SyncGroupRequest(
        group_id="g", member_id="a", protocol_type="consumer", protocol_name="range"
    )

    response = await GroupBroker().ask(version, request)

    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ({}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "consumer"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "range"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (
            {"protocol_type": "consumer", "protocol_name": "sticky"},
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ),
        ({"protocol_type": "consumer", "protocol_name": "range"}, ErrorCode.NONE),
    ],
)
async def test_version_5_must_tell_the_groups_protocol(
    told: dict[str, Any], error: ErrorCode
) -> None:
    broker = GroupBroker()
    joined = await broker.join()
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id=joined.member_id, **told)

    assert (await broker.ask(5, request)).error_code == error
