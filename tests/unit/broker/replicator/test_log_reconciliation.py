"""Reconciliation before the first fetch in a leader epoch truncates where logs diverge."""

import pytest

from qbus.broker.log import EpochStart
from qbus.broker.partition.partition import Partition
from qbus.errors import ErrorCode
from qbus.records import set_base_offset
from qbus.wire.messages.fetch import EpochEndOffset, FetchRequest, FetchResponse
from tests.support.fake_leader import FakeLeader
from tests.support.logs import batch
from tests.support.waiting import eventually

from .scene import OTHER, US, Scene, asked, content, log_end


def give(partition: Partition, *epochs: int) -> None:
    """Append one record of each of ``epochs``."""
    for epoch in epochs:
        made = batch(b"ours")
        set_base_offset(made, log_end(partition), epoch)
        partition.log.append_as_follower(made)
    partition.log.flush()


def lead(leader: FakeLeader, *epochs: int, epoch: int, index: int = 0) -> None:
    led = leader.lead(index, epoch=epoch)
    for written in epochs:
        led.append(b"theirs", epoch=written)


def looked_up(leader: FakeLeader) -> list[tuple[int, int]]:
    """The current epoch and the requested epoch of each partition, in order."""
    return [
        (partition.current_leader_epoch, partition.leader_epoch)
        for request in leader.lookups
        for topic in request.topics
        for partition in topic.partitions
    ]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ((1, 1, 1), (1, 2)),  # we wrote on after another broker became the leader
        ((1, 1, 3), (1, 2, 4)),  # an epoch that the leader lacks
        ((1, 2, 2, 5), (1, 3, 3, 6)),  # each lacks the other's epochs (KIP-279)
        ((4, 5), (1, 6)),  # nothing in common
        ((1,), (1, 1, 2)),  # only a lag
        ((1, 7, 7), (1,)),  # the leader has written nothing since
    ],
)
async def test_records_that_the_leader_lacks_are_truncated(
    scene: Scene, ours: tuple[int, ...], theirs: tuple[int, ...]
) -> None:
    leader = await scene.leader()
    lead(leader, *theirs, epoch=9)
    partition = scene.partition(durable=True)
    give(partition, *ours)
    scene.follow(partition, epoch=9)
    await eventually(lambda: log_end(partition) == len(theirs))
    await eventually(lambda: partition.high_watermark == len(theirs))
    led = leader.partitions[bytes(16), 0]
    assert content(partition.log)[-len(led.batches[-1]) :] in {led.batches[-1], kept(ours, theirs)}
    assert partition.log.epoch_cache.entries == led.epochs.entries
    assert leader.lookups[0].replica_id == US
    assert looked_up(leader)[0] == (9, ours[-1])


def kept(ours: tuple[int, ...], theirs: tuple[int, ...]) -> bytes:
    """Our last batch, if it remains."""
    made = batch(b"ours")
    set_base_offset(made, len(theirs) - 1, theirs[-1])
    return bytes(made) if ours[: len(theirs)] == theirs else b""


async def test_an_empty_log_needs_no_reconciliation(scene: Scene) -> None:
    leader = await scene.leader()
    lead(leader, 1, epoch=1)
    partition = scene.partition()
    scene.follow(partition, epoch=1)
    await scene.copied(partition, leader)
    assert leader.lookups == []


async def test_partitions_are_reconciled_in_one_request(scene: Scene) -> None:
    leader = await scene.leader()
    partitions = [scene.partition(index) for index in range(4)]
    for partition in partitions:
        lead(leader, 0, 0, 1, epoch=1, index=partition.index)
        give(partition, 0)
        scene.follow(partition, epoch=1)
    for partition in partitions:
        await eventually(lambda: log_end(partition) == 3)  # noqa: B023 - awaited at once
    assert len(leader.lookups) == 1
    assert leader.connections == 2


async def test_each_leader_epoch_is_reconciled(scene: Scene) -> None:
    leader = await scene.leader()
    lead(leader, 0, epoch=0)
    partition = scene.partition()
    scene.follow(partition)
    await scene.copied(partition, leader)
    leader.partitions[bytes(16), 0].epoch = 3
    scene.follow(partition, epoch=3)
    await eventually(lambda: looked_up(leader) == [(3, 0)])
    await eventually(lambda: asked(leader) == [0, 1, 1])


