"""Partitions of this broker: their leader state, what waits for them, and their upkeep."""

from .delayed_fetch import DelayedFetch
from .delayed_produce import DelayedProduce
from .fetch_reader import NO_OFFSET, NO_RECORDS, FetchReader, FetchTarget
from .flusher import Flusher
from .partition import ACKS_ALL, NO_EPOCH, Partition, Session
from .replica_manager import ReplicaManager
from .settings import log_config

__all__ = [
    "ACKS_ALL",
    "NO_EPOCH",
    "NO_OFFSET",
    "NO_RECORDS",
    "DelayedFetch",
    "DelayedProduce",
    "FetchReader",
    "FetchTarget",
    "Flusher",
    "Partition",
    "ReplicaManager",
    "Session",
    "log_config",
]
