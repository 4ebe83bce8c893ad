"""What a mirror tells of itself: of each partition, and in all."""

from .model import LinkStatus, PartitionState, PartitionStatus, Trouble

__all__ = ["LinkStatus", "PartitionState", "PartitionStatus", "Trouble"]
