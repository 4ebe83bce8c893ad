"""Nothing is given out while what becomes of it could not be stored: it would be done in vain."""

import asyncio
from collections.abc import Callable

import pytest

from qbus.broker.metadata.image import PartitionInfo
from qbus.broker.queues.taking import Offer
from qbus.metadata import SessionState
from tests.support.data_plane import NODE
from tests.support.waiting import eventually

from .queues import World, accept, sent, take
from .test_waiting import Member

Lack = Callable[[World, bool], None]


def suspend(world: World, lacks: bool) -> None:
    """Let the broker lose the metadata store, or have it back."""
    world.plane.store.become(SessionState.SUSPENDED if lacks else SessionState.CONNECTED)


def leave(world: World, lacks: bool) -> None:
    """Let the only follower fall behind, or be in sync."""
    partition = world.partition
    partition.configure(durable=True, min_insync_replicas=2 if lacks else 1)
    epoch = partition.leader_epoch
    partition.lead(PartitionInfo(NODE, epoch, (NODE, NODE + 1), (NODE,)), 0.0)


@pytest.fixture(params=[suspend, leave], ids=["suspended session", "too few replicas"])
def lack(request: pytest.FixtureRequest) -> Lack:
    chosen: Lack = request.param
    return chosen


async def test_nothing_is_given_out_meanwhile(
    world: World, lack: Lack, caplog: pytest.LogCaptureFixture
) -> None:
    await world.add(b"a", b"b")
    queue = world.queue()
    assert await take(queue, 1) == [b"a"]
    lack(world, True)
    assert await take(queue) == []
    taken = queue.take_now(Offer("m", 5, 1 << 20))
    assert taken is not None
    assert taken.records == []
    assert sent(await queue.take_batches("m", max_records=9, max_bytes=1 << 20)) == []
    assert (queue.length, queue.in_flight) == (1, 1)
    (line,) = [text for text in caplog.messages if "nothing is given out" in text]
    assert "in-sync" in line or "still leads" in line
    lack(world, False)
    await accept(queue, 0)
    await asyncio.sleep(1.1)  # it looks again after a second
    taken_batches = await queue.take_batches("m", max_records=9, max_bytes=1 << 20)
    assert [(one.first_offset, one.last_offset) for one in taken_batches.acquired] == [(1, 1)]


async def test_who_waits_is_called_once_it_is_over(world: World, lack: Lack) -> None:
    log: list[str] = []
    await world.add(b"a")
    queue = world.queue()
    await queue.started()
    lack(world, True)
    Member(queue, "m", log)
    await asyncio.sleep(0.05)
    assert log == []
    assert queue.waiting == 1
    lack(world, False)
    await eventually(lambda: len(log) == 1)


async def test_an_empty_queue_says_nothing(
    world: World, lack: Lack, caplog: pytest.LogCaptureFixture
) -> None:
    queue = world.queue()
    await world.settled()
    lack(world, True)
    assert await take(queue) == []
    assert "nothing is given out" not in caplog.text
    lack(world, False)
    await world.add(b"a")
    assert await take(queue) == [b"a"], "at once"
