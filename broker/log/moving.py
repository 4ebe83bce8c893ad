"""Moving a log to another data directory of its broker, while it is used (KIP-113).

Its full segments are copied first, which may take long and is in nobody's way. Then the log is
closed for a moment, the rest is copied, and the copy takes the partition's name; last the original
is removed. A crash at any moment leaves one whole log:

- Until it has its name, the copy is in a directory ``<random>-future``, which a start removes.
- A directory of a partition that has a file ``move.metadata`` is a copy: it counts only if there is
  no other of that partition, and is removed otherwise. The file goes when the original is gone.
"""

import threading
import uuid
from collections.abc import Callable

from qbus.errors import ApiError, ErrorCode

from .checkpoints import BadCheckpoint, decode_move, encode_move
from .files import Files, read_file, write_all, write_atomically
from .health import DirectoryHealth
from .log import Log
from .names import (
    DELETED_SUFFIX,
    FUTURE_DIRECTORY_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    TEMPORARY_SUFFIX,
    TopicPartition,
    numbered,
)

MOVE_METADATA = "move.metadata"

_CHUNK = 1 << 20  # bytes
_LITTLE = 4 << 20  # bytes that may be left for when the log is closed
_ROUNDS = 100

Pace = Callable[[int], None]


class MoveEndedError(Exception):
    """The move was cancelled, or its log is not there any more."""


class LogMove:
    """One log on its way to the data directory ``target``. Its methods are for threads.

    ``copied_bytes`` of batches are there already, and every record below ``copied_end``.
    """

    def __init__(self, log: Log, target: str, health: DirectoryHealth, files: Files) -> None:
        """``health`` is that of the data directory ``target``."""
        self.log = log
        self.partition = log.topic_partition
        self.target = target
        self.path = f"{target}/{uuid.uuid4().hex}{FUTURE_DIRECTORY_SUFFIX}"
        self.copied_bytes = 0
        self.copied_end = log.log_start_offset
        self.is_done = False
        self.problem = ""
        """Why it could not be finished; empty as long as it may go on."""
        self._copied: set[str] = set()  # names of files that do not change any more
        self._rewrites = log.rewrites
        self._health = health
        self._files = files
        self._ended = threading.Event()

    def __str__(self) -> str:
        return f"{self.partition} from {self.log.directory} to {self.target}"

    @property
    def is_outdated(self) -> bool:
        """Whether records that were copied have been cut off or repaired since."""
        return self.log.rewrites != self._rewrites

    @property
    def has_ended(self) -> bool:
        """Whether it was cancelled."""
        return self._ended.is_set()

    def cancel(self) -> None:
        """End it: whoever copies hears of it soon. For any thread."""
        self._ended.set()

    def begin(self) -> None:
        """Make the directory of the copy; stable on return. Raises ApiError KAFKA_STORAGE_ERROR."""
        self._health.check()
        try:
            self._files.make_directory(self.path)
            write_atomically(
                self._files, f"{self.path}/{MOVE_METADATA}", encode_move(self.partition)
            )
            self._files.sync_directory(self.target)
        except OSError as error:
            raise self._health.judge(f"create {self.path}", error) from error

    def copy(self, pace: Pace) -> None:
        """Copy all but a little; ``pace`` is told of bytes, and may wait. The log goes on.

        Raises MoveEndedError, ApiError KAFKA_STORAGE_ERROR.
        """
        if self.is_outdated:
            self.begin_anew(self.log)
        for _ in range(_ROUNDS):  # a log that grows faster than it is copied waits for its turn
            self.log.checkpoint()  # finishes the full segments, unless the disk is full
            for segment in self.log.full_segments():
                self._copy_once(numbered(segment.base_offset, LOG_SUFFIX), pace)
                if segment.is_finished:
                    for suffix in INDEX_SUFFIXES:
                        self._copy_once(numbered(segment.base_offset, suffix), pace)
                self.copied_end = max(self.copied_end, segment.end_offset)
            if self.log.active_size <= _LITTLE or not self._can_roll():
                return

    def copy_rest(self) -> None:
        """Copy what is left of the log, which is closed; stable on return.

        Raises MoveEndedError, ApiError KAFKA_STORAGE_ERROR.
        """
        self._check()
        there = self._list(self.log.directory)
        for name in there:
            if not name.endswith((DELETED_SUFFIX, TEMPORARY_SUFFIX)):
                self._copy_once(name, _no_wait)
        try:
            for name in set(self._files.list(self.path)) - {*there, MOVE_METADATA}:
                self._files.remove(f"{self.path}/{name}")  # retention took it meanwhile
            self._files.sync_directory(self.path)
        except OSError as error:
            raise self._health.judge(f"write to {self.path}", error) from error

    def remove_copy(self) -> None:
        """Remove what was copied: it is of no use. Raises OSError."""
        if self._files.exists(self.path):
            for name in self._files.list(self.path):
                self._files.remove(f"{self.path}/{name}")
            self._files.remove_directory(self.path)

    def _can_roll(self) -> bool:
        """End the active segment, so that it can be copied; on a full disk it is copied last."""
        try:
            self.log.roll()
        except ApiError:
            if not self.log.is_usable:
                raise
            return False
        return True

    def begin_anew(self, log: Log) -> None:
        """Copy all of ``log``, the same as it was opened again or cut, once more."""
        self.log = log
        self._rewrites = self.log.rewrites
        self._copied.clear()
        self.copied_bytes = 0
        self.copied_end = self.log.log_start_offset

    def _copy_once(self, name: str, pace: Pace) -> None:
        if name not in self._copied:
            self._copy_file(name, pace)
            self._copied.add(name)

    def _copy_file(self, name: str, pace: Pace) -> None:
        """Copy a file, stable on return; one that is gone was taken by retention."""
        path = f"{self.log.directory}/{name}"
        position = 0
        try:
            source = self._files.open(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _unreadable(path, error) from error
        try:
            target = self._files.open(f"{self.path}/{name}", write=True)
            target.truncate(0)
        except OSError as error:
            raise self._health.judge(f"write to {self.path}", error) from error
        is_log = name.endswith(LOG_SUFFIX)
        while True:
            self._check()
            try:
                data = source.read_at(position, _CHUNK)
            except OSError as error:
                raise _unreadable(path, error) from error
            try:
                if not data:
                    target.sync()
                    return
                write_all(target, position, data)
            except OSError as error:
                raise self._health.judge(f"write to {self.path}", error) from error
            position += len(data)
            if is_log:
                self.copied_bytes += len(data)
            pace(len(data))

    def _check(self) -> None:
        if self._ended.is_set():
            raise MoveEndedError(str(self))

    def _list(self, path: str) -> list[str]:
        try:
            return self._files.list(path)
        except OSError as error:
            raise _unreadable(path, error) from error


def read_move(files: Files, directory: str) -> TopicPartition | None:
    """The partition whose log a directory replaces, or was to replace; None: there is no move.

    Raises OSError.
    """
    path = f"{directory}/{MOVE_METADATA}"
    if not files.exists(path):
        return None
    try:
        return decode_move(read_file(files, path))
    except BadCheckpoint:  # a crash left it torn, before anything was copied
        return None


def _unreadable(path: str, error: OSError) -> ApiError:
    return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot read {path}: {error.strerror}")


def _no_wait(_: int) -> None:
    """The log is closed meanwhile: there is no time to wait."""
