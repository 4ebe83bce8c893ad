"""Queues: the records of a partition, each given to one member of a share group at a time."""

from .settings import GroupSettings
from .types import (
    AckRange,
    AckType,
    AcquiredRange,
    QueueCounts,
    QueueDescription,
    RecordState,
    RecordStatus,
    TakenBatches,
    TakenRecord,
    Waiter,
)

__all__ = [
    "AckRange",
    "AckType",
    "AcquiredRange",
    "GroupSettings",
    "QueueCounts",
    "QueueDescription",
    "RecordState",
    "RecordStatus",
    "TakenBatches",
    "TakenRecord",
    "Waiter",
]
