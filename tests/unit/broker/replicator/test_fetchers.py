"""Fetching from leaders: what is requested, what is appended, and what waits."""

import asyncio
import threading
from functools import partial

import pytest

from qbus.broker.partition.partition import Partition
from qbus.errors import ErrorCode
from qbus.wire.messages.fetch import FetchRequest, FetchResponse
from tests.support.fake_leader import FakeLeader
from tests.support.waiting import eventually

from .conftest import MakeScene
from .scene import (
    BROKER_EPOCH,
    LEADER,
    ORDERS,
    OTHER,
    US,
    Scene,
    asked,
    content,
    forgotten,
    log_end,
)

OTHER_LEADER = LEADER + 1


def log_starts(leader: FakeLeader) -> list[int]:
    """The log start offsets that the follower sent, in order."""
    return [
        partition.log_start_offset
        for fetch in leader.fetches
        for topic in fetch.topics
        for partition in topic.partitions
    ]


def _reaches(partition: Partition, end: int) -> bool:
    return log_end(partition) == end


async def another_is_copied(scene: Scene, another: Partition, leader: FakeLeader) -> None:
    """Copy another partition, to let requests come and go."""
    leader.lead(3).append(b"z")
    scene.follow(another)
    await scene.copied(another, leader)


async def test_a_follower_copies_its_leaders_log(scene: Scene) -> None:
    leader = await scene.leader()
    led = leader.lead(epoch=4)
    led.append(b"a", b"b", epoch=2)
    led.append(b"c", epoch=4, producer_id=7, producer_epoch=0, base_sequence=0)
    partition = scene.partition()
    scene.follow(partition, epoch=4)
    await scene.copied(partition, leader)
    assert partition.log.epoch_cache.entries == led.epochs.entries
    assert len(partition.log.producers) == 1
    led.append(b"d")
    leader.moved()
    await scene.copied(partition, leader)


async def test_a_fetch_request_has_the_configured_fields(make_scene: MakeScene) -> None:
    scene = make_scene(
        replica_fetch_min_bytes="3", replica_fetch_max_bytes="4000", replica_fetch_wait_max_ms="77"
    )
    leader = await scene.leader()
    leader.lead(epoch=5)
    scene.follow(scene.partition(), epoch=5)
    await eventually(lambda: leader.fetches)
    fetch = leader.fetches[0]
    assert (fetch.replica_state.replica_id, fetch.replica_state.replica_epoch) == (US, BROKER_EPOCH)
    assert (fetch.min_bytes, fetch.max_bytes, fetch.max_wait_ms) == (3, 10 << 20, 77)
    wanted = fetch.topics[0].partitions[0]
    assert (wanted.current_leader_epoch, wanted.partition_max_bytes) == (5, 4000)


async def test_later_requests_name_only_what_changed(scene: Scene) -> None:
    leader = await scene.leader()
    partitions = [scene.partition(index) for index in range(3)]
    for partition in partitions:
        leader.lead(partition.index)
        scene.follow(partition)
    await eventually(lambda: len(leader.fetches) >= 2)
    assert [asked(leader, index) for index in range(3)] == [[0], [0], [0]]
    leader.partitions[ORDERS, 1].append(b"a")
    leader.moved()
    await scene.copied(partitions[1], leader)
    await eventually(lambda: asked(leader, 1) == [0, 1])
    assert asked(leader, 0) == asked(leader, 2) == [0]
    assert [fetch.session_epoch for fetch in leader.fetches] == list(range(len(leader.fetches)))


async def test_records_are_flushed_before_the_next_fetch_acknowledges_them(scene: Scene) -> None:
    """A fetch acknowledges the records before its offset."""
    leader = await scene.leader()
    leader.lead().append(b"a")
    partition, another = scene.partition(durable=True), scene.partition(3)
    scene.disk.hold_syncs()
    scene.follow(partition)
    await eventually(lambda: log_end(partition) == 1)
    await eventually(lambda: scene.disk.syncing.acquire(blocking=False))
    await another_is_copied(scene, another, leader)
    assert asked(leader) == [0]
    scene.disk.release_syncs()
    await eventually(lambda: asked(leader) == [0, 1])


