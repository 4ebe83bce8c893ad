"""The state of an agent, as immutable values and as a JSON document of bounded size.

An agent may have 10,000 files: the document lists those that fit, files with errors and with the
most to deliver first. Its totals count all of them.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from time import perf_counter
from typing import Any, TypeVar

from qbus.service.status import MAX_BYTES, encode, fitting, short

STATUS_FILE = "status.json"
"""The name of the document in the agent's data directory."""
LOCK_FILE = "lock"
"""The name of the lock there that a running agent holds."""
_SLICE_S = 0.0005

Item = TypeVar("Item")


class FileState(StrEnum):
    """The state of a file."""

    READING = "reading"
    IDLE = "idle"
    """Read to its end and closed, until it grows."""
    FINISHED = "finished"
    """Rotated away or deleted, and read to its end."""
    FAILED = "failed"
    """It cannot be read; reads are retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatus:
    """The status of one file.

    ``position``: the offset up to which it is acknowledged; ``read``: up to which it is read;
    ``size``: its last known end. All are in bytes. ``lag_seconds``: the time since the oldest
    undelivered byte was noticed, 0 if there is none. ``rate``: recently acknowledged bytes per
    second. ``error``: the last error, None after a success. ``refused``: how many of its records
    were set aside since the start, as too large for the topic; ``refusal``: where the last one is.
    ``truncations``: how often it was truncated or written over.
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
    refused: int = 0
    refusal: str | None = None
    truncations: int = 0

    @property
    def lag_bytes(self) -> int:
        """The bytes of the file that are not acknowledged yet."""
        return max(0, self.size - self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolStatus:
    """The status of one spool: what waits in it, and what was delivered since the start.

    ``damaged``: the number of files in quarantine. ``error``: the last error, None after a success.
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
    """The status of an agent; ``records`` and ``bytes`` were acknowledged since its start.

    ``refused``: records of files set aside since its start, as too large for their topics.
    ``truncations``: how often files were truncated or written over.
    ``memory_bytes``: bytes read and not yet acknowledged. ``error``: why some records cannot be
    delivered now, or positions may not be on the disk.
    """

    files: tuple[FileStatus, ...] = ()
    spools: tuple[SpoolStatus, ...] = ()
    records: int = 0
    bytes: int = 0
    refused: int = 0
    truncations: int = 0
    memory_bytes: int = 0
    error: str | None = None


async def in_slices(items: Iterable[Item]) -> list[Item]:
    """Return the items of an iterator whose making takes a while; other work goes on meanwhile."""
    made = []
    pause_at = perf_counter() + _SLICE_S
    for item in items:
        made.append(item)
        if perf_counter() >= pause_at:
            await asyncio.sleep(0)
            pause_at = perf_counter() + _SLICE_S
    return made


class WholeReport:
    """Encodes reports with all files, again and again; most files are as they were before."""

    def __init__(self, max_bytes: int) -> None:
        """``max_bytes`` bounds the list of files, in bytes of JSON."""
        self._max_bytes = max_bytes
        self._known: dict[FileStatus, bytes] = {}

    async def encode(self, report: dict[str, Any], status: AgentStatus) -> bytes:
        """Return the JSON of a report with the files that fit, worst first.

        Other work goes on meanwhile: that of 10,000 files takes a quarter of a second.
        """
        files = await in_slices(self._fitting(status.files))
        self._known = dict(files)
        report = {**report, "files_left_out": len(status.files) - len(files)}
        del report["files"]
        listed = b",".join(encoded for _, encoded in files)
        return encode(report)[:-1] + b',"files":[' + listed + b"]}"

    def _fitting(self, files: Iterable[FileStatus]) -> Iterator[tuple[FileStatus, bytes]]:
        left = self._max_bytes
        for file in sorted(files, key=_badness):
            encoded = self._known.get(file) or encode(file_document(file))
            left -= len(encoded) + 1
            if left < 0:
                return
            yield file, encoded


def document(status: AgentStatus, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Return totals, spools, and as many files as fit into ``max_bytes``, worst first."""
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
    """Return the sums over all files; the lag in seconds is the longest of any."""
    files = status.files
    return {
        "files": len(files),
        **{state.value: sum(file.state is state for file in files) for state in FileState},
        "lag_bytes": sum(file.lag_bytes for file in files),
        "lag_seconds": round(max((file.lag_seconds for file in files), default=0.0), 3),
        "rate": round(sum(file.rate for file in files), 1),
        "records": status.records,
        "bytes": status.bytes,
        "refused": status.refused,
        "truncations": status.truncations,
        "memory_bytes": status.memory_bytes,
        "spool_bytes": sum(spool.waiting_bytes for spool in status.spools),
    }


def file_document(file: FileStatus) -> dict[str, Any]:
    """Return the document of one file."""
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
        "refused": file.refused,
        "refusal": short(file.refusal),
        "truncations": file.truncations,
    }


def spool_document(spool: SpoolStatus) -> dict[str, Any]:
    """Return the document of one spool."""
    return {**asdict(spool), "error": short(spool.error)}


def _badness(file: FileStatus) -> tuple[bool, bool, int, float, str]:
    return file.error is None, not file.refused, -file.lag_bytes, -file.lag_seconds, file.path
