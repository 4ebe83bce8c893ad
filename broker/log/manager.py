"""All logs of a broker, in one or more data directories."""

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Self

from qbus.clock import Clock
from qbus.errors import ApiError, ErrorCode

from .config import LogConfig
from .controls import MakeFold, NoFold
from .data_directory import DataDirectory, ReadHighWatermarks, in_threads
from .file_cache import FileCache
from .files import Files, OsFiles
from .log import Log
from .moving import LogMove, MoveEndedError
from .names import TopicPartition
from .namesakes import FoundLog, check_unique, outdated

_logger = logging.getLogger(__name__)

_THREADS = 8
_FILES = 256


def _no_topic(_: str) -> None:
    """No topic is known."""


class LogManager:
    """Opens, creates, deletes and closes logs, and keeps their checkpoints.

    ``get``, ``logs``, ``directories``, ``is_offline``, ``strays`` and ``remove_strays`` do no IO;
    everything else waits for disks and is for threads. What fails takes its directory offline: see
    :class:`DirectoryHealth`.
    """

    def __init__(self, directories: list[DataDirectory], threads: int, files: Files) -> None:
        """Use :meth:`open`."""
        self.directories = tuple(directories)
        self._threads = threads
        self._files = files
        self._wanted: dict[TopicPartition, DataDirectory] = {}  # where to create logs
        self._choosing = threading.Lock()
        self._begun: Counter[str] = Counter()  # logs that are being created, by directory
        self._some_missing = any(directory.offline for directory in directories)

    @classmethod
    def open(  # noqa: PLR0913 - options are keywords
        cls,
        data_dirs: Sequence[str],
        config_for: Callable[[str], LogConfig],
        clock: Clock,
        files: Files | None = None,
        *,
        node_id: int,
        cluster_id: str,
        threads: int = _THREADS,
        most_files: int = _FILES,
        make_fold: MakeFold = NoFold,
        topic_id_of: Callable[[str], bytes | None] = _no_topic,
    ) -> Self:
        """Open every log found in ``data_dirs``, after a crash ``threads`` at a time.

        ``most_files`` of their segments and indexes stay open, see :class:`.file_cache.FileCache`.

        ``config_for`` gives a topic's settings, ``make_fold`` begins what the hidden batches of a
        log add up to, ``topic_id_of`` gives the id of the topic that has a name now. A directory
        that cannot be used is offline. Of the logs of one partition in several directories, those
        of former topics are set aside: see :mod:`.namesakes`.

        Raises:
            ConfigError: a directory is in use by, or belongs to, another broker or cluster; logs of
                one partition are in two of them, and nothing tells which one counts.
            ApiError: KAFKA_STORAGE_ERROR, no directory can be used, or a former topic's log cannot
                be set aside.
        """
        begun = clock.monotonic()
        files = files or OsFiles()
        cache = FileCache(files, most_files)
        if isinstance(files, OsFiles):
            files.make_room = cache.close_one
        directories = [
            DataDirectory(path.rstrip("/"), clock, cache, make_fold) for path in data_dirs
        ]
        found = [
            (directory, partition)
            for directory in directories
            for partition in directory.acquire(cluster_id, node_id)
        ]
        found = _set_namesakes_aside(found, topic_id_of)
        found = _settle_copies(directories, found)
        check_unique(
            {key: [one.path for one in some] for key, some in _by_partition(found).items()}
        )
        # Logs that were closed have little to read: there threads only get in each other's way.
        clean = all(directory.was_clean for directory in directories)
        in_threads(
            1 if clean else threads, lambda item: _open_log(item[0], item[1], config_for), found
        )
        manager = cls(directories, threads, files)
        manager.checkpoint()
        for directory in directories:
            if directory.recovered:
                _logger.info(
                    "%s was not closed cleanly; logs checked above their recovery points: %d,"
                    " records there: %d",
                    directory.path,
                    len(directory.recovered),
                    sum(directory.recovered),
                )
        seconds = clock.monotonic() - begun
        _logger.info("logs opened: %d, in %.3f s", len(manager.logs()), seconds)
        manager.check_online()
        return manager

    @property
    def open_files(self) -> FileCache:
        """The open files of all logs."""
        return self.directories[0].shared.cache

    def check_online(self) -> None:
        """Raise ApiError KAFKA_STORAGE_ERROR when every directory is offline."""
        if all(directory.offline for directory in self.directories):
            why = "; ".join(f"{one.path}: {one.shared.health.failure}" for one in self.directories)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"no data directory can be used: {why}")

    def get(self, topic: str, partition: int) -> Log | None:
        """The log of a partition, if this broker has it."""
        key = TopicPartition(topic, partition)
        for directory in self.directories:
            log = directory.logs.get(key)
            if log is not None:
                return log
        return None

    def logs(self) -> dict[TopicPartition, Log]:
        """Every log."""
        return {key: log for directory in self.directories for key, log in directory.logs.items()}

    def create(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: LogConfig,
        *,
        is_new: bool = False,
    ) -> Log:
        """Begin the log of a partition; stable on return.

        In the directory that :meth:`prefer` was told, or the one that has fewest.

        A partition that is not known to be new may be in a directory that could not be opened:
        without ``is_new``, such a directory means refusal. A log that is there already is returned.
        Raises ApiError KAFKA_STORAGE_ERROR, INCONSISTENT_TOPIC_ID.
        """
        key = TopicPartition(topic, partition)
        online = [directory for directory in self.directories if not directory.offline]
        if self._some_missing and not is_new:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{topic}-{partition} may be in a data directory that is offline",
            )
        self.check_online()
        for directory in online:
            if key in directory.unopened:
                directory.open_log(key, config)
            if key in directory.logs:
                return directory.claim_log(key, topic_id)
        with self._choosing:
            directory = min(online, key=lambda one: len(one.logs) + self._begun[one.path])
            wanted = self._wanted.pop(key, directory)
            directory = directory if wanted.offline else wanted
            self._begun[directory.path] += 1
        try:
            return directory.create_log(key, topic_id, config)
        finally:
            with self._choosing:
                self._begun[directory.path] -= 1

    def delete(self, topic: str, partition: int) -> None:
        """Delete a partition: gone at once, its files later. Raises ApiError."""
        self._directory_of(topic, partition)
        for error in self.delete_many([TopicPartition(topic, partition)]).values():
            raise error

    def delete_many(
        self,
        partitions: Collection[TopicPartition],
        of: Container[bytes | None] | None = None,
    ) -> dict[TopicPartition, ApiError]:
        """Delete those of the partitions that are here, each directory's together.

        ``of``: only what belongs to the topics with these ids. Returns the errors of those that are
        left behind.
        """
        errors: dict[TopicPartition, ApiError] = {}
        for directory in self.directories:
            some = [one for one in partitions if one in directory.logs]
            errors |= directory.remove_logs(some, of)
        return errors

    def set_aside(self, partition: TopicPartition, topic_id: bytes) -> None:
        """Keep a log of this topic, if it is here, under a name that is no partition's.

        Stable on return. Raises ApiError KAFKA_STORAGE_ERROR.
        """
        for directory in self.directories:
            path = directory.set_log_aside(partition, topic_id)
            if path is not None:
                _logger.info(
                    "the log of %s makes way for that of another topic of the same name. Whether"
                    " its own topic, %s, was deleted is not known yet: it is set aside as %s",
                    *(partition, topic_id.hex(), path),
                )

    def is_offline(self, partition: TopicPartition) -> bool:
        """Whether a log is in a directory that failed: it is out of reach until a restart."""
        return any(one.offline for one in self.directories if partition in one.logs)

    def note_deleted(self, logs: Mapping[TopicPartition, bytes]) -> None:
        """Write down that logs are to go, given with the ids of their topics.

        A crash before :meth:`delete_many` has removed them leaves it to the next start. Where it
        cannot be written, that is logged.
        """
        for directory in self.directories:
            _try(directory, partial(directory.note_deleted, logs))

    def forget_deleted(self, topic_ids: Collection[bytes]) -> None:
        """All logs of these topics were deleted: nothing is left for the next start."""
        for directory in self.directories:
            _try(directory, partial(directory.forget_deleted, topic_ids))

    def strays(self) -> dict[str, bytes | None]:
        """The paths of logs that were set aside, with the ids of their topics."""
        found = (one for directory in self.directories for one in [*directory.strays.items()])
        return dict(found)

    def remove_strays(self, topic_ids: Container[bytes | None]) -> int:
        """Remove soon the logs that were set aside of these topics, which are deleted; how many."""
        return sum(len(directory.remove_strays(topic_ids)) for directory in self.directories)

    def truncate(self, topic: str, partition: int, offset: int) -> int:
        """Cut a log back to ``offset``, its checkpoint first; where it ends. Raises ApiError."""
        directory = self._directory_of(topic, partition)
        return directory.truncate_log(TopicPartition(topic, partition), offset)

    def restart_at(self, topic: str, partition: int, offset: int) -> None:
        """Drop all that a log has, be it corrupt, and let it go on with ``offset``.

        For a follower whose leader's log has nothing in common with its own. Raises ApiError.
        """
        directory = self._directory_of(topic, partition)
        directory.restart_log(TopicPartition(topic, partition), offset)

    # Moving logs between directories

    def directory_at(self, path: str) -> DataDirectory:
        """The data directory ``path``, absolute or as it was given.

        Raises ApiError: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR when it is offline.
        """
        directory = self._directory_named(path)
        directory.shared.health.check()
        return directory

    def _directory_named(self, path: str) -> DataDirectory:
        for directory in self.directories:
            if path.rstrip("/") in {directory.path, directory.absolute_path}:
                return directory
        raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is no data directory of this broker")

    def prefer(self, topic: str, partition: int, directory: DataDirectory) -> None:
        """Have a partition that is not here yet created in ``directory``."""
        self._wanted[TopicPartition(topic, partition)] = directory

    def begin_move(self, log: Log, target: DataDirectory) -> LogMove:
        """Begin to move ``log``: :meth:`LogMove.copy` comes next. Raises ApiError."""
        move = LogMove(log, target.path, target.shared.health, self._files)
        try:
            move.begin()
        except ApiError:
            _remove_copy(move, target)
            raise
        target.moves[move.partition] = move
        return move

    def finish_move(self, move: LogMove, high_watermark: int) -> Log:
        """Close the log, copy what is left, and open it where it is then; see ``move.is_done``.

        It is opened where it was if it cannot be moved, or has been cut since it was copied. Raises
        ApiError KAFKA_STORAGE_ERROR: it cannot be opened, or must not be until a restart.
        """
        key, config = move.partition, move.log.config
        source = self._directory_of(*key)
        target = self._directory_named(move.target)
        try:
            target.shared.health.check()
        except ApiError as error:  # the log need not be closed for that
            move.problem = str(error)
            move.log.checkpointed_high_watermark = high_watermark
            return move.log
        try:
            closed = source.close_log(key)
        except ApiError as error:
            move.problem = str(error)
            raise
        try:
            if not move.is_outdated:
                move.copy_rest()
                target.adopt(move, high_watermark)
                source.remove_closed(closed)
                move.is_done = True
                target.confirm_copy(key)
        except MoveEndedError:
            pass
        except ApiError as error:
            move.problem = str(error)
            if move.is_done or not source.has(key):
                # What of it is on disk is not known: it must be looked for, and not begun anew.
                self._some_missing = True
                raise
            with suppress(ApiError):  # else the next start does it
                target.drop_copy(key)
        log = (target if move.is_done else source).open_log(key, config, closed)
        log.checkpointed_high_watermark = high_watermark
        if not move.is_done:
            move.begin_anew(log)
        return log

    def end_move(self, move: LogMove) -> None:
        """Remove what was copied of a move that was given up, or is done."""
        target = self._directory_named(move.target)
        if target.moves.get(move.partition) is move:
            del target.moves[move.partition]
        _remove_copy(move, target)

    def checkpoint_high_watermarks(self, read: ReadHighWatermarks) -> None:
        """Write down high watermarks: those read, the others stay as they were written last.

        They are found again as ``Log.checkpointed_high_watermark``. ``read`` is called for each
        directory, in this thread.
        """
        for directory in self.directories:
            _try(directory, partial(directory.checkpoint_high_watermarks, read))

    # Compaction

    def cleaned_before(self, topic: str, partition: int) -> int:
        """The first offset of a log that was not compacted yet. Raises ApiError."""
        directory = self._directory_of(topic, partition)
        return directory.cleaned_before(TopicPartition(topic, partition))

    def checkpoint_cleaned(self, topic: str, partition: int, offset: int) -> None:
        """Write down that a log is compacted before ``offset``. Raises ApiError."""
        directory = self._directory_of(topic, partition)
        directory.checkpoint_cleaned(TopicPartition(topic, partition), offset)

    def is_moving(self, topic: str, partition: int) -> bool:
        """Whether a log is being moved to another directory of the broker."""
        key = TopicPartition(topic, partition)
        return any(key in directory.moves for directory in self.directories)

    def checkpoint(self) -> None:
        """Write down recovery points and log starts: a crash then costs reading what came later."""
        for directory in self.directories:
            _try(directory, directory.checkpoint)

    def checkpoint_log_starts(self) -> list[DataDirectory]:
        """Write down where logs start, so that deleted records stay deleted after a crash.

        Returns the directories where that failed.
        """
        return [
            directory
            for directory in self.directories
            if not _try(directory, directory.checkpoint_log_starts)
        ]

    def empty_trash(self) -> int:
        """Remove files deleted ``file.delete.delay.ms`` ago; how many."""
        return sum(directory.shared.trash.empty() for directory in self.directories)

    def close(self) -> None:
        """Close every log, leaving each directory marked as clean where all went well."""
        for directory in self.directories:
            directory.close(self._threads)

    def _directory_of(self, topic: str, partition: int) -> DataDirectory:
        key = TopicPartition(topic, partition)
        for directory in self.directories:
            if key in directory.logs:
                return directory
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no log of {key}")


