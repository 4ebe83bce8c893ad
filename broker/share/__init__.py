"""Share groups (KIP-932): who is in them, and which partitions each member reads.

What becomes of the records is the business of :mod:`qbus.broker.queues`.
"""

from .assignor import Partitions
from .coordinator import ShareCoordinator, ShareGroupDescription, ShareMemberDescription
from .group import HeartbeatResult, MemberHeartbeat, ShareGroupState
from .settings import group_settings

__all__ = [
    "HeartbeatResult",
    "MemberHeartbeat",
    "Partitions",
    "ShareCoordinator",
    "ShareGroupDescription",
    "ShareGroupState",
    "ShareMemberDescription",
    "group_settings",
]
