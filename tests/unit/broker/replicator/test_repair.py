"""Corrupt batches on disk are replaced by those of another replica."""

from pathlib import Path

import pytest

from qbus.broker.metadata.image import PartitionInfo
from qbus.broker.partition.partition import Partition
from qbus.errors import ErrorCode
from tests.support.fake_leader import FakeLeader

from .scene import LEADER, OTHER, US, Scene, content


async def replica(scene: Scene, leader: FakeLeader) -> Partition:
    """A replica of three acknowledged batches."""
    led = leader.lead()
    for value in (b"a", b"b", b"c"):
        led.append(value * 100)
    partition = scene.partition()
    scene.follow(partition)
    await scene.copied(partition, leader)
    partition.log.flush()
    return partition


def spoil(partition: Partition) -> bytes:
    """Flip a bit of the second batch and have it found; return the bytes before."""
    path = min(Path(partition.log.directory).glob("*.log"))
    good = path.read_bytes()
    half = len(good) // 2
    path.write_bytes(good[:half] + bytes([good[half] ^ 1]) + good[half + 1 :])
    while not partition.log.scrub():
        pass
    assert len(partition.log.corruptions) == 1
    return good


async def test_a_follower_is_repaired_from_its_leader(scene: Scene) -> None:
    leader = await scene.leader()
    partition = await replica(scene, leader)
    good = spoil(partition)
    await scene.fetchers.repair([partition])
    assert content(partition.log) == good
    assert partition.log.corruptions == ()
    assert scene.gauge("repairs") == 1
    (request,) = [fetch for fetch in leader.fetches if fetch.session_epoch == -1]
    assert request.replica_state.replica_id == -1, "it acknowledges nothing"
    assert request.rack_id == "", "it is sent to nobody else"


async def test_a_leader_is_repaired_from_an_in_sync_replica(scene: Scene) -> None:
    leader = await scene.leader()
    partition = await replica(scene, leader)
    leader.partitions[bytes(16), 0].epoch = 1
    state = PartitionInfo(US, 1, (US, OTHER, LEADER), (US, OTHER, LEADER))
    scene.fetchers.remove(partition)
    partition.lead(state, 0.0)
    good = spoil(partition)
    await scene.fetchers.repair([partition])
    assert content(partition.log) == good
    (request,) = [fetch for fetch in leader.fetches if fetch.session_epoch == -1]
    assert request.rack_id, "a follower answers only requests with a rack"


@pytest.mark.parametrize("what", ["gone", "refuses", "spoiled", "too early"])
async def test_a_failed_repair_is_retried(scene: Scene, what: str) -> None:
    leader = await scene.leader()
    partition = await replica(scene, leader)
    led = leader.partitions[bytes(16), 0]
    good = spoil(partition)
    registered = dict(scene.known.brokers)
    true, high_watermark = led.batches[1], partition.high_watermark
    if what == "gone":
        scene.known.brokers.clear()
    elif what == "refuses":
        led.error = ErrorCode.OFFSET_NOT_AVAILABLE
    elif what == "spoiled":
        led.batches[1] = true[:-1] + b"?"
    else:
        scene.fetchers.remove(partition)
        partition.high_watermark = 1
    await scene.fetchers.repair([partition])
    assert len(partition.log.corruptions) == 1
    assert scene.gauge("repairs") == 0
    scene.known.brokers.update(registered)
    led.error = ErrorCode.NONE
    led.batches[1] = true
    partition.high_watermark = high_watermark
    await scene.fetchers.repair([partition])
    assert content(partition.log) == good


async def test_an_intact_log_sends_no_request(scene: Scene) -> None:
    leader = await scene.leader()
    partition = await replica(scene, leader)
    count = leader.connections
    await scene.fetchers.repair([partition])
    assert leader.connections == count
