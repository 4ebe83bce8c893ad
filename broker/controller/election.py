"""Who leads a partition."""

from collections.abc import Collection, Sequence

from qbus.metadata.znodes import PartitionStateNode

from .. import partition_states
from ..metadata_image import PartitionInfo
from ..partition_states import Policy


def first_state(replicas: Sequence[int], controller_epoch: int) -> PartitionStateNode:
    """The state of a new partition: the preferred replica leads, all are in sync."""
    return PartitionStateNode(replicas[0], 0, tuple(replicas), controller_epoch)


def elect(
    partition: PartitionInfo, live: Collection[int], controller_epoch: int
) -> PartitionStateNode:
    """The state after an election, as :func:`qbus.broker.partition_states.elect` has it.

    Whoever is in sync and not there stays eligible, until the leader decides to go on without.
    """
    state = PartitionStateNode(
        partition.leader,
        partition.leader_epoch,
        partition.isr,
        controller_epoch,
        partition.elr,
        partition.last_in_sync,
    )
    cautious = Policy(min_isr=len(partition.replicas) + 1)
    return partition_states.elect(
        state, partition.replicas, live, controller_epoch, wanted=cautious
    )
