"""What a mirror tells of itself: of each partition, and in all."""

from .model import GroupsStatus, LinkStatus, PartitionState, PartitionStatus, Trouble

__all__ = ["GroupsStatus", "LinkStatus", "PartitionState", "PartitionStatus", "Trouble"]
