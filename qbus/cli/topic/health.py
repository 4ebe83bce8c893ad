"""Which partitions an operator should look at."""

from typing import NamedTuple

from qbus.clients.types import PartitionDescription


def is_under_replicated(partition: PartitionDescription) -> bool:
    """Whether some replica is not in sync."""
    return len(partition.isr) < len(partition.replicas)


def is_unavailable(partition: PartitionDescription) -> bool:
    """Whether nobody leads it."""
    return partition.leader < 0


def is_under_min_isr(partition: PartitionDescription, min_isr: int) -> bool:
    """Whether fewer are in sync than ``min.insync.replicas`` (at most all): acks=all is refused."""
    return len(partition.isr) < min(min_isr, len(partition.replicas))


class Filters(NamedTuple):
    """What an operator looks for: partitions of which any of these is true; all if none is set."""

    under_replicated: bool = False
    unavailable: bool = False
    under_min_isr: bool = False

    def chooses(self, partition: PartitionDescription, min_isr: int) -> bool:
        """Whether to show a partition of a topic with this ``min.insync.replicas``."""
        return not any(self) or (
            (self.under_replicated and is_under_replicated(partition))
            or (self.unavailable and is_unavailable(partition))
            or (self.under_min_isr and is_under_min_isr(partition, min_isr))
        )


EVERYTHING = Filters()
