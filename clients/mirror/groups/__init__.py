"""Carrying the offsets that groups commit from one IDC to the other, so that consumers may move."""

from .offset_sync import CarriedGroup, OffsetSync
from .schedule import GroupSchedule

__all__ = ["CarriedGroup", "GroupSchedule", "OffsetSync"]
