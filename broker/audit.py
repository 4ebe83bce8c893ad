"""The audit log: who did what to what from where, whether it was allowed, and by which rule.

A line of JSON for each event. Administration and denials are written always, of the rest the part
that ``qbus.audit.data.sampling`` says. A thread writes; between it and the event loop is a bounded
queue. What finds it full is dropped, and so is what the disk does not take: both are counted, and
logged. The last tenth of the queue is kept for administration, so that a client that is denied
again and again does not push it out.

The file is rotated by size: ``audit.log`` becomes ``audit.log.1``, and so on. Only the broker's
user can read it. Names and what clients call themselves are in it, credentials never are.
"""

import json
import logging
import os
import random
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Condition, Thread
from time import monotonic, time
from typing import Any, Final, NamedTuple

from qbus.errors import ConfigError
from qbus.security.acls import Decision, Operation, Resource

from .net.peer import Principal

_log = logging.getLogger(__name__)

_LONGEST: Final = 512
_AT_ONCE: Final = 1000
_KEPT_FREE: Final = 10
_SAY_AGAIN_S: Final = 10.0
_RETRY_S: Final = 1.0

Line = Mapping[str, Any]


class Caller(NamedTuple):
    """Who asks for something, and by which request.

    ``administers``: the request changes what others rely on, so it is recorded always.
    """

    principal: Principal
    host: str
    client_id: str | None
    request: str
    administers: bool = False


class AuditLimits(NamedTuple):
    """How large a file grows, how many are kept beside it, how many events may wait."""

    max_bytes: int = 100 * 1024 * 1024
    max_files: int = 10
    queue_size: int = 10_000


