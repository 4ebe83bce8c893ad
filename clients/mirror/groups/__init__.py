"""Carrying the offsets that groups commit from one IDC to the other, so that consumers may move."""

from .carrier import CarriedGroup, GroupCarrier
from .schedule import GroupSchedule

__all__ = ["CarriedGroup", "GroupCarrier", "GroupSchedule"]
