"""Syncing the committed offsets of groups, so that consumers can move to another datacenter."""

from .offset_sync import OffsetSync, SyncedGroup
from .schedule import OffsetSyncSchedule

__all__ = ["OffsetSync", "OffsetSyncSchedule", "SyncedGroup"]
