"""The state of an agent, as immutable values and as a JSON document of bounded size.

An agent may have 10,000 files: the document lists those that fit, files with errors and with the
most to deliver first. Its totals count all of them.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from qbus.service.status import MAX_BYTES, fitting, short

STATUS_FILE = "status.json"
"""The name of the document in the agent's data directory."""
LOCK_FILE = "lock"
"""The name of the lock there that a running agent holds."""


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


def document(status: AgentStatus, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Totals, spools, and as many files as take ``max_bytes``, worst first."""
    ranked = sorted(status.files, key=_badness)
    files = list(fitting(map(file_document, ranked), max_bytes))
    return {
        "error": short(status.error),
        "totals": totals(status),
        "spools": [spool_document(spool) for spool in status.spools],
        "files": files,
        "files_left_out": len(ranked) - len(files),
    }


def totals(status: AgentStatus) -> dict[str, Any]:
    """What holds of all files together; the lag in seconds is the longest of any."""
    files = status.files
    return {
        "files": len(files),
        **{state.value: sum(file.state is state for file in files) for state in FileState},
        "lag_bytes": sum(file.lag_bytes for file in files),
        "lag_seconds": round(max((file.lag_seconds for file in files), default=0.0), 3),
        "rate": round(sum(file.rate for file in files), 1),
        "records": status.records,
        "bytes": status.bytes,
        "memory_bytes": status.memory_bytes,
        "spool_bytes": sum(spool.waiting_bytes for spool in status.spools),
    }


def file_document(file: FileStatus) -> dict[str, Any]:
    """One file."""
    return {
        "path": file.path,
        "topic": file.topic,
        "inode": file.inode,
        "state": file.state.value,
        "position": file.position,
        "read": file.read,
        "size": file.size,
        "lag_bytes": file.lag_bytes,
        "lag_seconds": round(file.lag_seconds, 3),
        "rate": round(file.rate, 1),
        "error": short(file.error),
    }


def spool_document(spool: SpoolStatus) -> dict[str, Any]:
    """One spool."""
    return {**asdict(spool), "error": short(spool.error)}


def _badness(file: FileStatus) -> tuple[bool, int, float, str]:
    return file.error is None, -file.lag_bytes, -file.lag_seconds, file.path
