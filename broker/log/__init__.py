"""Partitions' logs on disk: segments, indexes, recovery, retention. Files only, no sockets."""

from .appender import MAX_NAMED, AppendInfo, RecordsRefusedError
from .config import LogConfig
from .controls import Fold
from .data_directory import DataDirectory
from .epochs import EpochEnd, EpochStart, LeaderEpochCache
from .files import File, Files, OsFiles
from .health import Corruption
from .log import Log
from .manager import LogManager
from .mirroring import Provenance
from .names import TopicPartition
from .producers import Producer, ProducerState, StoredPart, Verification
from .reader import LogSlice, TimestampOffset
from .state import DamagedBatches
from .transactions import AbortedTransaction
from .visible import VisibleRecords

__all__ = [
    "MAX_NAMED",
    "AbortedTransaction",
    "AppendInfo",
    "Corruption",
    "DamagedBatches",
    "DataDirectory",
    "EpochEnd",
    "EpochStart",
    "File",
    "Files",
    "Fold",
    "LeaderEpochCache",
    "Log",
    "LogConfig",
    "LogManager",
    "LogSlice",
    "OsFiles",
    "Producer",
    "ProducerState",
    "Provenance",
    "RecordsRefusedError",
    "StoredPart",
    "TimestampOffset",
    "TopicPartition",
    "Verification",
    "VisibleRecords",
]
