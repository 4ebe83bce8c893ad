"""Which partitions need an operator's attention."""

from typing import NamedTuple

from qbus.clients.types import PartitionDescription


def is_under_replicated(partition: PartitionDescription) -> bool:
    """Whether a replica is out of sync."""
    return len(partition.isr) < len(partition.replicas)


def is_unavailable(partition: PartitionDescription) -> bool:
    """Whether it has no leader."""
    return partition.leader < 0


def is_under_min_isr(partition: PartitionDescription, min_isr: int) -> bool:
    """Whether acks=all is rejected: fewer replicas in sync than ``min.insync.replicas``."""
    return len(partition.isr) < min(min_isr, len(partition.replicas))


class Filters(NamedTuple):
    """Selects partitions for which any of these holds; all partitions if none is set."""

    under_replicated: bool = False
    unavailable: bool = False
    under_min_isr: bool = False

    def selects(self, partition: PartitionDescription, min_isr: int) -> bool:
        """Whether a partition of a topic with this ``min.insync.replicas`` is selected."""
        return not any(self) or (
            (self.under_replicated and is_under_replicated(partition))
            or (self.unavailable and is_unavailable(partition))
            or (self.under_min_isr and is_under_min_isr(partition, min_isr))
        )


EVERYTHING = Filters()
