"""Heartbeat at every version."""

import pytest

from qbus.errors import ErrorCode
from qbus.wire.messages.heartbeat import HeartbeatRequest

from .group_broker import GroupBroker, versions


@pytest.mark.parametrize("version", versions("HEARTBEAT"))
async def test_tells_members_that_all_is_well_and_others_that_it_is_not(version: int) -> None:
    broker = GroupBroker()
    member_id = await broker.member()

    async def beat(**fields: object) -> int:
        request = HeartbeatRequest(**({"group_id": "g", "generation_id": 1} | fields))  # type: ignore[arg-type]
        response = await broker.ask(version, request)
        return int(response.error_code)

    assert await beat(member_id=member_id) == ErrorCode.NONE
    assert await beat(member_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert await beat(member_id=member_id, generation_id=2) == ErrorCode.ILLEGAL_GENERATION
    assert await beat(group_id="", member_id=member_id) == ErrorCode.INVALID_GROUP_ID
