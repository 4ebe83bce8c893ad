"""Nothing is given out while what becomes of it could not be stored: it would be done in vain."""

import asyncio
from collections.abc import Callable

import pytest

from qbus.broker.metadata.image import PartitionInfo
from qbus.broker.queues import ShareQueue, gate
from qbus.broker.queues.taking import Offer
from qbus.errors import ApiError
from qbus.metadata import SessionState
from tests.support.data_plane import NODE
from tests.support.waiting import eventually

from .queues import World, accept, records, sent, take
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


class TestFullDisk:
    """Where no acknowledgement can be stored, nothing is given out: it would come again and again.

    As long as a full disk takes acknowledgements, jobs that are done may make room on it.
    """

    @pytest.mark.sources  # a constant is changed
    async def test_a_queue_that_could_not_store_something_gives_out_nothing(
        self, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO")
        monkeypatch.setattr(gate, "_RETRY_S", 0.02)
        await world.add(b"a", b"b")
        queue = world.queue()
        assert await take(queue, 1) == [b"a"]
        world.plane.disk.fill()
        with pytest.raises(ApiError, match="No space left"):
            await accept(queue, 0)
        for _ in range(5):
            assert await take(queue) == []
            assert sent(await queue.take_batches("m", max_records=9, max_bytes=1 << 20)) == []
            await asyncio.sleep(0.03)
        assert (queue.counts.taken, queue.length, queue.in_flight) == (1, 1, 1)
        (line,) = [text for text in caplog.messages if "nothing is given out" in text]
        assert str(queue) in line
        assert "No space left on device" in line
        assert ".log" in line, "where that is"
        world.plane.disk.empty()
        await accept(queue, 0)
        await asyncio.sleep(0.05)  # what it does every second meanwhile
        assert await take(queue) == [b"b"]
        assert "can be stored again" in caplog.text

    async def test_a_disk_that_is_known_to_be_full_is_tried_out_first(self, world: World) -> None:
        await world.add(b"a", b"b")
        queue = world.queue()
        await queue.started()
        world.plane.disk.fill()
        with pytest.raises(ApiError):
            await world.add(b"c")
        assert await take(queue) == []
        await asyncio.sleep(0)
        assert (queue.counts.taken, queue.length) == (0, 2)

    @pytest.mark.sources  # a constant is changed
    async def test_who_waits_is_called_as_soon_as_anything_can_be_stored(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(gate, "_RETRY_S", 0.02)
        log: list[str] = []
        await world.add(b"a")
        queue = world.queue()
        await queue.started()
        world.plane.disk.fill()
        with pytest.raises(ApiError):
            await world.add(b"b")
        Member(queue, "m", log)
        await asyncio.sleep(0.1)
        assert log == []
        world.plane.disk.empty()
        await eventually(lambda: log == ["m 0"])

    async def test_a_full_disk_that_takes_acknowledgements_holds_nothing_up(
        self, world: World
    ) -> None:
        await world.add(b"a", b"b")
        queue = world.queue()
        await queue.started()
        world.plane.disk.fill()
        with pytest.raises(ApiError):
            await world.add(b"c" * 1000)
        world.plane.disk.empty()  # by so little that the directory still counts as full
        assert world.partition.log.has_full_disk
        end = world.partition.log.log_end_offset
        assert await take(queue, 1) == [], "it is being tried out"
        await asyncio.sleep(0)
        assert await take(queue, 1) == [b"a"]
        await accept(queue, 0)
        assert await take(queue, 1) == [b"b"]
        assert world.partition.log.log_end_offset == end + 2, "tried out once, and acknowledged"

    async def test_what_is_tried_out_changes_nothing(self, world: World) -> None:
        await world.add(b"a", b"b", b"c")
        queue = world.queue()
        await accept_all(queue, 1)
        before = (world.progress().start, list(world.progress().done), queue.counts)
        world.plane.disk.fill()
        with pytest.raises(ApiError):
            await world.add(b"d")
        world.plane.disk.empty()
        assert await take(queue) == []
        await world.settled()
        assert (world.progress().start, list(world.progress().done), queue.counts) == before
        await world.restart()
        assert await take(world.queue()) == [b"b", b"c"]


async def accept_all(queue: ShareQueue, count: int) -> None:
    """Take so many records, and finish them."""
    for record in await records(queue, count):
        await accept(queue, record.offset)
