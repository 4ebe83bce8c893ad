"""Groups some of whose partitions cannot be read: their commits are shown, and what is missing."""

from typing import Any

import pytest

from qbus.cli.group.describing import describe_groups, incomplete
from qbus.clients.types import TopicPartition
from qbus.errors import ApiError, ErrorCode
from tests.unit.cli.fakes import FakeAdmin

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
NO_LEADER = "t-1 has no leader now: offline on broker 2"


@pytest.fixture
def admin() -> Any:
    admin = FakeAdmin()
    admin.add_topic("t", (0, 9), (0, 9))
    admin.groups["g"] = {FIRST: 4, SECOND: 5}
    return admin


async def test_all_can_be_read(admin: Any) -> None:
    documents = await describe_groups(admin, ["g"])
    assert [offset["lag"] for offset in documents[0]["offsets"]] == [5, 4]
    assert incomplete(documents) == ""


async def test_one_partition_cannot_be_read(admin: Any) -> None:
    admin.ranges[SECOND] = (-1, -1)
    admin.problems[SECOND] = NO_LEADER
    documents = await describe_groups(admin, ["g"])
    offsets = documents[0]["offsets"]
    assert [(one["committed"], one["lag"]) for one in offsets] == [(4, 5), (5, None)]
    assert incomplete(documents) == f"t-1: {NO_LEADER}"


async def test_no_partition_can_be_read(admin: Any) -> None:
    admin.unread = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no disk")
    documents = await describe_groups(admin, ["g"])
    assert [(one["committed"], one["lag"]) for one in documents[0]["offsets"]] == [
        (4, None),
        (5, None),
    ]
    assert incomplete(documents) == "t-0: no disk (KAFKA_STORAGE_ERROR) (and 1 more)"


async def test_a_deleted_topic_leaves_nothing_unknown(admin: Any) -> None:
    admin.ranges[SECOND] = (-1, -1)
    assert incomplete(await describe_groups(admin, ["g"])) == ""