class AuditFile:
    """The file, rotated by size. For one thread; every method raises OSError."""

    def __init__(self, path: Path, limits: AuditLimits) -> None:
        self._path = path
        self._limits = limits
        self._fd = -1
        self._size = 0
        self._is_torn = False

    def open(self) -> None:
        """Open the file, or make it."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._fd).st_size

    def write(self, lines: bytes) -> None:
        """Append whole lines; of a failed write nothing counts as written."""
        if self._fd < 0:
            self.open()
        if self._size and self._size + len(lines) > self._limits.max_bytes:
            self._rotate()
        if self._is_torn:  # what a failed write left ends here
            lines = b"\n" + lines
        left = memoryview(lines)
        while left:
            self._is_torn = True
            written = os.write(self._fd, left)
            self._size += written
            left = left[written:]
        self._is_torn = False

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _rotate(self) -> None:
        self.close()
        path, kept = self._path, self._limits.max_files
        if kept:
            for number in range(kept - 1, 0, -1):
                with suppress(FileNotFoundError):
                    self._numbered(number).replace(self._numbered(number + 1))
            path.replace(self._numbered(1))
        else:
            path.unlink()
        self._is_torn = False
        self.open()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


class AuditLog:
    """Takes events from the event loop and has a thread write them.

    ``dropped`` counts events that were lost, for want of room in the queue or on the disk.
    """

    def __init__(
        self,
        file: AuditFile,
        *,
        name: str = "the audit log",
        queue_size: int = AuditLimits().queue_size,
        sampling: Callable[[], float] = lambda: 0.0,
        node_id: int = -1,
    ) -> None:
        """``sampling``: which part of what is neither denied nor administration is recorded."""
        self._file = file
        self._name = name
        self._limit = max(queue_size, 1)
        self._sampling = sampling
        self._node_id = node_id
        self._queue: deque[Line] = deque()
        self._ready = Condition()
        self._closing = False
        self._is_due = False
        self._thread = Thread(target=self._run, name="audit", daemon=True)
        self._said_at = -_SAY_AGAIN_S
        self._said = 0
        self.written = 0
        self._unqueued = 0  # counted by the event loop alone
        self._unwritten = 0  # counted by the thread alone

    @property
    def dropped(self) -> int:
        """How many events were lost."""
        return self._unqueued + self._unwritten

    def start(self) -> None:
        """Open the file and start the thread.

        Raises:
            ConfigError: the file cannot be opened.
        """
        try:
            self._file.open()
        except OSError as error:
            raise ConfigError(
                f"qbus.audit.log.path: {self._name} cannot be written ({error.strerror}): "
                "name a file in a directory that the broker's user may write to, or leave it empty"
            ) from error
        self._thread.start()

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what waits, and close the file."""
        with self._ready:
            self._closing = True
            self._ready.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        if self._thread.is_alive():  # it still has the file
            _log.error("%s does not end: its disk takes nothing", self._name)
        else:
            self._file.close()

    # Events

    def is_due(self) -> bool:
        """Whether the next event is to be recorded that need not be, which is promised then."""
        self._is_due = self.samples()
        return self._is_due

    def samples(self) -> bool:
        """Whether to record this one event that need not be."""
        if self._is_due:
            self._is_due = False
            return True
        part = self._sampling()
        return part > 0 and (part >= 1 or random.random() < part)  # noqa: S311 - no secret

    def authorization(
        self, caller: Caller, operation: Operation, resource: Resource, decision: Decision
    ) -> None:
        """Something was asked for, and allowed or denied."""
        self._put(
            {
                "event": "authorization",
                **_who(caller),
                "operation": operation.name,
                "resource_type": resource.type.name,
                "resource": resource.name,
                "allowed": decision.allowed,
                "rule": str(decision),
            },
            is_urgent=caller.administers,
        )

    def authentication(
        self, *, principal: object, host: str, mechanism: str, allowed: bool, reason: str = ""
    ) -> None:
        """A client showed who it is, or failed to; ``principal`` then is who it claims to be.

        ``reason`` says why it failed, in words that quote no credential.
        """
        self._put(
            {
                "event": "authentication",
                "principal": str(principal),
                "host": host,
                "mechanism": mechanism,
                "allowed": allowed,
                "reason": reason,
            },
            is_urgent=False,
        )

    def administration(self, caller: Caller, action: str, target: str) -> None:
        """Something was changed, such as an access rule or a user."""
        self._put(
            {"event": "administration", **_who(caller), "action": action, "target": target},
            is_urgent=True,
        )

    def _put(self, event: dict[str, Any], *, is_urgent: bool) -> None:
        limit = self._limit if is_urgent else self._limit - self._limit // _KEPT_FREE
        if len(self._queue) >= limit:
            self._unqueued += 1
            self._say("its queue is full: events come faster than they can be written")
            return
        # Bounded here: thousands of names that strangers chose may wait.
        line = {name: _bounded(value) for name, value in event.items()}
        line["time_ms"] = int(time() * 1000)
        with self._ready:
            self._queue.append(line)
            self._ready.notify()

    # Writing

    def _run(self) -> None:
        while True:
            with self._ready:
                while not self._queue and not self._closing:
                    self._ready.wait()
                some = [self._queue.popleft() for _ in range(min(len(self._queue), _AT_ONCE))]
                is_last = self._closing and not self._queue
            if some and not self._write(some) and not is_last:
                self._pause()
            if is_last:
                return

    def _write(self, events: list[Line]) -> bool:
        try:
            self._file.write(b"".join(self._line(event) for event in events))
        except OSError as error:
            self._unwritten += len(events)
            self._say(f"the disk does not take it ({error.strerror}): make room")
            return False
        except Exception:  # noqa: BLE001 - a defect in one event must not end the log
            self._unwritten += len(events)
            _log.exception("%s lost %d events by a defect", self._name, len(events))
            return False
        self.written += len(events)
        return True

    def _pause(self) -> None:
        """Let the disk recover; the queue takes what comes meanwhile."""
        with self._ready:
            if not self._closing:
                self._ready.wait_for(lambda: self._closing, _RETRY_S)

    def _line(self, event: Line) -> bytes:
        at = datetime.fromtimestamp(event["time_ms"] / 1000, UTC)
        line: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "broker": self._node_id,
        }
        line |= {name: value for name, value in event.items() if name != "time_ms"}
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"

    def _say(self, why: str) -> None:
        now = monotonic()
        if now - self._said_at >= _SAY_AGAIN_S:
            self._said_at = now
            lost, self._said = self.dropped - self._said, self.dropped
            _log.error("%s lost %d events, %d in all: %s", self._name, lost, self._said, why)


def _who(caller: Caller) -> dict[str, Any]:
    return {
        "principal": str(caller.principal),
        "host": caller.host,
        "client_id": caller.client_id,
        "request": caller.request,
    }


def _bounded(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"{value[:_LONGEST]}..."
    return value