async def test_a_slow_disk_does_not_delay_other_partitions(scene: Scene) -> None:
    leader = await scene.leader()
    slow, quick = scene.partition(0, durable=True), scene.partition(1)
    for partition in (slow, quick):
        leader.lead(partition.index).append(b"a")
    scene.disk.hold_syncs()
    scene.follow(slow)
    scene.follow(quick)
    await scene.copied(quick, leader)
    for count in range(2, 5):
        leader.partitions[ORDERS, 1].append(b"b")
        leader.moved()
        await eventually(partial(_reaches, quick, count))
    assert asked(leader, 0) == [0]
    assert 0 in forgotten(leader), "else it would be sent what it has not acknowledged"
    scene.disk.release_syncs()
    leader.partitions[ORDERS, 0].append(b"c")
    leader.moved()
    await scene.copied(slow, leader)


async def test_old_records_are_flushed_before_the_first_fetch(scene: Scene) -> None:
    """A former leader has not acknowledged its unflushed records as a follower."""
    leader = await scene.leader()
    led = leader.lead()
    partition, another = scene.partition(durable=True), scene.partition(3)
    partition.log.append_as_follower(memoryview(led.append(b"a")))
    scene.disk.hold_syncs()
    scene.follow(partition)
    await eventually(lambda: scene.disk.syncing.acquire(blocking=False))
    await another_is_copied(scene, another, leader)
    assert asked(leader) == []
    scene.disk.release_syncs()
    await eventually(lambda: asked(leader) == [1])


async def test_a_new_partition_interrupts_a_held_fetch(scene: Scene) -> None:
    leader = await scene.leader()
    first, second = scene.partition(0), scene.partition(1)
    leader.lead(0)
    leader.lead(1).append(b"a")
    scene.follow(first)
    await eventually(lambda: len(leader.fetches) >= 2)
    scene.follow(second)
    await scene.copied(second, leader)


async def test_a_removed_partition_leaves_the_session(scene: Scene) -> None:
    leader = await scene.leader()
    stays, goes = scene.partition(0), scene.partition(1)
    for partition in (stays, goes):
        leader.lead(partition.index)
        scene.follow(partition)
    await eventually(lambda: len(leader.fetches) >= 2)
    scene.fetchers.remove(goes)
    leader.partitions[ORDERS, 0].append(b"a")
    leader.partitions[ORDERS, 1].append(b"a")
    leader.moved()
    await scene.copied(stays, leader)
    await eventually(lambda: forgotten(leader) == [1])
    assert log_end(goes) == 0
    assert scene.gauge("followed_partitions") == 1


async def test_a_lost_session_is_replaced_by_a_full_request(scene: Scene) -> None:
    leader = await scene.leader()
    partition = scene.partition()
    led = leader.lead()
    scene.follow(partition)
    await eventually(lambda: len(leader.fetches) >= 2)
    leader.forget_sessions()
    led.append(b"a")
    leader.moved()
    await scene.copied(partition, leader)
    led.append(b"b")
    leader.moved()
    await scene.copied(partition, leader)
    assert sum(fetch.session_epoch == 0 for fetch in leader.fetches) == 2


async def test_a_leader_without_sessions_gets_full_requests(scene: Scene) -> None:
    leader = await scene.leader()
    leader.keeps_sessions = False
    partition = scene.partition()
    led = leader.lead()
    for value in (b"a", b"b", b"c"):
        led.append(value)
        leader.moved()
        scene.follow(partition)
        await scene.copied(partition, leader)
    assert all(fetch.session_id == 0 for fetch in leader.fetches)
    assert all(fetch.session_epoch == 0 for fetch in leader.fetches)


async def test_after_a_change_of_leaders_the_old_one_is_ignored(scene: Scene) -> None:
    old, new = await scene.leader(LEADER), await scene.leader(OTHER)
    partition = scene.partition()
    old.lead(epoch=1).append(b"a")
    scene.follow(partition, LEADER, 1)
    await scene.copied(partition, old)
    new_led = new.lead(epoch=2)
    new_led.append(b"a", epoch=1)
    new_led.append(b"b", epoch=2)
    scene.follow(partition, OTHER, 2)
    old.partitions[ORDERS, 0].append(b"zombie")
    old.moved()
    await scene.copied(partition, new)


async def test_a_response_after_a_change_of_roles_is_ignored(scene: Scene) -> None:
    leader = await scene.leader()
    led = leader.lead()
    partition, another = scene.partition(), scene.partition(3)
    scene.follow(partition)
    await eventually(lambda: len(leader.fetches) >= 2)
    partition.follow(OTHER, 1)  # the fetchers are told a moment later
    led.append(b"late")
    leader.moved()
    await another_is_copied(scene, another, leader)
    assert log_end(partition) == 0


