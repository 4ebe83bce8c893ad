"""One data directory: its owner's lock, the marker of a clean shutdown, checkpoints, and logs."""

import logging
import threading
import uuid

from qbus.clock import Clock
from qbus.errors import ApiError, ConfigError, ErrorCode

from .checkpoints import (
    LOG_STARTS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    BadCheckpoint,
    encode_partition_metadata,
    read_offsets,
    read_topic_id,
    write_offsets,
)
from .config import LogConfig
from .file_cache import FileCache
from .files import Files, write_atomically
from .log import Log
from .names import DELETED_DIRECTORY_SUFFIX, TopicPartition, parse_partition
from .properties import MetaProperties, check_owner
from .state import SharedState
from .threads import in_threads
from .trash import remove_path

_logger = logging.getLogger(__name__)

LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

_CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1}'
_MAX_NAME = 255


class DataDirectory:
    """A directory of partitions' directories, used by one broker at a time."""

    def __init__(self, path: str, clock: Clock, cache: FileCache) -> None:
        self.path = path
        self.logs: dict[TopicPartition, Log] = {}
        self.unopened: set[TopicPartition] = set()
        self.properties: MetaProperties | None = None
        self.shared = SharedState(path, cache.files, clock, cache)
        self.was_clean = False
        self._files: Files = cache.files
        self._clock = clock
        self._lock: object = None
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self._checkpoint_lock = threading.RLock()

    @property
    def offline(self) -> bool:
        """Whether the directory failed and is not used any more."""
        return self.shared.health.offline

    def acquire(self, cluster_id: str, node_id: int) -> list[TopicPartition]:
        """Make the directory this broker's, until :meth:`close`; the partitions in it.

        None when it cannot be used: it is offline then. Raises ConfigError when it is another's.
        """
        try:
            return self._acquire(cluster_id, node_id)
        except OSError as error:
            self.shared.health.fail(f"open {self.path}", error)
            return []

    def _acquire(self, cluster_id: str, node_id: int) -> list[TopicPartition]:
        if not self._files.exists(self.path):
            self._files.make_directory(self.path)
            self._files.sync_directory(f"{self.path}/..")
        self._lock = self._files.lock(f"{self.path}/{LOCK}")
        if self._lock is None:
            raise ConfigError(f"{self.path} is in use by another broker")
        self.properties = check_owner(self._files, self.path, cluster_id, node_id)
        self._take_marker()
        self._recovery_points = self._read(RECOVERY_POINTS)
        self._log_starts = self._read(LOG_STARTS)
        return self._find_partitions()

    def _take_marker(self) -> None:
        """From here on, a crash must be seen as one."""
        marker = f"{self.path}/{CLEAN_SHUTDOWN}"
        self.was_clean = self._files.exists(marker)
        if self.was_clean:
            self._files.remove(marker)
            self._files.sync_directory(self.path)

    def _read(self, name: str) -> dict[TopicPartition, int]:
        path = f"{self.path}/{name}"
        try:
            return read_offsets(self._files, path)
        except BadCheckpoint as bad:
            _logger.error("%s is passed over: %s", path, bad)  # noqa: TRY400 - no place of ours
            self.was_clean = False
            return {}

    def _find_partitions(self) -> list[TopicPartition]:
        found = []
        for name in self._files.list(self.path):
            partition = parse_partition(name)
            path = f"{self.path}/{name}"
            if name.endswith(DELETED_DIRECTORY_SUFFIX):
                remove_path(self._files, path)
            elif partition is not None and self._files.is_directory(path):
                found.append(partition)
            elif partition is not None:
                _logger.warning("%s is passed over: it is not a directory", path)
        return found

    def open_log(self, partition: TopicPartition, config: LogConfig) -> Log:
        """Open one of the partitions found. Raises ApiError KAFKA_STORAGE_ERROR.

        When it could not be opened for want of space, it stays in ``unopened``, to be tried again.
        """
        self.unopened.add(partition)
        directory = f"{self.path}/{partition}"
        log = Log.open(
            directory,
            config,
            self._clock,
            self._files,
            recovery_point=self._recovery_points.get(partition, 0),
            log_start_offset=self._log_starts.get(partition, 0),
            clean=self.was_clean,
            shared=self.shared,
        )
        log.topic_id = self._read_topic_id(directory)
        self.logs[partition] = log
        self.unopened.discard(partition)
        return log

    def create_log(self, partition: TopicPartition, topic_id: bytes, config: LogConfig) -> Log:
        """Begin a new partition; stable on return. Raises ApiError KAFKA_STORAGE_ERROR."""
        self.shared.health.check()
        directory = f"{self.path}/{partition}"
        self._forget_checkpoints(partition)
        try:
            self._files.make_directory(directory)
            self._write_topic_id(directory, topic_id)
            log = Log.open(directory, config, self._clock, self._files, shared=self.shared)
            log.flush()  # the first segment's name: a log never begins with a later one
            self._files.sync_directory(self.path)
        except OSError as error:
            raise self.shared.health.judge(f"create {directory}", error) from error
        log.topic_id = topic_id
        self.logs[partition] = log
        return log

    def claim_log(self, partition: TopicPartition, topic_id: bytes) -> Log:
        """The log that is there, if it is this topic's, or nobody's because creating it was cut.

        Raises ApiError INCONSISTENT_TOPIC_ID, KAFKA_STORAGE_ERROR.
        """
        log = self.logs[partition]
        if log.topic_id is None:
            try:
                self._write_topic_id(log.directory, topic_id)
            except OSError as error:
                raise self.shared.health.judge(f"write to {log.directory}", error) from error
            log.topic_id = topic_id
        if log.topic_id != topic_id:
            raise ApiError(
                ErrorCode.INCONSISTENT_TOPIC_ID, f"{log.directory} belongs to another topic"
            )
        return log

    def remove_log(self, partition: TopicPartition) -> None:
        """Delete a partition: out of the way at once, its files later.

        Stable on return, its checkpoints gone, so that a partition of the same name can begin anew.
        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        log = self.logs[partition]
        directory = f"{self.path}/{partition}"
        suffix = f"-{partition.partition}.{uuid.uuid4().hex}{DELETED_DIRECTORY_SUFFIX}"
        grave = f"{self.path}/{partition.topic[: _MAX_NAME - len(suffix)]}{suffix}"
        log.abandon()
        try:
            self._files.rename(directory, grave)
            del self.logs[partition]
            self.shared.trash.add(grave, log.config.file_delete_delay_ms)
            self._files.sync_directory(self.path)
        except OSError as error:
            raise self.shared.health.judge(f"delete {directory}", error) from error
        self._forget_checkpoints(partition)

    def truncate_log(self, partition: TopicPartition, offset: int) -> int:
        """Cut a log back to ``offset``; where it ends then. Raises ApiError."""
        with self._checkpoint_lock:
            log = self.logs[partition]
            point = min(log.truncation_point(offset), self._recovery_points.get(partition, 0))
            self._save(RECOVERY_POINTS, self._recovery_points | {partition: point})
            return log.truncate_to(offset)

    def checkpoint(self) -> None:
        """Write down how far each log is stable, and where it starts. Raises ApiError."""
        with self._checkpoint_lock:
            points = self._of_unopened(self._recovery_points)
            for partition, log in dict(self.logs).items():
                known = self._recovery_points.get(partition, 0)
                points[partition] = log.checkpoint() if log.is_usable else known
            self._save(RECOVERY_POINTS, points)
            self.checkpoint_log_starts()

    def checkpoint_log_starts(self) -> None:
        """Write down where each log starts, if not with its first segment. Raises ApiError."""
        with self._checkpoint_lock:
            starts = self._of_unopened(self._log_starts)
            for partition, log in dict(self.logs).items():
                if log.log_start_offset > log.first_segment_offset:
                    starts[partition] = log.log_start_offset
            self._save(LOG_STARTS, starts)

    def _of_unopened(self, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {known: offsets[known] for known in self.unopened if known in offsets}

    def _forget_checkpoints(self, partition: TopicPartition) -> None:
        with self._checkpoint_lock:
            for name, offsets in (
                (RECOVERY_POINTS, self._recovery_points),
                (LOG_STARTS, self._log_starts),
            ):
                self._save(name, {known: offsets[known] for known in offsets if known != partition})

    def _save(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        """Replace a checkpoint that changed. A full disk keeps the old one, which is as true."""
        points = name == RECOVERY_POINTS
        if offsets == (self._recovery_points if points else self._log_starts):
            return
        self.shared.health.check()
        try:
            write_offsets(self._files, f"{self.path}/{name}", offsets)
        except OSError as error:
            raise self.shared.health.judge(f"write {name}", error) from error
        if points:
            self._recovery_points = offsets
        else:
            self._log_starts = offsets

    def close(self, threads: int) -> None:
        """Close all logs, ``threads`` at a time, and let go of the directory.

        If all went well, the disk says so; else the next open recovers from the last checkpoint.
        """
        sound = in_threads(threads, _close, list(self.logs.values()))
        if not self.offline:
            try:
                self._save_closed(sound)
                if not self.unopened and all(sound):
                    self._mark_clean()
            except ApiError as error:
                _logger.warning("%s is not closed cleanly: %s", self.path, error)
        self.logs.clear()
        self._lock = None

    def _save_closed(self, sound: list[bool]) -> None:
        """Write down where the ``sound`` ones of the closed logs are stable: at their ends."""
        with self._checkpoint_lock:
            points = dict(self._recovery_points)
            for (partition, log), is_sound in zip(self.logs.items(), sound, strict=True):
                if is_sound:
                    points[partition] = log.recovery_point
            self._save(RECOVERY_POINTS, points)
            self.checkpoint_log_starts()

    def _mark_clean(self) -> None:
        marker = f"{self.path}/{CLEAN_SHUTDOWN}"
        try:
            write_atomically(self._files, marker, _CLEAN_SHUTDOWN_CONTENT)
        except OSError as error:
            raise self.shared.health.judge(f"write {marker}", error) from error

    def _read_topic_id(self, directory: str) -> bytes | None:
        path = f"{directory}/{PARTITION_METADATA}"
        try:
            return read_topic_id(self._files, path)
        except BadCheckpoint as bad:
            _logger.error("%s is passed over: %s", path, bad)  # noqa: TRY400 - no place of ours
            return None
        except OSError as error:
            raise self.shared.health.judge(f"read {path}", error) from error

    def _write_topic_id(self, directory: str, topic_id: bytes) -> None:
        content = encode_partition_metadata(topic_id)
        write_atomically(self._files, f"{directory}/{PARTITION_METADATA}", content)


def _close(log: Log) -> bool:
    usable = log.is_usable
    try:
        log.close()
    except ApiError as error:
        _logger.warning("%s is not closed cleanly: %s", log.directory, error)
        return False
    return usable
