"""The status as a JSON document of bounded size: what is worst comes first.

ZooKeeper takes no node above 1 MiB, and an agent may have 10,000 files: the files that fit are
named, those with errors and the most to deliver before others; the totals are of all of them.
"""

from dataclasses import asdict
from typing import Any

from qbus.service.control.document import fitting, short

from .model import AgentStatus, FileState, FileStatus, SpoolStatus

MAX_BYTES = 256 * 1024
"""The longest list of files, in bytes of JSON, that goes to ZooKeeper."""


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