def _open_log(
    directory: DataDirectory, partition: TopicPartition, config_for: Callable[[str], LogConfig]
) -> None:
    _try(directory, lambda: directory.open_log(partition, config_for(partition.topic)))


def _try(directory: DataDirectory, work: Callable[[], object]) -> bool:
    """Whether it worked. One directory's failure is its own: the others go on."""
    if directory.offline:
        return False
    try:
        work()
    except ApiError as error:
        _logger.warning("%s: %s", directory.path, error)
        return False
    return True


def _remove_copy(move: LogMove, target: DataDirectory) -> None:
    if target.offline:
        return
    try:
        move.remove_copy()
    except OSError as error:
        _logger.warning("%s is left behind until the next start: %s", move.path, error)


def _settle_copies(
    directories: list[DataDirectory], found: list[tuple[DataDirectory, TopicPartition]]
) -> list[tuple[DataDirectory, TopicPartition]]:
    """What to open of ``found``: a copy, if a move was cut off when nothing else was left of it."""
    if not any(directory.copies for directory in directories):
        return found
    for directory in directories:
        _try(directory, directory.sync_names)  # what is seen to be gone must stay gone
    logs = {key for directory, key in found if key not in directory.copies}
    is_complete = not any(directory.offline for directory in directories)
    opened = []
    for directory, key in found:
        if key not in directory.copies:
            opened.append((directory, key))
        elif key in logs:
            _try(directory, partial(directory.drop_copy, key))
        elif is_complete:
            if _try(directory, partial(directory.confirm_copy, key)):
                opened.append((directory, key))
        else:
            directory.unopened.add(key)
            _logger.warning(
                "%s/%s is not opened: it was being moved here, and may be in the directory"
                " that is offline",
                directory.path,
                key,
            )
    return opened


