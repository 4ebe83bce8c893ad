"""The offset checkpoints of one data directory: what is on disk, and what goes there next."""

import logging
import threading
from collections.abc import Iterable

from .checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    BadCheckpoint,
    read_offsets,
    write_offsets,
)
from .files import Files
from .health import DirectoryHealth
from .names import TopicPartition

_logger = logging.getLogger(__name__)

_NAMES = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS)

Offsets = dict[TopicPartition, int]


class DirectoryCheckpoints:
    """Recovery points, log starts and high watermarks, each by partition.

    ``lock`` is held from looking at the logs to writing down what they said, so that nobody
    overwrites what is newer. All but :meth:`get` waits for the disk.
    """

    def __init__(self, files: Files, health: DirectoryHealth) -> None:
        self.lock = threading.RLock()
        self._files = files
        self._health = health
        self._known: dict[str, Offsets] = {name: {} for name in _NAMES}

    def load(self) -> bool:
        """Read what is there; whether all of it could be understood. Raises OSError."""
        understood = [self._load(name) for name in _NAMES]
        return all(understood)

    def _load(self, name: str) -> bool:
        path = f"{self._health.path}/{name}"
        try:
            self._known[name] = read_offsets(self._files, path)
        except BadCheckpoint as bad:
            _logger.error("%s is passed over: %s", path, bad)  # noqa: TRY400 - no place of ours
            return False
        return True

    def get(self, name: str, partition: TopicPartition) -> int:
        """The offset of a partition in a checkpoint, 0 when there is none."""
        return self._known[name].get(partition, 0)

    def of(self, name: str, partitions: Iterable[TopicPartition]) -> Offsets:
        """What a checkpoint holds of ``partitions``."""
        known = self._known[name]
        return {one: known[one] for one in partitions if one in known}

    def save(self, name: str, offsets: Offsets) -> None:
        """Replace a checkpoint, if it changed. Raises ApiError KAFKA_STORAGE_ERROR.

        A full disk keeps the old one, which is as true.
        """
        with self.lock:
            if offsets == self._known[name]:
                return
            self._health.check()
            try:
                write_offsets(self._files, f"{self._health.path}/{name}", offsets)
            except OSError as error:
                raise self._health.judge(f"write {name}", error) from error
            self._known[name] = offsets

    def set(self, name: str, partition: TopicPartition, offset: int) -> None:
        """Change one partition's offset; stable on return. Raises ApiError."""
        with self.lock:
            self.save(name, self._known[name] | {partition: offset})

    def lower(self, name: str, partition: TopicPartition, offset: int) -> None:
        """Let no more than ``offset`` stand for a partition; stable on return. Raises ApiError."""
        with self.lock:
            if self.get(name, partition) > offset:
                self.set(name, partition, offset)

    def forget(self, partition: TopicPartition) -> None:
        """Leave nothing of a partition, in any of them. Raises ApiError."""
        with self.lock:
            for name, known in list(self._known.items()):
                self.save(name, {one: offset for one, offset in known.items() if one != partition})
