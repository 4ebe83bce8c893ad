"""Consumer groups: membership, rebalances, committed offsets."""

from .coordinator import GroupCoordinator
from .group import Group
from .offsets import Offset, Offsets, TopicPartition
from .requests import (
    GroupProtocol,
    Heartbeat,
    Join,
    JoinResult,
    Leave,
    Leaver,
    LeaveResult,
    Sync,
    SyncResult,
)
from .state import GroupState

__all__ = [
    "Group",
    "GroupCoordinator",
    "GroupProtocol",
    "GroupState",
    "Heartbeat",
    "Join",
    "JoinResult",
    "Leave",
    "LeaveResult",
    "Leaver",
    "Offset",
    "Offsets",
    "Sync",
    "SyncResult",
    "TopicPartition",
]
