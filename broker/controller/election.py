"""Who leads a partition."""

from collections.abc import Collection, Sequence

from qbus.metadata.znodes import NO_LEADER, PartitionStateNode

from ..metadata_image import PartitionInfo


def first_state(replicas: Sequence[int], controller_epoch: int) -> PartitionStateNode:
    """The state of a new partition: the preferred replica leads, all are in sync."""
    return PartitionStateNode(replicas[0], 0, tuple(replicas), controller_epoch)


def elect(
    partition: PartitionInfo, live: Collection[int], controller_epoch: int
) -> PartitionStateNode:
    """The state after an election: leaders come from the in-sync replicas, in order of preference.

    Each election is a new leader epoch, even when the leader stays: what it wrote before and lost
    in a crash, and what it writes now at the same offsets, must not pass for the same (KIP-101).
    Without a live in-sync replica nobody leads, and who was in sync is kept for later.
    """
    in_sync = tuple(replica for replica in partition.isr if replica in live)
    candidates = [replica for replica in partition.replicas if replica in in_sync]
    return PartitionStateNode(
        leader=candidates[0] if candidates else NO_LEADER,
        leader_epoch=partition.leader_epoch + 1,
        isr=in_sync or partition.isr,
        controller_epoch=controller_epoch,
    )
