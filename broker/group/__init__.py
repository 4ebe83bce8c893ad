"""Consumer groups: membership, rebalances, committed offsets."""

from .coordinator import GroupCoordinator
from .group import Group
from .machine import GroupMachine
from .offset_machine import Committed
from .offsets import Offset, Offsets, TopicPartition
from .requests import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
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
    "Committed",
    "ConsumerHeartbeat",
    "ConsumerHeartbeatResult",
    "Group",
    "GroupCoordinator",
    "GroupMachine",
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
