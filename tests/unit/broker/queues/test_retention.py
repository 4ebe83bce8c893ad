"""With ``qbus.queue.retention=acknowledged`` records stay until all groups are done with them."""

from pathlib import Path

import pytest

from .queues import World, accept, take

WEEK_S = 7 * 24 * 3600


async def fill(world: World) -> None:
    """Three segments with a record each, and one that is appended to."""
    for value in (b"a", b"b", b"c"):
        await world.add(value)
        world.partition.log.roll()


def remove_snapshots(directory: str) -> None:
    for snapshot in Path(directory).glob("*.control"):
        snapshot.unlink()


async def test_what_is_not_done_stays_however_old_it_is(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.start(qbus_queue_retention="acknowledged", retention_ms=1000)
    await fill(world)
    queue, other = world.queue(), world.queue("other")
    world.clock.advance(WEEK_S)
    log = world.partition.log
    await take(queue)
    assert log.apply_retention(world.partition.high_watermark) == 0
    await accept(queue, 0, 2)
    assert log.apply_retention(world.partition.high_watermark) == 0, "another one has not done it"
    await take(other)
    await accept(other, 0, 1)
    assert log.apply_retention(world.partition.high_watermark) == 2
    assert log.log_start_offset == 2
    await world.plane.stop()


async def test_what_all_have_done_goes_however_new_it_is(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.start(qbus_queue_retention="acknowledged")
    await fill(world)
    queue = world.queue()
    await take(queue)
    await accept(queue, 0)
    log = world.partition.log
    assert log.apply_retention(world.partition.high_watermark) == 1
    await accept(queue, 1, 2)
    assert log.apply_retention(world.partition.high_watermark) == 2
    assert log.apply_retention(world.partition.high_watermark) == 0
    await world.restart()
    assert await take(world.queue()) == []
    await world.plane.stop()


async def test_what_may_be_cut_off_is_not_done(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.start(qbus_queue_retention="acknowledged")
    await fill(world)
    queue = world.queue()
    await take(queue)
    await world.settled()
    log, before = world.partition.log, world.partition.high_watermark
    await accept(queue, 0, 2)
    assert log.apply_retention(before) == 0, "the acknowledgement is not below the high watermark"
    end = world.partition.high_watermark
    await world.add(b"d")
    assert log.apply_retention(end) == 3, "what was known when the log ended there"
    await world.plane.stop()


async def test_as_long_as_no_group_is_known_time_decides(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.start(qbus_queue_retention="acknowledged", retention_ms=1000)
    await fill(world)
    world.clock.advance(1)
    assert world.partition.log.apply_retention(world.partition.high_watermark) == 0
    world.clock.advance(WEEK_S)
    assert world.partition.log.apply_retention(world.partition.high_watermark) == 3
    await world.plane.stop()


async def idle_for_an_hour(tmp_path: Path, **config: object) -> World:
    """Three segments that one group has done, and another one has left alone for an hour."""
    world = World(tmp_path)
    await world.start(qbus_queue_retention="acknowledged", **config)
    await fill(world)
    queue, other = world.queue(), world.queue("other")
    await take(other, 1)
    await take(queue)
    await accept(queue, 0, 2)
    world.clock.advance(3600)
    await take(queue)
    return world


async def test_what_an_idle_group_keeps_is_given_up(tmp_path: Path) -> None:
    world = await idle_for_an_hour(tmp_path, qbus_queue_group_idle_ms=1_800_000)
    log = world.partition.log
    assert log.apply_retention(world.partition.high_watermark) == 0
    world.plane.queues.give_up_idle()
    await world.settled()
    assert log.apply_retention(world.partition.high_watermark) == 3
    await world.add(b"new")
    assert await take(world.queue("other")) == [b"new"], "it is still known"
    await world.plane.stop()


async def test_so_is_what_one_keeps_that_nobody_used_since_a_restart(tmp_path: Path) -> None:
    world = await idle_for_an_hour(tmp_path, qbus_queue_group_idle_ms=1_800_000)
    await world.restart()
    world.plane.queues.give_up_idle()
    await world.settled()
    log = world.partition.log
    assert world.progress("other").start == 0, "its time begins anew with the broker's"
    world.clock.advance(3600)
    world.plane.queues.give_up_idle()
    await world.settled()
    assert log.apply_retention(world.partition.high_watermark) == 3
    await world.plane.stop()


async def test_a_group_whose_members_wait_is_not_idle(tmp_path: Path) -> None:
    world = await idle_for_an_hour(tmp_path, qbus_queue_group_idle_ms=1_800_000)
    await world.restart()
    world.clock.advance(3600)
    await take(world.queue("other"), 1)
    world.plane.queues.give_up_idle()
    await world.settled()
    assert world.partition.log.apply_retention(world.partition.high_watermark) == 0
    await world.plane.stop()


async def test_by_default_an_idle_group_keeps_all_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = await idle_for_an_hour(tmp_path)
    world.clock.advance(24 * 3600)
    for _ in range(3):
        world.plane.queues.give_up_idle()
    await world.settled()
    assert world.partition.log.apply_retention(world.partition.high_watermark) == 0
    (line,) = [one for one in caplog.messages if "has taken nothing" in one]
    assert "share group other has taken nothing for 25 h, and keeps up to" in line
    await world.plane.stop()


async def test_a_group_is_mentioned_before_what_mentioned_it_goes(tmp_path: Path) -> None:
    """However seldom groups are mentioned: a new replica always finds them in what is left."""
    world = World(tmp_path)
    await world.start(retention_ms=1000)
    queue = world.queue()
    await world.add(b"untouched")
    await take(queue)
    log = world.partition.log
    mentioned_at = world.progress().mentioned_at
    for value in (b"more", b"and more"):
        log.roll()
        await world.add(value)
    await world.settled()
    world.clock.advance(2)
    log.apply_retention(world.partition.high_watermark)
    assert log.first_segment_offset <= mentioned_at
    world.plane.queues.mention()
    await world.settled()
    assert world.progress().start == 0, "nothing is done by that"
    assert world.progress().mentioned_at > mentioned_at
    assert log.apply_retention(world.partition.high_watermark) == 2
    await world.plane.stop()
    remove_snapshots(log.directory)
    await world.plane.start()
    assert world.plane.queues.groups(world.partition) == ["workers"]
    await world.plane.stop()


async def test_otherwise_time_decides_whatever_is_done(world: World) -> None:
    await fill(world)
    queue = world.queue()
    await take(queue, 1)
    await accept(queue, 0)
    log = world.partition.log
    assert log.apply_retention(world.partition.high_watermark) == 0
    world.clock.advance(WEEK_S + 1)
    assert log.apply_retention(world.partition.high_watermark) > 1
    assert await take(queue) == []


async def test_a_group_whose_snapshot_is_older_than_the_log_is_known(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.start(retention_ms=1000)
    await world.add(b"old")
    queue = world.queue()
    await take(queue)
    await accept(queue, 0)
    await world.restart()
    log = world.partition.log
    for value in (b"gone", b"new"):
        log.roll()
        await world.add(value)
    log.delete_records_before(log.log_end_offset - 1)
    world.clock.advance(2)
    assert log.apply_retention(log.log_end_offset - 1) == 0, "where the group is mentioned"
    world.plane.queues.mention()
    await world.settled()
    assert log.apply_retention(log.log_end_offset - 1) == 2
    await world.plane.stop()
    await world.plane.start()
    assert await take(world.queue(auto_offset_reset="latest")) == [b"new"]
    await world.plane.stop()


async def test_a_replica_that_begins_with_what_is_left_knows_the_group(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.start(retention_ms=1000)
    queue = world.queue()
    await world.add(b"done")
    await take(queue)
    await accept(queue, 1)
    world.partition.log.roll()
    await world.add(b"new")
    await world.settled()
    world.plane.queues.mention()
    await world.settled()
    world.clock.advance(2)
    log = world.partition.log
    log.delete_records_before(3)
    log.apply_retention(3)
    assert log.first_segment_offset == 3
    await world.plane.stop()
    remove_snapshots(log.directory)
    await world.plane.start()
    assert world.plane.queues.groups(world.partition) == ["workers"]
    latest = world.queue(auto_offset_reset="latest")
    assert await take(latest) == [b"new"]
    await world.plane.stop()
