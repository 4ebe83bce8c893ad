"""Whether a data directory may still be used, and whether it has room.

After a failed ``fdatasync`` the kernel may have dropped what it could not write, and the next call
may say all is well: trying again proves nothing. So the first failure is final until a restart,
which reads back what is really there.
"""

import errno
import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from qbus.errors import ApiError, ErrorCode
from qbus.service.descriptors import shortages

from .files import NO_DESCRIPTOR, NO_SPACE, PASSING

# What is wrong with a log's data, for those who must hear of it.


@dataclass(frozen=True, slots=True)
class Corruption:
    """Where a batch should be and is not: file, position in it, the batch's offset, the problem."""

    path: str
    position: int
    offset: int
    problem: str

    def is_at_place_of(self, other: "Corruption") -> bool:
        """Whether both speak of the same place, in whatever words."""
        return (self.path, self.position, self.offset) == (other.path, other.position, other.offset)

    def __str__(self) -> str:
        return f"{self.path} at {self.position} (offset {self.offset}): {self.problem}"


_LINE_INTERVAL_S: Final = 10.0

_logger = logging.getLogger(__name__)


class DirectoryHealth:
    """One data directory's state, shared by all logs in it.

    ``is_full``: something could not be written for want of space, and no room was found since.
    """

    __slots__ = ("_listeners", "_next_line_at", "failure", "is_full", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.failure: str | None = None
        self.is_full = False
        self._next_line_at = 0.0
        self._listeners: list[Callable[[str], None]] = []

    @property
    def offline(self) -> bool:
        """Whether the directory failed; it stays so until the broker restarts."""
        return self.failure is not None

    @property
    def problem(self) -> str:
        """Why it is offline, or takes no records; empty where all is well."""
        return self.failure or ("the disk is full" if self.is_full else "")

    def check(self) -> None:
        """Raise KAFKA_STORAGE_ERROR when the directory is offline."""
        if self.failure is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path} is offline: {self.failure}")

    def fail(self, doing: str, error: OSError) -> ApiError:
        """Take the directory offline because of ``error``; the error to raise."""
        if self.failure is None:
            self.failure = f"{doing}: {error}"
            _logger.error("data directory %s goes offline: %s", self.path, self.failure)
            for listener in self._listeners:
                listener(self.path)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path} is offline: {self.failure}")

    def judge(self, doing: str, error: OSError) -> ApiError:
        """Return the error to raise.

        Without space, descriptors or memory, or where a file may not grow (EFBIG), it is retriable,
        and the directory stays online. Any other ``error`` takes the directory offline.
        """
        if error.errno in NO_SPACE and not self.is_full:
            self.is_full = True
            _logger.error("data directory %s is full: cannot %s", self.path, doing)
        if error.errno in NO_DESCRIPTOR:
            shortages.report(doing, error)
        elif error.errno in PASSING - NO_SPACE:
            self._report(doing, error)
        if error.errno in PASSING:
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot {doing}: {error.strerror}")
        return self.fail(doing, error)

    def _report(self, doing: str, error: OSError) -> None:
        """Log a limit of the system that is no fault of the disk, every ten seconds at most."""
        now = monotonic()
        if now >= self._next_line_at:
            self._next_line_at = now + _LINE_INTERVAL_S
            name = errno.errorcode.get(error.errno or 0, "")
            _logger.error("cannot %s: %s (%s)", doing, error.strerror, name)

    def note_room(self) -> None:
        """Note that the disk has room again."""
        if self.is_full:
            self.is_full = False
            _logger.info("data directory %s has room again", self.path)

    def on_failure(self, listener: Callable[[str], None]) -> None:
        """Have ``listener`` called with the path, in whichever thread met the failure."""
        self._listeners.append(listener)
