"""Logs that are corrupt as a whole: dropped and fetched anew, once nobody counts on them."""

from dataclasses import replace

from qbus.broker.log import Corruption
from qbus.broker.metadata.image import PartitionInfo
from qbus.broker.partition.partition import Partition
from tests.support.eventually import eventually

from .conftest import MakeScene
from .scene import LEADER, OTHER, US, Scene, asked, log_end


def lose(partition: Partition) -> None:
    """What was stable is not there any more, as the log finds out when it is opened."""
    state = partition.log.mender._state
    state.refuse_corrupt(Corruption(partition.log.directory, 0, 0, "records are missing"))


def in_sync(scene: Scene, *isr: int, elr: tuple[int, ...] = (), epoch: int = 0) -> None:
    """What the store says of partition 0."""
    info = PartitionInfo(LEADER, epoch, (US, LEADER, OTHER), isr, elr=elr)
    topic = scene.known.topics["orders"]
    scene.known.topics["orders"] = replace(topic, partitions=(info, *topic.partitions[1:]))


async def test_a_log_that_nobody_counts_on_is_fetched_anew(scene: Scene) -> None:
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
    assert partition.log.corruptions, "it is known that there was something"


async def test_one_that_may_be_elected_is_kept_until_it_may_not(scene: Scene) -> None:
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


async def test_one_that_its_leader_may_take_in_again_waits(make_scene: MakeScene) -> None:
    """It asked a moment ago: so its leader takes it to have what it had."""
    scene = make_scene(replica_lag_time_max_ms="200")
    leader = await scene.leader()
    led = leader.lead()
    led.append(b"a")
    partition = scene.partition()
    in_sync(scene, LEADER)
    scene.follow(partition)
    await scene.copied(partition, leader)
    lose(partition)
    count = len(asked(leader, 0))
    _, state = scene.fetchers._states[partition]
    now = state.fetched_at
    assert now is not None
    assert not scene.fetchers._rebuild_guard.may_rebuild(state)
    scene.follow(partition)
    assert scene.fetchers._states[partition][1].fetched_at == now
    await eventually(lambda: partition.log.is_usable)
    await scene.copied(partition, leader)
    assert len(asked(leader, 0)) > count


async def test_a_state_of_another_epoch_says_nothing(scene: Scene) -> None:
    partition = scene.partition()
    lose(partition)
    in_sync(scene, LEADER, epoch=3)
    scene.follow(partition, epoch=4)
    _, state = scene.fetchers._states[partition]
    assert not scene.fetchers._rebuild_guard.may_rebuild(state)
    in_sync(scene, LEADER, epoch=4)
    assert scene.fetchers._rebuild_guard.may_rebuild(state)
    scene.known.topics.clear()
    assert not scene.fetchers._rebuild_guard.may_rebuild(state)