def _by_partition(
    found: list[tuple[DataDirectory, TopicPartition]],
) -> dict[TopicPartition, list[DataDirectory]]:
    """The directories that each partition is in."""
    places: dict[TopicPartition, list[DataDirectory]] = defaultdict(list)
    for directory, key in found:
        places[key].append(directory)
    return places


def _set_namesakes_aside(
    found: list[tuple[DataDirectory, TopicPartition]], topic_id_of: Callable[[str], bytes | None]
) -> list[tuple[DataDirectory, TopicPartition]]:
    """What is left of ``found`` without the logs of former topics that had a topic's name."""
    places = _by_partition(found)
    several = {key: _look_at(key, some) for key, some in places.items() if len(some) > 1}
    ids = {key: topic_id_of(key.topic) for key in several}
    # All are judged before the first one is touched: an operator who has to choose finds them all.
    outdated_ones = [
        (key, one) for key, logs in several.items() for one in outdated(key, logs, ids[key])
    ]
    by_path = {directory.path: directory for directory, _ in found}
    gone = set()
    for key, one in outdated_ones:
        directory = by_path[one.place]
        try:
            path = directory.set_aside(key, one.topic_id)
        except ApiError:
            if not directory.offline:
                raise
        else:
            rest = [f"{other.place}/{key}" for other in several[key] if other is not one]
            _tell_set_aside(f"{one.place}/{key}", path, _why(one.topic_id, ids[key]), rest)
        gone.add((one.place, key))
    return [
        (directory, key)
        for directory, key in found
        if (directory.path, key) not in gone and not (key in several and directory.offline)
    ]


def _look_at(key: TopicPartition, directories: Sequence[DataDirectory]) -> list[FoundLog]:
    """What the directories have of a partition, as far as they can be read."""
    found = []
    for directory in directories:
        try:
            found.append(directory.look_at(key))
        except ApiError:
            if not directory.offline:
                raise
    return found


def _why(topic_id: bytes | None, topic_id_now: bytes | None) -> str:
    """Why a log is set aside whose topic has the id ``topic_id``."""
    if topic_id is None:
        return "it has no records, and does not say to which topic it belongs"
    if topic_id_now is None:
        return "there is no topic of that name, and logs of two topics that had it"
    return "it belongs to another topic, deleted since, than the one that has the name now"


def _tell_set_aside(directory: str, path: str, why: str, rest: Sequence[str]) -> None:
    _logger.warning(
        "%s is set aside as %s: %s. Of the same partition there is also %s",
        *(directory, path, why, " and ".join(rest)),
    )
