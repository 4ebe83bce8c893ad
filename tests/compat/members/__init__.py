"""Group members in processes of their own, so that a test can kill them."""

from .process import Event, Member

__all__ = ["Event", "Member"]
