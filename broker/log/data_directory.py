"""One data directory: its owner's lock, the marker of a clean shutdown, checkpoints, and logs."""

import logging
import os
import threading
import uuid
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from qbus.clock import Clock
from qbus.errors import ApiError, ConfigError, ErrorCode
from qbus.service.descriptors import HOW_TO_RAISE, shortages
from qbus.service.threads import Threads

from .checkpoints import (
    CLEANER_OFFSETS,
    DELETED_TOPICS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    BadCheckpoint,
    DirectoryCheckpoints,
    read_topic_id,
    write_topic_id,
)
from .config import LogConfig
from .controls import MakeFold, NoFold
from .deleted_topics import DeletedTopics
from .file_cache import FileCache
from .files import NO_DESCRIPTOR, PRIVATE, Files, write_all, write_atomically
from .log import Log
from .manifest import MANIFEST, NO_TOPIC_ID, read_manifest
from .moving import MOVE_METADATA, LogMove, read_move
from .names import (
    DELETED_DIRECTORY_SUFFIX,
    FUTURE_DIRECTORY_SUFFIX,
    LOG_SUFFIX,
    STRAY_DIRECTORY_SUFFIX,
    TopicPartition,
    parse_partition,
)
from .namesakes import FoundLog
from .opening import NOT_KNOWN
from .properties import MetaProperties, check_owner
from .state import SharedState
from .trash import remove_path

Item = TypeVar("Item")
Result = TypeVar("Result")

ReadHighWatermarks = Callable[[], Iterable[tuple[Log, int]]]
"""Gives logs and up to where they are acknowledged, as of now."""


# The same work on many things at a time, because each waits for a disk.