async def test_a_leader_that_does_not_know_its_epoch_yet_is_retried(scene: Scene) -> None:
    leader = await scene.leader()
    lead(leader, 0, 0, epoch=4)
    partition = scene.partition()
    give(partition, 0)
    scene.follow(partition, epoch=5)
    await eventually(lambda: len(leader.lookups) >= 2)
    assert scene.gauge("failed_replicas") == 1
    assert log_end(partition) == 1
    leader.partitions[bytes(16), 0].epoch = 5
    await eventually(lambda: log_end(partition) == 2)
    assert scene.gauge("failed_replicas") == 0


async def test_a_failed_reconciliation_does_not_delay_other_partitions(scene: Scene) -> None:
    leader = await scene.leader()
    stuck, fine = scene.partition(0), scene.partition(1)
    for partition in (stuck, fine):
        lead(leader, 0, 0, epoch=0, index=partition.index)
        give(partition, 0)
    leader.partitions[bytes(16), 0].error = ErrorCode.KAFKA_STORAGE_ERROR
    scene.follow(stuck)
    scene.follow(fine)
    await eventually(lambda: log_end(fine) == 2)
    assert asked(leader, 0) == []
    leader.partitions[bytes(16), 0].error = ErrorCode.NONE
    await eventually(lambda: log_end(stuck) == 2)


async def test_a_log_that_ends_before_its_leaders_starts_is_restarted_there(scene: Scene) -> None:
    leader = await scene.leader()
    lead(leader, *[0] * 8, epoch=0)
    leader.partitions[bytes(16), 0].start = 5
    partition = scene.partition(durable=True)
    give(partition, 0, 0)
    scene.follow(partition)
    await eventually(lambda: (partition.log.log_start_offset, log_end(partition)) == (5, 8))
    assert content(partition.log) == b"".join(leader.partitions[bytes(16), 0].batches[5:])
    assert partition.log.epoch_cache.entries == (EpochStart(0, 5),)


async def test_an_empty_log_after_its_leaders_end_is_restarted(scene: Scene) -> None:
    """After an unclean election: our log has no records to lose."""
    leader = await scene.leader()
    lead(leader, 0, 0, epoch=0)
    partition = scene.partition()
    scene.logs.restart_at("orders", 0, 50)
    scene.follow(partition)
    await scene.copied(partition, leader)


async def test_records_after_the_leaders_end_are_truncated(scene: Scene) -> None:
    leader = await scene.leader()
    lead(leader, 3, 3, epoch=3)
    partition = scene.partition()
    scene.logs.restart_at("orders", 0, 50)
    give(partition, 1, 2)
    scene.follow(partition, epoch=3)
    await scene.copied(partition, leader)


async def test_a_diverging_epoch_in_a_response_starts_reconciliation(scene: Scene) -> None:
    """KIP-595: a fetch response may carry the diverging epoch."""
    leader = await scene.leader()
    lead(leader, 0, 0, epoch=0)
    partition = scene.partition()
    give(partition, 0)
    said = False

    def answering(_: FetchRequest, response: FetchResponse) -> FetchResponse:
        nonlocal said
        if not said:
            said = True
            data = response.responses[0].partitions[0]
            data.diverging_epoch = EpochEndOffset(epoch=0, end_offset=1)
        return response

    leader.answering = answering
    scene.follow(partition)
    await eventually(lambda: log_end(partition) == 2)
    assert len(leader.lookups) == 2


async def test_records_under_truncation_are_not_acknowledged_to_the_next_leader(
    scene: Scene,
) -> None:
    """A fetch acknowledges: records that are about to go must not count."""
    old, new = await scene.leader(), await scene.leader(OTHER)
    lead(old, 1, epoch=2)
    lead(new, 1, 1, 1, epoch=3)
    partition, bystander = scene.partition(0), scene.partition(1)
    give(partition, 1, 1, 1)
    scene.disk.hold_syncs()
    scene.follow(partition, epoch=2)
    await eventually(lambda: scene.disk.syncing.acquire(blocking=False))
    scene.follow(partition, OTHER, 3)
    lead(new, 1, epoch=3, index=1)
    scene.follow(bystander, OTHER, 3)
    await scene.copied(bystander, new)
    assert new.lookups == []
    assert asked(new) == []
    scene.disk.release_syncs()
    await eventually(lambda: partition.high_watermark == 3)
    assert asked(new)[0] == 1


async def test_a_removed_partition_is_not_truncated(scene: Scene) -> None:
    leader = await scene.leader()
    lead(leader, 1, epoch=2)
    partition = scene.partition()
    give(partition, 0, 0)
    scene.follow(partition, epoch=2)
    scene.fetchers.remove(partition)
    other = scene.partition(1)
    lead(leader, 1, epoch=2, index=1)
    scene.follow(other, epoch=2)
    await scene.copied(other, leader)
    assert log_end(partition) == 2
