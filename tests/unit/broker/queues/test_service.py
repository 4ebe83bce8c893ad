"""Where groups begin, what is said of them, and how they end."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qbus.broker.queues import GroupSettings, QueueCounts, QueueDescription
from qbus.broker.queues.service import duration_ms
from qbus.errors import ApiError, ErrorCode
from tests.support.waiting import eventually

from .queues import GROUP, SETTINGS, World, accept, end, in_transaction, records, release, take


async def test_a_new_group_begins_at_the_end(world: World) -> None:
    await world.add(b"before")
    queue = world.queue(settings=GroupSettings())
    await world.add(b"after")
    assert await take(queue) == [b"after"]


async def test_or_at_the_beginning(world: World) -> None:
    await world.add(b"a", b"b")
    world.partition.delete_records_before(1)
    assert await take(world.queue()) == [b"b"]


async def test_or_some_time_ago(world: World) -> None:
    await world.add(b"old")
    world.clock.advance(3600)
    await world.add(b"new")
    world.clock.advance(60)
    assert await take(world.queue(auto_offset_reset="by_duration:PT30M")) == [b"new"]
    late = world.queue("late", auto_offset_reset="by_duration:PT10S")
    assert (late.length, late.in_flight, late.delayed, late.oldest_ms) == (0, 0, 0, -1)
    assert await take(late) == []


@pytest.mark.parametrize(
    ("text", "ms"),
    [("PT1H", 3_600_000), ("P1DT1M", 86_460_000), ("PT1.5S", 1_500), ("P2D", 172_800_000)],
)
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "PT1X", "P1DT", "P1M"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        duration_ms(text)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("reset", ["none", "by_duration:"])
async def test_or_nowhere(world: World, reset: str) -> None:
    with pytest.raises(ApiError) as caught:
        await take(world.queue(auto_offset_reset=reset))
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert world.plane.queues.groups(world.partition) == []


async def test_a_group_keeps_its_place_whatever_its_settings_say_later(world: World) -> None:
    queue = world.queue()
    await world.add(b"a")
    await world.restart()
    await world.add(b"b")
    queue = world.queue(settings=GroupSettings(auto_offset_reset="latest"))
    assert await take(queue) == [b"a", b"b"]


async def test_settings_hold_from_when_they_are_said(world: World) -> None:
    await world.add(b"a", b"b")
    queue = world.queue()
    await take(queue, 1)
    same = world.queue(lock_ms=60_000, partition_max_locks=2)
    assert same is queue
    await take(queue, 1)
    await world.pass_time(queue, 31)
    assert queue.length == 1, "the lock that was given with the former settings"
    assert queue.in_flight == 1


async def test_what_is_said_of_a_queue(world: World) -> None:
    service = world.plane.queues
    await world.add(b"a", b"b", b"c", b"d")
    assert service.describe(world.partition, GROUP) is None
    queue = world.queue()
    world.clock.advance(5)
    await take(queue, 2)
    await accept(queue, 0)
    await release(queue, 1, delay_ms=1000)
    assert service.describe(world.partition, GROUP) == QueueDescription(
        1, 2, 0, 1, 5000, QueueCounts(taken=2, acknowledged=1, released=1)
    )
    assert service.groups(world.partition) == [GROUP]
    await world.restart()
    described = world.plane.queues.describe(world.partition, GROUP)
    assert described == QueueDescription(1, 3, 0, 0, -1, QueueCounts())


async def test_the_length_is_exact_whatever_lies_between(world: World) -> None:
    queue = world.queue()
    added = 0
    for number in range(20):
        await world.add(*[b"x"] * (number % 3 + 1))
        added += number % 3 + 1
        if number % 2:
            taken = await records(queue, 1)
            await accept(queue, taken[0].offset)
            added -= 1
        assert queue.length == added
    await queue.settle(world.partition.log.log_end_offset - 2)
    length = queue.length
    await world.restart()
    assert world.queue().length == length
    assert len(await records(world.queue(), 1000)) == length


async def test_the_length_costs_little_however_many_are_done_here_and_there(
    world: World,
) -> None:
    for _ in range(3):
        await world.add(*[b"x"] * 1000)
    queue = world.queue()
    for offset in range(0, 3000, 4):
        await queue.settle(offset)
    assert queue.length == 2250
    assert len(await records(queue, 100)) == 100
    assert queue.length == 2150
    await world.restart()
    assert world.queue().length == 2250


async def test_the_age_of_the_oldest_that_is_not_done(world: World) -> None:
    queue = world.queue()
    assert queue.oldest_ms == -1
    await world.add(b"a")
    world.clock.advance(2)
    await world.add(b"b")
    world.clock.advance(3)
    assert queue.oldest_ms == 5000
    await take(queue)
    assert queue.oldest_ms == 5000
    await accept(queue, 1)
    assert queue.oldest_ms == 3000
    await accept(queue, 2)
    assert queue.oldest_ms == -1


async def test_a_group_can_begin_elsewhere(world: World) -> None:
    await world.add(b"a", b"b", b"c")
    queue = world.queue()
    await take(queue)
    await accept(queue, 0, 1)
    service = world.plane.queues
    await service.set_start(world.partition, GROUP, 1)
    assert (queue.start_offset, queue.in_flight) == (1, 0)
    with pytest.raises(ApiError) as caught:
        await accept(queue, 2)
    assert caught.value.code is ErrorCode.INVALID_RECORD_STATE
    assert await take(queue) == [b"b", b"c"]
    await service.set_start(world.partition, "new", 2)
    assert await take(world.queue("new")) == [b"c"]
    for offset in (-1, 1000):
        with pytest.raises(ApiError) as caught:
            await service.set_start(world.partition, GROUP, offset)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert queue.counts.taken == 5, "what was done before counts"


async def test_a_group_is_forgotten(world: World) -> None:
    await world.add(b"a")
    queue = world.queue()
    await take(queue)
    service = world.plane.queues
    await service.delete(world.partition, GROUP)
    await service.delete(world.partition, "unknown")
    assert service.groups(world.partition) == []
    with pytest.raises(ApiError) as caught:
        await accept(queue, 0)
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    await world.restart()
    assert world.plane.queues.groups(world.partition) == []
    assert await take(world.queue()) == [b"a"]


@pytest.mark.sources
async def test_the_number_of_groups_is_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbus.broker.queues.service.MOST_GROUPS", 2)
    world.queue("a")
    world.queue("b")
    world.queue("a")
    with pytest.raises(ApiError) as caught:
        world.queue("c")
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


async def test_who_does_not_lead_has_no_queue(world: World) -> None:
    queue = world.queue()
    partition = world.partition
    partition.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(ApiError) as caught:
        await take(queue)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(ApiError):
        world.plane.queues.queue(partition, GROUP, SETTINGS)
    assert list(world.plane.queues) == []


async def test_the_copy_of_another_cluster_has_no_queue(world: World) -> None:
    partition = await world.plane.create("copy", **{"qbus.mirror.source": "dc1"})  # type: ignore[arg-type]
    with pytest.raises(ApiError) as caught:
        world.plane.queues.queue(partition, GROUP, SETTINGS)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


async def test_of_what_a_mirror_has_copied_what_is_committed_may_be_asked_for(
    world: World,
) -> None:
    settings = replace(SETTINGS, isolation="read_committed")
    config: Any = {"qbus.mirror.former.source": "dc1"}
    partition = await world.plane.create("copied", **config)
    queue = world.plane.queues.queue(partition, GROUP, settings)
    assert await take(queue) == []


async def test_records_of_transactions_wait_until_these_are_committed(world: World) -> None:
    committed = world.queue(isolation="read_committed")
    others = world.queue("others")
    await world.add(b"plain")
    await in_transaction(world, b"one", 1)
    await in_transaction(world, b"two", 2)
    await world.add(b"behind")
    assert await take(others) == [b"plain", b"one", b"two", b"behind"]
    (plain,) = await records(committed)
    assert (plain.value, committed.length) == (b"plain", 0)
    await end(world, 2, committed=False)
    assert await take(committed) == []
    await end(world, 1, committed=True)
    one, behind = await records(committed)
    assert (one.value, behind.value) == (b"one", b"behind")
    for record in (plain, one, behind):
        await accept(committed, record.offset)
    await world.settled()
    assert world.progress().start > behind.offset


async def test_another_isolation_counts_from_now_on(world: World) -> None:
    queue = world.queue(isolation="read_committed")
    await in_transaction(world, b"open", 1)
    assert await take(queue) == []
    world.queue(isolation="read_uncommitted")
    assert await take(queue) == [b"open"]


async def test_single_records_whoever_has_them(world: World) -> None:
    await world.add(*[b"%d" % number for number in range(6)])
    queue = world.queue()
    await take(queue, 3)
    assert await queue.settle(0)
    assert not await queue.settle(0)
    assert await queue.settle(5)
    assert await queue.put_back(1, nack=True)
    assert not await queue.put_back(1, nack=True)
    assert not await queue.put_back(3, nack=False)
    assert await queue.put_back(2, nack=False, delay_ms=5000)
    assert await queue.hold(3)
    assert not await queue.hold(3)
    states = [queue.state_of(offset) for offset in range(6)]
    assert [(s.status.value, s.deliveries, s.nacks, s.timeouts) for s in states] == [
        ("acked", 0, 0, 0),
        ("queued", 1, 1, 0),
        ("active", 1, 0, 1),
        ("active", 0, 0, 0),
        ("queued", 0, 0, 0),
        ("acked", 0, 0, 0),
    ]
    assert [state.left_ms for state in states] == [-1, -1, 5000, 30_000, -1, -1]
    assert await take(queue) == [b"1", b"4"]
    assert queue.state_of(1).member == "a"
    assert await queue.put_back(3, nack=False)
    assert await queue.put_back(2, nack=False)
    assert await take(queue) == [b"2", b"3"]
    assert queue.extend(2, 90_000)
    assert not queue.extend(0, 90_000)
    await world.pass_time(queue, 31)
    assert await take(queue) == [b"1", b"3", b"4"]
    for missing in (-1, 6, 99):
        assert queue.state_of(missing).status.value == "unknown"
        assert not await queue.settle(missing)
        assert not await queue.hold(missing)
        assert not queue.extend(missing, 1)


async def test_a_record_that_is_held_comes_back_by_itself(world: World) -> None:
    await world.add(b"a", b"b")
    queue = world.queue()
    assert await queue.hold(0, 1000)
    assert queue.extend(1, 60_000), "nobody has it: it is held"
    assert await take(queue) == []
    await world.pass_time(queue, 1.1)
    assert await take(queue) == [b"a"]


async def test_backoff_grows_with_each_delivery(world: World) -> None:
    await world.add(b"a")
    queue = world.queue(backoff_ms=1000, backoff_max_ms=3000, delivery_limit=0)
    for wait_s in (1, 2, 3, 3):
        assert await take(queue) == [b"a"]
        await release(queue, 0, nack=True)
        await world.pass_time(queue, wait_s - 0.001)
        assert (await take(queue), queue.delayed) == ([], 1)
        await world.pass_time(queue, 0.001)
    assert await take(queue) == [b"a"]
    assert GroupSettings(backoff_ms=1, backoff_multiplier=1e300).backoff_after(9) == 3_600_000


async def test_jitter_spreads_what_failed_together() -> None:
    settings = GroupSettings(backoff_ms=1000, backoff_jitter=0.2)
    waits = [settings.backoff_after(1, offset) for offset in range(1000)]
    assert (min(waits) >= 800, max(waits) < 1200) == (True, True)
    assert len(set(waits)) > 300
    assert abs(sum(waits) / 1000 - 1000) < 10
    assert settings.backoff_after(40, 7) == settings.backoff_max_ms


async def test_the_topic_s_settings_come_before_the_group_s(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.start(
        qbus_queue_delivery_limit=2,
        qbus_queue_retry_backoff_ms=1000,
        qbus_queue_retry_backoff_max_ms=1500,
        qbus_queue_dead_letter_topic="dead",
    )
    try:
        await world.add(b"a")
        queue = world.queue(delivery_limit=0, dead_letter_topic="other")
        found = queue.settings
        assert (found.delivery_limit, found.backoff_ms, found.backoff_max_ms) == (2, 1000, 1500)
        assert await take(queue) == [b"a"]
        await release(queue, 0)
        assert await take(queue) == [], "it waits"
        await world.pass_time(queue, 1)
        assert await take(queue) == [b"a"]
        await release(queue, 0)
        await world.until_moved(1)
        assert [(topic, record.value) for topic, record in world.box.letters] == [("dead", b"a")]
    finally:
        await world.plane.stop()


async def test_a_topic_without_settings_leaves_them_to_the_group(world: World) -> None:
    queue = world.queue(delivery_limit=7, backoff_ms=5, dead_letter_topic="dead")
    assert queue.settings is world.last_settings


async def test_a_back_off_outlives_the_broker(world: World) -> None:
    await world.add(b"a", b"b")
    queue = world.queue()
    await take(queue)
    await release(queue, 0, delay_ms=10_000)
    await world.restart()
    queue = world.queue()
    assert (queue.delayed, await take(queue)) == (1, [b"b"])
    await world.pass_time(queue, 10)
    assert await take(queue) == [b"a"]


async def test_timers_look_at_the_clock_by_themselves(world: World) -> None:
    await world.add(b"a")
    queue = world.queue(lock_ms=50)
    await take(queue)
    world.clock.advance(0.05)
    await eventually(lambda: queue.length == 1)
    assert queue.counts.timeouts == 1


async def test_another_leadership_begins_with_what_is_stored(world: World) -> None:
    await world.add(b"a", b"b")
    queue = world.queue()
    await take(queue)
    topic = world.plane.metadata.topics["jobs"]
    info = topic.partitions[0]
    world.partition.lead(replace(info, leader_epoch=info.leader_epoch + 1), 0.0)
    assert queue.is_closed
    again = world.queue()
    assert (again is not queue, await take(again)) == (True, [b"a", b"b"])


async def test_groups_are_mentioned_again_before_retention_takes_what_says_of_them(
    world: World,
) -> None:
    await world.add(b"a", b"b")
    queue = world.queue()
    await take(queue)
    await accept(queue, 0)
    service, log = world.plane.queues, world.partition.log
    service.mention()
    await world.settled()
    end = log.log_end_offset
    log.roll()
    service.mention()
    await world.settled()
    assert (log.log_end_offset, world.progress().mentioned_at) == (end + 1, end)
    service.mention()
    await world.settled()
    assert log.log_end_offset == end + 1, "once for each segment"
    assert world.progress().start == 1


async def test_what_a_group_finds_in_a_partition_that_it_has_not_used(world: World) -> None:
    await world.add(b"a", b"b")
    queues = world.plane.queues
    found = queues.describe_unused(world.partition, SETTINGS)
    assert (found.start_offset, found.length, found.delayed) == (-1, 2, 0)
    assert queues.describe_unused(world.partition, GroupSettings()).length == 0
    assert queues.groups(world.partition) == [], "nobody has used it still"