def in_threads(threads: int, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """``work`` on each item, ``threads`` at a time, one being the caller's; raises what it does."""
    if threads == 1 or len(items) < 2:
        return [work(item) for item in items]
    with Threads(min(threads, len(items)), "qbus-log") as pool:
        return list(pool.map(work, items))


PROBE = ".room"
_ENOUGH = 4 << 20  # bytes


# Whether there is room in a directory: told by taking some for a moment.
#
# What the file system says to be free may be somebody else's: there are quotas.


def has_room(files: Files, directory: str) -> bool:
    """Write a file of some size, and remove it; whether that went well."""
    path = f"{directory}/{PROBE}"
    try:
        try:
            write_all(files.open(path, write=True), 0, bytes(_ENOUGH))
        finally:
            files.remove(path)
    except OSError:
        return False
    return True


# Making the names in a directory stable: once for all who wait for that.


class DirectorySync:
    """One directory's syncs, one at a time; whoever comes meanwhile shares the next one."""

    __slots__ = ("_begun", "_changed", "_done", "_files", "_is_busy", "_path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._changed = threading.Condition()
        self._begun = self._done = 0
        self._is_busy = False

    def sync(self) -> None:
        """Return when all names that are there now are stable. Raises OSError."""
        with self._changed:
            wanted = self._begun + 1  # one that is under way may have begun too early
            while self._is_busy and self._done < wanted:
                self._changed.wait()
            if self._done >= wanted:
                return
            self._is_busy = True
            self._begun = number = self._begun + 1
        done = 0
        try:
            self._files.sync_directory(self._path)
            done = number
        finally:
            with self._changed:
                self._is_busy = False
                self._done = max(self._done, done)
                self._changed.notify_all()


_logger = logging.getLogger(__name__)

LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

_CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1}'
_MAX_NAME = 255


class DataDirectory:
    """A directory of partitions' directories, used by one broker at a time."""

    def __init__(
        self, path: str, clock: Clock, cache: FileCache, make_fold: MakeFold = NoFold
    ) -> None:
        self.path = path
        self.logs: dict[TopicPartition, Log] = {}
        self.unopened: set[TopicPartition] = set()
        self.moves: dict[TopicPartition, LogMove] = {}
        """The logs that are being moved here, from other directories of the broker."""
        self.cut_moves: list[TopicPartition] = []
        """Those whose move here was cut off by the end of the broker: nothing is left of it."""
        self.copies: set[TopicPartition] = set()
        """Logs found here that count only if they are in no other directory: see :mod:`.moving`."""
        self.strays: dict[str, bytes | None] = {}
        """The logs here that were set aside: their paths, and the ids of their topics."""
        self.properties: MetaProperties | None = None
        self.shared = SharedState(path, cache.files, clock, cache, make_fold)
        self.was_clean = False
        self.recovered: list[int] = []
        """After a crash, how many records of each log lay above its recovery point."""
        self._files: Files = cache.files
        self._clock = clock
        self._lock: object = None
        self._checkpoints = DirectoryCheckpoints(self._files, self.shared.health)
        self._names = DirectorySync(self._files, path)
        self._deleted = DeletedTopics(self._files, path)
        self._removing = threading.Lock()

    @property
    def absolute_path(self) -> str:
        """The directory's path from the root, as clients are told."""
        return os.path.abspath(self.path)  # noqa: PTH100 - touches no disk

    @property
    def offline(self) -> bool:
        """Whether the directory failed and is not used any more."""
        return self.shared.health.offline

    @property
    def problem(self) -> str:
        """Why nothing can be read here, or nothing written; empty where all is well."""
        return self.shared.health.problem

    @property
    def is_full(self) -> bool:
        """Whether there was no room for something, and none was found since."""
        return self.shared.health.is_full

    def look_for_room(self) -> None:
        """See whether a directory that was full has room again."""
        if has_room(self._files, self.path):
            self.shared.health.note_room()

    def acquire(self, cluster_id: str, node_id: int) -> list[TopicPartition]:
        """Make the directory this broker's, until :meth:`close`; the partitions in it.

        None when it cannot be used: it is offline then. Raises ConfigError when it is another's,
        and ApiError KAFKA_STORAGE_ERROR for want of descriptors, which is no fault of the disk.
        """
        try:
            return self._acquire(cluster_id, node_id)
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                why = f"{shortages.describe(error)}; {HOW_TO_RAISE}"
                message = f"cannot open {self.path}: {why}"
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error
            self.shared.health.fail(f"open {self.path}", error)
            return []

    def _acquire(self, cluster_id: str, node_id: int) -> list[TopicPartition]:
        if not self._files.exists(self.path):
            self._files.make_directory(self.path, PRIVATE)
            self._files.sync_directory(f"{self.path}/..")
        self._lock = self._files.lock(f"{self.path}/{LOCK}")
        if self._lock is None:
            raise ConfigError(f"{self.path} is in use by another broker")
        self.properties = check_owner(self._files, self.path, cluster_id, node_id)
        self._take_marker()
        if not self._checkpoints.load():
            self.was_clean = False
        return self._find_partitions()

    def _take_marker(self) -> None:
        """From here on, a crash must be seen as one."""
        marker = f"{self.path}/{CLEAN_SHUTDOWN}"
        self.was_clean = self._files.exists(marker)
        if self.was_clean:
            self._files.remove(marker)
            self._files.sync_directory(self.path)

    def _find_partitions(self) -> list[TopicPartition]:
        self._deleted.load()
        found = []
        graves = []
        for name in self._files.list(self.path):
            partition = parse_partition(name)
            path = f"{self.path}/{name}"
            if name.endswith(DELETED_DIRECTORY_SUFFIX):
                remove_path(self._files, path)
            elif name.endswith(FUTURE_DIRECTORY_SUFFIX):
                moving = read_move(self._files, path)
                self.cut_moves += [moving] if moving else []
                remove_path(self._files, path)
            elif name.endswith(STRAY_DIRECTORY_SUFFIX) and self._files.is_directory(path):
                self.strays[path] = self._topic_id_in(path)
            elif partition is not None and self._files.is_directory(path):
                if self._is_deleted(path):
                    graves.append(self._grave_of(partition))
                    self._files.rename(path, graves[-1])
                    continue
                found.append(partition)
                if read_move(self._files, path) == partition:
                    self.copies.add(partition)
            elif partition is not None:
                _logger.warning("%s is passed over: it is not a directory", path)
        self._throw_away(graves)
        return found

    def _is_deleted(self, directory: str) -> bool:
        """Whether a partition's directory was left by a crash after its topic was deleted."""
        return len(self._deleted) > 0 and self._topic_id_in(directory) in self._deleted

    def _topic_id_in(self, directory: str) -> bytes | None:
        """The id of the topic whose partition a directory holds, if it says so. Raises OSError."""
        is_stray = directory.endswith(STRAY_DIRECTORY_SUFFIX)  # its manifest has its former name
        manifest = None if is_stray else read_manifest(self._files, directory)
        if manifest is not None and manifest.topic_id != NO_TOPIC_ID:
            return manifest.topic_id
        try:
            return read_topic_id(self._files, f"{directory}/{PARTITION_METADATA}")
        except BadCheckpoint:
            return None  # which is told when it is opened

    def _throw_away(self, graves: Sequence[str]) -> None:
        """Remove soon what was found of deleted topics, once it cannot come back."""
        if graves:
            self._files.sync_directory(self.path)
            for grave in graves:
                self.shared.trash.add(grave, 0)
            _logger.info("partitions of deleted topics in %s: %d", self.path, len(graves))
        self._deleted.clear()

    def open_log(
        self, partition: TopicPartition, config: LogConfig, closed: Log | None = None
    ) -> Log:
        """Open one of the partitions found, or the one that was ``closed`` just now.

        When it could not be opened for want of space, it stays in ``unopened``, to be tried again.
        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        self.unopened.add(partition)
        directory = f"{self.path}/{partition}"
        recovery_point = self._checkpoints.get(RECOVERY_POINTS, partition)
        if self._checkpoints.is_damaged(RECOVERY_POINTS):
            recovery_point = NOT_KNOWN
        log_start_offset = self._checkpoints.get(LOG_STARTS, partition)
        clean = self.was_clean
        if self._checkpoints.has(CLEANER_OFFSETS, partition):  # whatever the settings say by now
            config = replace(config, qbus_compacted=True)
        if closed is not None:
            recovery_point, log_start_offset = closed.recovery_point, closed.log_start_offset
            clean = recovery_point == closed.log_end_offset
        log = Log.open(
            directory,
            config,
            self._clock,
            self._files,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            high_watermark=self._checkpoints.get(HIGH_WATERMARKS, partition),
            clean=clean,
            shared=self.shared,
        )
        if closed is None and not clean:
            self.recovered.append(max(log.log_end_offset - max(recovery_point, 0), 0))
        log.topic_id = self._confirm_topic_id(directory, log.topic_id)
        self.logs[partition] = log
        self.unopened.discard(partition)
        return log

    def create_log(self, partition: TopicPartition, topic_id: bytes, config: LogConfig) -> Log:
        """Begin a new partition; stable on return. Raises ApiError KAFKA_STORAGE_ERROR."""
        self.shared.health.check()
        directory = f"{self.path}/{partition}"
        self._checkpoints.forget([partition])
        try:
            self._files.make_directory(directory)
            write_topic_id(self._files, f"{directory}/{PARTITION_METADATA}", topic_id)
            log = Log.open(directory, config, self._clock, self._files, shared=self.shared)
            log.flush()  # syncs the names too: a log never starts with a later segment
            self._names.sync()
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
                write_topic_id(self._files, f"{log.directory}/{PARTITION_METADATA}", topic_id)
                self._files.sync_directory(log.directory)
            except OSError as error:
                raise self.shared.health.judge(f"write to {log.directory}", error) from error
            log.topic_id = topic_id
        if log.topic_id != topic_id:
            raise ApiError(
                ErrorCode.INCONSISTENT_TOPIC_ID, f"{log.directory} belongs to another topic"
            )
        return log

    def note_deleted(self, logs: Mapping[TopicPartition, bytes]) -> None:
        """Write down that logs are to go which are here, given with the ids of their topics.

        Stable on return. The next start removes those that :meth:`remove_logs` has not removed by
        then. Raises ApiError KAFKA_STORAGE_ERROR.
        """
        there = ((self.logs.get(one), topic_id) for one, topic_id in logs.items())
        ids = {topic_id for log, topic_id in there if log and log.topic_id == topic_id}
        try:
            self._deleted.add(ids)
        except OSError as error:
            raise self.shared.health.judge(f"write {DELETED_TOPICS}", error) from error

    def forget_deleted(self, topic_ids: Collection[bytes]) -> None:
        """All logs of deleted topics were removed. Raises ApiError KAFKA_STORAGE_ERROR."""
        try:
            self._deleted.discard(topic_ids)
        except OSError as error:
            raise self.shared.health.judge(f"write {DELETED_TOPICS}", error) from error

    def remove_logs(
        self, partitions: Sequence[TopicPartition], of: Container[bytes | None] | None = None
    ) -> dict[TopicPartition, ApiError]:
        """Delete partitions: out of the way at once, their files later.

        Those that are here, and of the topics with these ids, if any are given. Stable on return,
        so that partitions of the same names can begin anew. Returns the errors of those that are
        left behind, some of them until the next start.
        """
        errors: dict[TopicPartition, ApiError] = {}
        graves: dict[TopicPartition, tuple[str, int]] = {}
        for partition in partitions:
            try:
                with self._removing:
                    log = self.logs.get(partition)
                    if log is None or (of is not None and log.topic_id not in of):
                        continue
                    log.abandon()
                    graves[partition] = self._bury(partition), log.config.file_delete_delay_ms
            except ApiError as error:
                errors[partition] = error
        if not graves:
            return errors
        try:
            self.sync_names()
        except ApiError as error:
            return errors | dict.fromkeys(graves, error)
        for grave, delay_ms in graves.values():
            self.shared.trash.add(grave, delay_ms)
        self._forget(graves)
        return errors

    def _forget(self, gone: Collection[TopicPartition]) -> None:
        """Take what is gone out of the checkpoints, if that can be written.

        On a full disk it stays, and does no harm: creating a log of the same name takes it out
        first. Where there is one by now, what they say is of that.
        """
        try:
            with self._checkpoints.lock:
                self._checkpoints.forget([one for one in gone if one not in self.logs])
        except ApiError as error:
            names = " ".join(sorted(map(str, gone)))
            _logger.warning("%s: checkpoints still name deleted %s: %s", self.path, names, error)

    def _bury(self, partition: TopicPartition) -> str:
        """Put a partition's directory out of the way; where it is then. Raises ApiError.

        Its files may go to the trash once the names are stable: until then, a crash may bring the
        directory back.
        """
        directory, grave = f"{self.path}/{partition}", self._grave_of(partition)
        try:
            self._files.rename(directory, grave)
        except OSError as error:
            raise self.shared.health.judge(f"delete {directory}", error) from error
        self.shared.cache.forget_directory(directory)  # late readers may have opened files anew
        self.logs.pop(partition, None)
        self.unopened.discard(partition)
        return grave

    def _grave_of(self, partition: TopicPartition, kind: str = DELETED_DIRECTORY_SUFFIX) -> str:
        """A new name for the directory of a partition that is deleted, or set aside."""
        suffix = f"-{partition.partition}.{uuid.uuid4().hex}{kind}"
        return f"{self.path}/{partition.topic[: _MAX_NAME - len(suffix)]}{suffix}"

    # Logs that were found here though the partition is elsewhere: see :mod:`.namesakes`

    def look_at(self, partition: TopicPartition) -> FoundLog:
        """What a partition's directory says of itself, before it is opened. Raises ApiError."""
        directory = f"{self.path}/{partition}"
        try:
            topic_id = self._topic_id_in(directory)
            has_records = any(
                name.endswith(LOG_SUFFIX) and self._files.size(f"{directory}/{name}") > 0
                for name in self._files.list(directory)
            )
        except OSError as error:
            raise self.shared.health.judge(f"read {directory}", error) from error
        return FoundLog(self.path, topic_id, has_records)

    def set_aside(self, partition: TopicPartition, topic_id: bytes | None) -> str:
        """Keep a partition's directory under a name that is no partition's; where it is then.

        Stable on return. Raises ApiError KAFKA_STORAGE_ERROR.
        """
        self.shared.health.check()
        directory = f"{self.path}/{partition}"
        path = self._grave_of(partition, STRAY_DIRECTORY_SUFFIX)
        try:
            self._files.rename(directory, path)
        except OSError as error:
            raise self.shared.health.judge(f"rename {directory} to {path}", error) from error
        # What is opened or begun under the name from here on is another log, stable or not.
        self.shared.cache.forget_directory(directory)  # late readers may have opened files anew
        self.unopened.discard(partition)
        self.sync_names()
        self.copies.discard(partition)
        self.strays[path] = topic_id
        self._forget([partition])
        return path

    def set_log_aside(self, partition: TopicPartition, topic_id: bytes) -> str | None:
        """Close a log and set it aside, if it is here and of this topic; where it is then.

        Raises ApiError KAFKA_STORAGE_ERROR: it may still be in the way, open or not.
        """
        with self._removing:
            log = self.logs.get(partition)
            if log is None or log.topic_id != topic_id:
                return None
            self.close_log(partition)
            return self.set_aside(partition, topic_id)

    def remove_strays(self, topic_ids: Container[bytes | None]) -> list[str]:
        """Remove soon what was set aside of these topics, which are deleted; their paths."""
        gone = [path for path, topic_id in [*self.strays.items()] if topic_id in topic_ids]
        for path in gone:
            del self.strays[path]
            self.shared.trash.add(path, 0)
        return gone

    # A log that moves to another directory of the broker: from here, and to here

    def close_log(self, partition: TopicPartition) -> Log:
        """Close one log: it stays in ``unopened`` until it is opened again, or is gone.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        log = self.logs[partition]
        log.close()
        self.unopened.add(partition)
        del self.logs[partition]
        return log

    def remove_closed(self, log: Log) -> None:
        """Delete a log that was closed; stable on return. Raises ApiError KAFKA_STORAGE_ERROR."""
        grave = self._bury(log.topic_partition)
        self.sync_names()
        self.shared.trash.add(grave, log.config.file_delete_delay_ms)
        self._forget([log.topic_partition])

    def sync_names(self) -> None:
        """Make the names of partitions stable, as they are seen now. Raises ApiError."""
        try:
            self._names.sync()
        except OSError as error:
            raise self.shared.health.judge(f"sync {self.path}", error) from error

    def has(self, partition: TopicPartition) -> bool:
        """Whether a partition is known to have a directory here. For a thread."""
        return not self.offline and self._files.exists(f"{self.path}/{partition}")

    def adopt(self, move: LogMove, high_watermark: int) -> None:
        """Give a whole copy of a log that is closed its name; it is a copy still.

        Stable on return. Raises ApiError KAFKA_STORAGE_ERROR.
        """
        partition, log = move.partition, move.log
        directory = f"{self.path}/{partition}"
        with self._checkpoints.lock:
            self.unopened.add(partition)  # which keeps these
            self._checkpoints.set(RECOVERY_POINTS, partition, log.recovery_point)
            self._checkpoints.set(LOG_STARTS, partition, log.log_start_offset)
            self._checkpoints.set(HIGH_WATERMARKS, partition, high_watermark)
        try:
            self._files.rename(move.path, directory)
            self._names.sync()
        except OSError as error:
            raise self.shared.health.judge(f"rename {move.path} to {directory}", error) from error

    def confirm_copy(self, partition: TopicPartition) -> None:
        """Let a copy be the log from now on; stable on return. Raises ApiError."""
        directory = f"{self.path}/{partition}"
        try:
            self._files.remove(f"{directory}/{MOVE_METADATA}")
            self._files.sync_directory(directory)
        except OSError as error:
            raise self.shared.health.judge(f"write to {directory}", error) from error
        self.copies.discard(partition)

    def drop_copy(self, partition: TopicPartition) -> None:
        """Remove a copy: the log is elsewhere. Raises ApiError KAFKA_STORAGE_ERROR."""
        directory = f"{self.path}/{partition}"
        try:
            remove_path(self._files, directory)
            self._names.sync()
        except OSError as error:
            raise self.shared.health.judge(f"delete {directory}", error) from error
        self.copies.discard(partition)
        self.unopened.discard(partition)
        self._checkpoints.forget([partition])

    def truncate_log(self, partition: TopicPartition, offset: int) -> int:
        """Cut a log back to ``offset``; where it ends then. Raises ApiError."""
        with self._checkpoints.lock:
            log = self.logs[partition]
            point = log.truncation_point(offset)
            self._checkpoints.lower(RECOVERY_POINTS, partition, point)
            self._checkpoints.lower(LOG_STARTS, partition, point)
            self._checkpoints.lower(CLEANER_OFFSETS, partition, point)
            # Other records may have these offsets soon, which nobody has acknowledged.
            self._checkpoints.lower(HIGH_WATERMARKS, partition, point)
            return log.truncate_to(offset)

    def restart_log(self, partition: TopicPartition, offset: int) -> None:
        """Drop all that a log has, and let it go on with ``offset``; stable on return.

        The checkpoints say so first: a crash leaves what was there, or a part of that from its
        front on; where ``offset`` is beyond its end, the log is found to start there, empty. A log
        that is corrupt can be used again. Raises ApiError.
        """
        with self._checkpoints.lock:
            log = self.logs[partition]
            log.drop_snapshots()
            least = min(offset, log.first_segment_offset)
            self._checkpoints.lower(RECOVERY_POINTS, partition, least)
            self._checkpoints.lower(CLEANER_OFFSETS, partition, least)
            self._checkpoints.lower(HIGH_WATERMARKS, partition, least)
            if log.is_usable and offset < log.log_end_offset:
                log.truncate_to(log.first_segment_offset)
            self._checkpoints.set(LOG_STARTS, partition, offset)
            log.restart_at(offset)

    def cleaned_before(self, partition: TopicPartition) -> int:
        """The first offset of a log that was not compacted yet, as far as it was written down."""
        return self._checkpoints.get(CLEANER_OFFSETS, partition)

    def checkpoint_cleaned(self, partition: TopicPartition, offset: int) -> None:
        """Write down that a log is compacted before ``offset``. Raises ApiError."""
        self._checkpoints.set(CLEANER_OFFSETS, partition, offset)

    def checkpoint(self) -> None:
        """Write down how far each log is stable, and where it starts. Raises ApiError."""
        with self._checkpoints.lock:
            points = self._checkpoints.of(RECOVERY_POINTS, self.unopened)
            for partition, log in dict(self.logs).items():
                known = self._checkpoints.get(RECOVERY_POINTS, partition)
                points[partition] = log.checkpoint() if log.is_usable else known
            self._checkpoints.save(RECOVERY_POINTS, points)
            self.checkpoint_log_starts()

    def checkpoint_log_starts(self) -> None:
        """Write down where each log starts, if not with its first segment. Raises ApiError."""
        with self._checkpoints.lock:
            starts = self._checkpoints.of(LOG_STARTS, self.unopened)
            for partition, log in dict(self.logs).items():
                if log.log_start_offset > log.first_segment_offset:
                    starts[partition] = log.log_start_offset
            self._checkpoints.save(LOG_STARTS, starts)

    def checkpoint_high_watermarks(self, read: ReadHighWatermarks) -> None:
        """Write down up to where logs are acknowledged, as far as known. Raises ApiError.

        They are read while nobody can cut a log. One that was read before could be written when
        other records have its offset, which are not acknowledged; after a crash they would count as
        such. For the same reason a log's end bounds it: the partition hears of a cut later.
        """
        with self._checkpoints.lock:
            known = self._checkpoints.of(HIGH_WATERMARKS, {*self.unopened, *self.logs})
            for log, offset in read():
                partition = log.topic_partition
                if self.logs.get(partition) is log:  # and not of a namesake that was deleted
                    known[partition] = min(offset, log.log_end_offset)
            self._checkpoints.save(HIGH_WATERMARKS, known)

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
        with self._checkpoints.lock:
            points = self._checkpoints.of(RECOVERY_POINTS, {*self.unopened, *self.logs})
            for (partition, log), is_sound in zip(self.logs.items(), sound, strict=True):
                if is_sound:
                    points[partition] = log.recovery_point
            self._checkpoints.save(RECOVERY_POINTS, points)
            self.checkpoint_log_starts()

    def _mark_clean(self) -> None:
        marker = f"{self.path}/{CLEAN_SHUTDOWN}"
        try:
            write_atomically(self._files, marker, _CLEAN_SHUTDOWN_CONTENT)
        except OSError as error:
            raise self.shared.health.judge(f"write {marker}", error) from error

    def _confirm_topic_id(self, directory: str, listed: bytes | None) -> bytes | None:
        """The id of a partition's topic: that of the manifest, which has a CRC, if it has one.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        topic_id = self._read_topic_id(directory)
        if listed is None or topic_id == listed:
            return topic_id
        path = f"{directory}/{PARTITION_METADATA}"
        problem = "missing" if topic_id is None else f"damaged: it has the id {topic_id.hex()}"
        _logger.warning(
            "%s is %s; it is made anew with %s, which %s has", path, problem, listed.hex(), MANIFEST
        )
        try:
            write_topic_id(self._files, path, listed)
            self._files.sync_directory(directory)
        except OSError as error:
            raise self.shared.health.judge(f"write {path}", error) from error
        return listed

    def _read_topic_id(self, directory: str) -> bytes | None:
        path = f"{directory}/{PARTITION_METADATA}"
        try:
            return read_topic_id(self._files, path)
        except BadCheckpoint as bad:
            _logger.error("%s is passed over: %s", path, bad)  # noqa: TRY400 - no place of ours
            return None
        except OSError as error:
            raise self.shared.health.judge(f"read {path}", error) from error


def _close(log: Log) -> bool:
    usable = log.is_usable
    try:
        log.close()
    except ApiError as error:
        _logger.warning("%s is not closed cleanly: %s", log.directory, error)
        return False
    return usable
