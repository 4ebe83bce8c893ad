"""Which partitions an operator should look at."""

from qbus.clients.types import PartitionDescription


def is_under_replicated(partition: PartitionDescription) -> bool:
    """Whether some replica is not in sync."""
    return len(partition.isr) < len(partition.replicas)


def is_unavailable(partition: PartitionDescription) -> bool:
    """Whether nobody leads it."""
    return partition.leader < 0


def is_under_min_isr(partition: PartitionDescription, min_isr: int) -> bool:
    """Whether fewer replicas are in sync than ``min.insync.replicas``: acks=all is refused."""
    return len(partition.isr) < min_isr
