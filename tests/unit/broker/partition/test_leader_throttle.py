"""What throttled replicas get of their leader, and who is never held back."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.data_plane import NODE, DataPlane
from tests.support.following import OTHER, Follower, at, put, state
from tests.support.logs import batch

RATE = 1_000


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[DataPlane]:
    plane = DataPlane(tmp_path, leader_replication_throttled_rate=RATE)
    await plane.start()
    yield plane
    await plane.stop()


async def sizes(plane: DataPlane, isr: tuple[int, ...], throttled: str) -> list[int]:
    """How much a follower that asks three times gets each time, the last time 10 s later."""
    config = {"leader.replication.throttled.replicas": throttled}
    await put(plane, state(isr), qbus_durability="memory", **config)
    partition = plane.partition("orders")
    for _ in range(3):
        partition.append(batch(b"x" * 3 * RATE), 1)
    follower = Follower(plane)
    found: list[int] = []
    for offset in range(3):
        if offset == 2:
            plane.clock.advance(10)
        wanted = at(sum(map(bool, found)))
        wanted.partition_max_bytes = 1
        answer = await follower.fetch(wanted)
        found.append(len(answer[0].records) if 0 in answer else 0)
    return found


async def test_a_throttled_one_waits_until_there_is_some_again(plane: DataPlane) -> None:
    first, second, third = await sizes(plane, (NODE,), f"0:{NODE}")
    assert first > RATE
    assert second == 0
    assert third == first


@pytest.mark.parametrize("throttled", ["", f"1:{NODE}", f"0:{OTHER}"])
async def test_only_what_is_named_is_throttled(plane: DataPlane, throttled: str) -> None:
    assert all(await sizes(plane, (NODE,), throttled))


async def test_who_is_in_sync_is_never_held_back(plane: DataPlane) -> None:
    assert all(await sizes(plane, (NODE, OTHER), "*"))
