"""Internal logs: what coordinators keep in compacted topics, and in memory where these are led."""

from .internal_log import InternalLog, LogMetadata, LogParts, TopicCreator
from .machine import LogRecord, Machine, Operation, Outcome, Producer
from .metrics import register_metrics
from .shard import Asker, Check, LogCounts, Shard
from .topic import InternalTopic, partition_for, suitable

__all__ = [
    "Asker",
    "Check",
    "InternalLog",
    "InternalTopic",
    "LogCounts",
    "LogMetadata",
    "LogParts",
    "LogRecord",
    "Machine",
    "Operation",
    "Outcome",
    "Producer",
    "Shard",
    "TopicCreator",
    "partition_for",
    "register_metrics",
    "suitable",
]
