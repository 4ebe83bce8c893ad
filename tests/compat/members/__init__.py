"""Group members in processes of their own, so that a test can kill them."""

from .process import Event, Member, Partitions

__all__ = ["Event", "Member", "Partitions"]