async def test_a_leader_may_register_later(scene: Scene) -> None:
    partition = scene.partition()
    scene.follow(partition)
    await asyncio.sleep(0.02)
    leader = await scene.leader()
    leader.lead().append(b"a")
    await scene.copied(partition, leader)


async def test_a_leader_that_restarts_at_another_address_is_found(scene: Scene) -> None:
    partition = scene.partition()
    before = await scene.leader()
    led = before.lead()
    led.append(b"a")
    scene.follow(partition)
    await scene.copied(partition, before)
    after = await scene.leader()
    after.partitions = before.partitions
    led.append(b"b")
    before.silent = True
    before.hang_up()
    await scene.copied(partition, after)


async def test_nothing_is_fetched_after_stopping(scene: Scene) -> None:
    leader = await scene.leader()
    partition = scene.partition()
    leader.lead()
    scene.follow(partition)
    await eventually(lambda: len(leader.fetches) >= 2)
    await scene.fetchers.stop()
    leader.partitions[ORDERS, 0].append(b"a")
    leader.moved()
    await asyncio.sleep(0.02)
    assert log_end(partition) == 0


async def test_the_log_start_follows_the_leaders(scene: Scene) -> None:
    leader = await scene.leader()
    led = leader.lead()
    for _ in range(5):
        led.append(b"a")
    partition = scene.partition()
    scene.follow(partition)
    await scene.copied(partition, leader)
    led.start = 3
    led.append(b"b")
    leader.moved()
    await eventually(lambda: partition.log.log_start_offset == 3)
    await eventually(lambda: log_starts(leader)[-1] == 3)


async def test_the_high_watermark_never_exceeds_the_log_end(scene: Scene) -> None:
    leader = await scene.leader()
    led = leader.lead()
    led.append(b"a")
    led.high_watermark = 10**12
    partition = scene.partition()
    scene.follow(partition)
    await eventually(lambda: partition.high_watermark == 1)
    assert scene.gauge("replica_lag") == scene.gauge("replica_lag_max") == 10**12 - 1


async def test_metrics_count_what_was_fetched(scene: Scene) -> None:
    leader = await scene.leader()
    sent = leader.lead().append(b"a" * 100)
    partition = scene.partition()
    scene.follow(partition)
    await scene.copied(partition, leader)
    assert scene.gauge("replica_fetched_bytes") == len(sent)
    assert scene.gauge("replica_fetches") >= 1
    assert scene.gauge("failed_replicas") == 0


@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR])
async def test_a_refused_fetch_is_retried(scene: Scene, code: ErrorCode) -> None:
    leader = await scene.leader()
    refusals = 2

    def answering(_: FetchRequest, response: FetchResponse) -> FetchResponse:
        nonlocal refusals
        refusals -= 1
        return FetchResponse(error_code=code) if refusals >= 0 else response

    leader.answering = answering
    leader.lead().append(b"a")
    partition = scene.partition()
    scene.follow(partition)
    await scene.copied(partition, leader)
    assert content(partition.log)


@pytest.mark.parametrize("when", ["after", "during"])
async def test_a_leader_elected_while_the_broker_stops_is_not_fetched_from(
    scene: Scene, when: str
) -> None:
    leader, elected = await scene.leader(), await scene.leader(OTHER_LEADER)
    leader.lead().append(b"a")
    elected.lead(epoch=5).append(b"a")
    partition = scene.partition()
    scene.follow(partition)
    await scene.copied(partition, leader)
    stopping = asyncio.create_task(scene.fetchers.stop())
    if when == "after":
        await stopping
    else:
        await asyncio.sleep(0)
    scene.follow(partition, OTHER_LEADER, epoch=5)
    await stopping
    await asyncio.sleep(0.1)
    assert elected.fetches == []
    assert elected.connections == 0


async def test_metrics_can_be_read_while_partitions_come_and_go(scene: Scene) -> None:
    """They are read in a thread of the metrics' server."""
    await scene.leader()
    partitions = [scene.partition(index) for index in range(30)]
    stop = threading.Event()
    failures: list[Exception] = []

    def read() -> None:
        while not stop.is_set():
            try:
                scene.fetchers._all()
            except RuntimeError as error:
                failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(50):
        for partition in partitions:
            scene.follow(partition)
        for partition in partitions:
            scene.fetchers.remove(partition)
        await asyncio.sleep(0)
    stop.set()
    reader.join()
    assert not failures
