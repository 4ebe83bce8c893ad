"""Logs that are corrupt as a whole are rebuilt once no other broker counts on them."""

from dataclasses import replace

import pytest

from qbus.broker.log import Corruption
from qbus.broker.metadata.image import PartitionInfo
from qbus.broker.partition.partition import Partition
from qbus.broker.replicator.partition_fetch_state import PartitionFetchState
from qbus.broker.replicator.repair import RebuildGuard
from qbus.clock import ManualClock
from tests.support.waiting import eventually

from .conftest import MakeScene
from .scene import LEADER, ORDERS, OTHER, US, Scene, asked, log_end


def lose(partition: Partition) -> None:
    """Make the log as it is when stable records are missing on opening."""
    state = partition.log._state
    state.refuse_corrupt(Corruption(partition.log.directory, 0, 0, "records are missing"))


def in_sync(scene: Scene, *isr: int, elr: tuple[int, ...] = (), epoch: int = 0) -> None:
    """Set the ISR and the ELR of partition 0."""
    info = PartitionInfo(LEADER, epoch, (US, LEADER, OTHER), isr, elr=elr)
    topic = scene.known.topics["orders"]
    scene.known.topics["orders"] = replace(topic, partitions=(info, *topic.partitions[1:]))


async def test_a_corrupt_log_outside_isr_and_elr_is_rebuilt(scene: Scene) -> None:
    leader = await scene.leader()
    led = leader.lead()
    for _ in range(4):
        led.append(b"a")
    led.start = 2
    partition = scene.partition()
    partition.log.append_as_follower(memoryview(led.batches[0]))
    lose(partition)
    in_sync(scene, LEADER, OTHER)
    scene.follow(partition)
    await eventually(lambda: (partition.log.log_start_offset, log_end(partition)) == (2, 4))
    assert partition.log.is_usable
    assert partition.log.corruptions, "the corruption stays on record"


async def test_a_damaged_log_is_kept_as_long_as_the_leader_has_damage_too(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """Each may have the records that the other lost."""
    leader = await scene.leader()
    led = leader.lead()
    led.append(b"a")
    led.append(b"b")
    led.damaged_offset = 1
    partition = scene.partition()
    partition.log.append_as_follower(memoryview(led.batches[0]))
    lose(partition)
    partition.log._state.is_refused_for_damage = True
    in_sync(scene, LEADER, OTHER)
    scene.follow(partition)
    await eventually(lambda: scene.gauge("failed_replicas") == 1)
    await eventually(lambda: "that of the leader is from offset 1 on" in caplog.text)
    assert asked(leader) == []
    assert log_end(partition) == 1
    led.damaged_offset = None
    await scene.copied(partition, leader)


async def test_a_corrupt_log_in_isr_or_elr_is_kept(scene: Scene) -> None:
    leader = await scene.leader()
    leader.lead().append(b"a")
    partition = scene.partition()
    lose(partition)
    in_sync(scene, LEADER, US)
    scene.follow(partition)
    await eventually(lambda: scene.gauge("failed_replicas") == 1)
    in_sync(scene, LEADER, elr=(US,))
    other = scene.partition(1)
    leader.lead(1).append(b"b")
    scene.follow(other)
    await scene.copied(other, leader)
    assert asked(leader, 0) == []
    assert not partition.log.is_usable
    in_sync(scene, LEADER)
    await scene.copied(partition, leader)


def a_state(partition: Partition, epoch: int = 0) -> PartitionFetchState:
    return PartitionFetchState(partition, ORDERS, epoch, max_bytes=1, backoff_s=1.0)


async def test_a_rebuild_waits_until_the_replica_has_not_fetched_for_the_maximum_lag(
    scene: Scene,
) -> None:
    """Until then its leader may add it to the ISR."""
    clock = ManualClock()
    guard = RebuildGuard(US, scene.known, clock, max_lag_s=30.0)
    in_sync(scene, LEADER)
    state = a_state(scene.partition())
    assert guard.may_rebuild(state)
    state.next_request(clock.monotonic())
    clock.advance(30.0)
    assert not guard.may_rebuild(state)
    clock.advance(0.1)
    assert guard.may_rebuild(state)


async def test_a_new_leader_epoch_does_not_shorten_that_wait(make_scene: MakeScene) -> None:
    scene = make_scene(replica_lag_time_max_ms="60000")
    leader = await scene.leader()
    leader.lead().append(b"a")
    partition = scene.partition()
    in_sync(scene, LEADER)
    scene.follow(partition)
    await scene.copied(partition, leader)
    lose(partition)
    scene.follow(partition)
    await eventually(lambda: scene.gauge("failed_replicas") == 1)
    assert not partition.log.is_usable


async def test_a_partition_state_of_another_epoch_is_ignored(scene: Scene) -> None:
    guard = RebuildGuard(US, scene.known, ManualClock(), max_lag_s=30.0)
    state = a_state(scene.partition(), epoch=4)
    in_sync(scene, LEADER, epoch=3)
    assert not guard.may_rebuild(state)
    in_sync(scene, LEADER, epoch=4)
    assert guard.may_rebuild(state)
    scene.known.topics.clear()
    assert not guard.may_rebuild(state)
