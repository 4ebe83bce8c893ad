"""Where a group goes on reading."""

from typing import Any, cast

import pytest

from qbus.cli.failures import Failure, Misuse
from qbus.cli.group.reset import apply_reset, plan_reset
from qbus.cli.parameters import Position
from qbus.clients.types import MemberDescription, TopicPartition
from tests.unit.cli.fakes import FakeAdmin

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.fixture
def admin() -> FakeAdmin:
    admin = FakeAdmin()
    admin.add_topic("a", (10, 100), (0, 50))
    admin.add_topic("b", (0, 5))
    admin.groups["g"] = {A0: 60, B0: 5}
    return admin


async def plan(
    admin: FakeAdmin, *topics: str, to: Position | None = None, shift_by: int | None = None
) -> dict[tuple[str, int], tuple[int | None, int]]:
    changes = await plan_reset(cast("Any", admin), "g", topics, to, shift_by)
    return {(c["topic"], c["partition"]): (c["from"], c["to"]) for c in changes}


async def test_without_topics_it_is_what_the_group_has_read(admin: FakeAdmin) -> None:
    assert await plan(admin, to=Position("earliest")) == {A0: (60, 10), B0: (5, 0)}
    assert await plan(admin, to=Position("latest")) == {A0: (60, 100), B0: (5, 5)}


async def test_a_topic_is_all_its_partitions(admin: FakeAdmin) -> None:
    assert await plan(admin, "a", to=Position("latest")) == {A0: (60, 100), A1: (None, 50)}


async def test_some_partitions_of_a_topic(admin: FakeAdmin) -> None:
    assert await plan(admin, "a:1", "b:0", to=Position("earliest")) == {A1: (None, 0), B0: (5, 0)}


async def test_an_offset_is_kept_within_the_log(admin: FakeAdmin) -> None:
    assert await plan(admin, "a", to=Position("offset", 70)) == {A0: (60, 70), A1: (None, 50)}
    assert await plan(admin, "a:0", to=Position("offset", 3)) == {A0: (60, 10)}


async def test_a_time_is_the_first_record_from_then_on(admin: FakeAdmin) -> None:
    admin.times[1000] = 42
    assert await plan(admin, "a:0", to=Position("time", 1000)) == {A0: (60, 42)}


async def test_a_time_after_the_last_record_is_the_end(admin: FakeAdmin) -> None:
    assert await plan(admin, "a:0", to=Position("time", 9999)) == {A0: (60, 100)}


async def test_shifting_is_kept_within_the_log(admin: FakeAdmin) -> None:
    assert await plan(admin, shift_by=-20) == {A0: (60, 40), B0: (5, 0)}
    assert await plan(admin, shift_by=1000) == {A0: (60, 100), B0: (5, 5)}


async def test_uncommitted_partitions_cannot_be_shifted(admin: FakeAdmin) -> None:
    with pytest.raises(Failure, match="nothing is committed for a-1"):
        await plan(admin, "a", shift_by=1)


async def test_a_group_that_has_read_nothing_needs_a_topic(admin: FakeAdmin) -> None:
    admin.groups["g"] = {}
    with pytest.raises(Failure, match="name a --topic"):
        await plan(admin, to=Position("earliest"))


async def test_a_partition_that_does_not_exist(admin: FakeAdmin) -> None:
    with pytest.raises(Failure, match="topic a has no partition 7"):
        await plan(admin, "a:0,7", to=Position("earliest"))


@pytest.mark.parametrize("text", ["a:", "a:x", "a:0,", "a:-1", "a:0:1"])
async def test_invalid_choices_of_partitions(admin: FakeAdmin, text: str) -> None:
    with pytest.raises(Misuse, match="TOPIC or TOPIC:0,2"):
        await plan(admin, text, to=Position("earliest"))


async def test_applying_commits_the_plan(admin: FakeAdmin) -> None:
    changes = await plan_reset(cast("Any", admin), "g", ["a"], Position("earliest"), None)
    await apply_reset(cast("Any", admin), "g", changes)
    assert admin.groups["g"] == {A0: 10, A1: 0, B0: 5}


async def test_a_new_group_can_be_given_offsets(admin: FakeAdmin) -> None:
    changes = await plan_reset(cast("Any", admin), "new", ["b"], Position("latest"), None)
    await apply_reset(cast("Any", admin), "new", changes)
    assert admin.groups["new"] == {B0: 5}


async def test_a_group_with_members_is_left_alone(admin: FakeAdmin) -> None:
    admin.members["g"] = [MemberDescription("m", None, "c", "h", ())]
    changes = await plan_reset(cast("Any", admin), "g", [], Position("earliest"), None)
    with pytest.raises(Failure, match=r"group g has members \(1\): stop them first"):
        await apply_reset(cast("Any", admin), "g", changes)
    assert admin.groups["g"] == {A0: 60, B0: 5}
