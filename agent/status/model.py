"""The state of an agent, as values that do not change."""

from dataclasses import dataclass
from enum import StrEnum


class FileState(StrEnum):
    """What is being done about a file."""

    READING = "reading"
    IDLE = "idle"
    """Read to its end and closed, until it grows."""
    FINISHED = "finished"
    """Rotated away or deleted, and read to its end."""
    FAILED = "failed"
    """It cannot be read; it is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatus:
    """One file.

    ``position``: up to where it is delivered and acknowledged; ``read``: up to where it is read.
    ``size``: where it ended at the last look. All in bytes. ``lag_seconds``: how long the oldest
    undelivered byte has been known of, 0 when there is none. ``rate``: bytes acknowledged per
    second, of late. ``error``: the last one since it went well.
    """

    path: str
    topic: str
    inode: int
    state: FileState
    position: int
    read: int
    size: int
    lag_seconds: float = 0.0
    rate: float = 0.0
    error: str | None = None

    @property
    def lag_bytes(self) -> int:
        """Bytes that are in the file and not acknowledged yet."""
        return max(0, self.size - self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolStatus:
    """One spool: batches and bytes that wait in it, and what was delivered since the start.

    ``damaged``: files set aside, ever. ``error``: the last one since it went well.
    """

    directory: str
    queues: int = 0
    waiting_bytes: int = 0
    delivered_records: int = 0
    delivered_bytes: int = 0
    damaged: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatus:
    """All of an agent. ``records`` and ``bytes`` are those acknowledged since its start.

    ``memory_bytes``: read and not yet acknowledged. ``error``: why nothing can be delivered, while
    that is so.
    """

    files: tuple[FileStatus, ...] = ()
    spools: tuple[SpoolStatus, ...] = ()
    records: int = 0
    bytes: int = 0
    memory_bytes: int = 0
    error: str | None = None
