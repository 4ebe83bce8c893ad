"""What the parts of a log share."""

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable
from contextlib import nullcontext
from typing import Final, NamedTuple

from qbus.clock import Clock
from qbus.errors import ApiError, ErrorCode
from qbus.service.descriptors import shortages

from .config import LogConfig
from .controls import MakeFold, NoFold
from .damage import DamagedRange, extent
from .damage_file import DamageEntry, entries_of, save_damage
from .file_cache import FileCache
from .files import NO_DESCRIPTOR, PASSING, Files
from .health import Corruption, DirectoryHealth
from .opening import OpenedLog
from .scan import BadBatch
from .segment import LogSegment
from .trash import Trash

_logger = logging.getLogger(__name__)

_MAX_CORRUPTIONS: Final = 100  # the latest


class SharedState:
    """What the logs of one data directory share; files may be cached for several of them.

    ``make_fold`` begins what the hidden batches of each log add up to.
    """

    def __init__(
        self,
        path: str,
        files: Files,
        clock: Clock,
        cache: FileCache | None = None,
        make_fold: MakeFold = NoFold,
    ) -> None:
        self.make_fold = make_fold
        self.cache = FileCache(files) if cache is None else cache  # an empty one is false
        self.health = DirectoryHealth(path)
        self.trash = Trash(files, clock)


class DamagedBatches(NamedTuple):
    """Batches of a log that cannot be read: where they are, and since when that is known.

    ``last_offset`` is included, -1 where it is not known; ``size`` is in bytes, 0 where the file
    ends before them.
    """

    path: str
    position: int
    size: int
    first_offset: int
    last_offset: int
    problem: str
    since_ms: int


class LogState:
    """One log's state and the two locks that guard it.

    ``lock`` is held to change anything below, never while waiting for a disk to sync. ``sync_lock``
    is held by whoever makes things stable or takes files away, and is taken before ``lock``.
    ``segments`` is replaced as a whole, so that reading needs neither.
    """

    def __init__(
        self,
        directory: str,
        opened: OpenedLog,
        config: LogConfig,
        clock: Clock,
        shared: SharedState,
    ) -> None:
        self.directory = directory
        self.config = config
        self.clock = clock
        self.cache = shared.cache
        self.health = shared.health
        self.trash = shared.trash
        self.lock = threading.Lock()
        self.sync_lock = threading.RLock()
        self.segments = opened.segments
        self.log_start_offset = opened.log_start_offset
        self.epochs = opened.epochs
        self.producers = opened.producers
        self.aborted = opened.aborted
        self.make_fold = shared.make_fold
        self.controls = opened.controls
        self.has_hidden = opened.has_hidden  # or had: whether there are batches to be kept back
        self.snapshots = opened.snapshots
        self.control_snapshots = opened.control_snapshots
        self.topic_id = opened.topic_id  # None: it is not known
        self.retention_blocked_ms = 0  # the future timestamp that retention.ms waits for; 0: none
        self.rewrites = 0  # how often records were cut off, repaired in place, or compacted
        self.corruptions: list[Corruption] = []
        self.refusal: ApiError | None = None
        self.corruption: Corruption | None = None
        self.corrupt_since_ms = 0
        self.is_refused_for_damage = False  # and whole but for that
        self._saved_damage: list[DamageEntry] | None = None  # None: the file is not known
        self.on_corruption: Callable[[Corruption], None] | None = None

    def configure(self, config: LogConfig) -> None:
        """Work by other settings. That a log may have gaps is never taken back."""
        with self.lock:
            self.config = config
            self.producers.limit = config.max_producers
            if config.may_have_gaps:
                for segment in self.segments:
                    segment.gaps = True

    @property
    def active(self) -> LogSegment:
        """The segment that is appended to."""
        return self.segments[-1]

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.segments[-1].end[0]

    def segment_of(self, offset: int) -> LogSegment:
        """The segment that has ``offset``; the first one for offsets before it."""
        segments = self.segments
        if offset >= segments[-1].base_offset:
            return segments[-1]
        return segments[max(bisect_right(segments, offset, key=_base_offset) - 1, 0)]

    def check_usable(self) -> None:
        """Raise ApiError when the log or its directory must not be used."""
        if self.health.failure is not None:
            self.health.check()
        if self.refusal is not None:
            raise ApiError(self.refusal.code, self.refusal.message)

    def check_readable(self) -> None:
        """Raise ApiError likewise, for a reader: corrupt data is CORRUPT_MESSAGE.

        Consumers report that code and wait; KAFKA_STORAGE_ERROR sends them looking for a leader.
        """
        if self.health.failure is None and self.corruption is not None:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(self.corruption))
        self.check_usable()

    def excuse(self, segment: LogSegment, error: OSError) -> ApiError | None:
        """What to tell who could not read ``segment``, if ``error`` means no bad data.

        The segment, or the whole log, may be gone since it was looked up.
        """
        if self.refusal is not None:
            return ApiError(self.refusal.code, self.refusal.message)
        if segment not in self.segments:
            return ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{segment.path} is gone")
        if error.errno in NO_DESCRIPTOR:
            shortages.report(f"read {segment.path}", error)
        if error.errno in PASSING:
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot read {segment.path}: {error}")
        return None

    def report(self, corruption: Corruption) -> None:
        """Make ``corruption`` known: once for each place."""
        if any(known.is_at_place_of(corruption) for known in self.corruptions):
            return
        del self.corruptions[: -_MAX_CORRUPTIONS + 1]
        self.corruptions.append(corruption)
        _logger.error("corrupt data: %s", corruption)
        if self.on_corruption is not None:
            self.on_corruption(corruption)

    def note_damage(self, bad: BadBatch, *, is_locked: bool = False) -> bool:
        """Make a bad batch known, and step over it from now on; whether that is new.

        ``is_locked``: the caller has the log's lock, and must not wait for the disk to sync. Raises
        OSError.
        """
        segment = next((one for one in self.segments if one.path == bad.path), None)
        is_new = segment is not None and not _is_known(segment, bad)
        if segment is not None and is_new and bad.position >= 0 and not is_locked:
            bad = segment.first_bad(bad)
        self.report(Corruption(bad.path or self.directory, bad.position, bad.offset, bad.problem))
        if segment is None or min(bad.position, bad.offset) < 0 or _is_known(segment, bad):
            return False
        end_offset, size = segment.end
        damaged = extent(
            segment.file, bad, size, end_offset, at_least=0, since_ms=self.clock.time_ms()
        )
        with nullcontext() if is_locked else self.lock:
            if segment not in self.segments or segment.size < damaged.end.position:
                return False
            segment.set_damaged(damaged)
        if not is_locked:
            self.save_damage()
        return True

    def save_damage(self) -> None:
        """Write down what is damaged, if that changed. For a thread."""
        with self.sync_lock:
            entries = entries_of(self.segments)
            if self._saved_damage != entries:
                save_damage(self.cache.files, self.directory, entries)
                self._saved_damage = entries

    def refuse_corrupt(self, corruption: Corruption) -> None:
        """Refuse everything from now on: where the log ends, or what it holds, is not known."""
        self.corruption = corruption
        self.corrupt_since_ms = self.clock.time_ms()
        self.refusal = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"corrupt data: {corruption}")
        self.report(corruption)

    def repaired(self, start_offset: int, end_offset: int) -> None:
        """The batches between these offsets are good again. For a thread."""
        self.corruptions = [
            known for known in self.corruptions if not start_offset <= known.offset < end_offset
        ]
        segment = self.segment_of(start_offset)
        left = tuple(
            one for one in segment.damage if not start_offset <= one.start.offset < end_offset
        )
        if left != segment.damage:
            segment.damage = left
            segment.forget_places()
            self.save_damage()

    def take_damage(self, opened: OpenedLog) -> None:
        """Refuse a log that was found corrupt when it was opened; report what is damaged.

        Damage that was known, and served around, before does not make it refuse anything, unless
        only a replica that is fetched anew gets rid of it.
        """
        if opened.corruption is not None:
            self.refuse_corrupt(opened.corruption)
        new = [_corruption(*one) for one in opened.found]
        if new and opened.corruption is None:
            self.refuse_corrupt(new[0])
            self.is_refused_for_damage = True
        for missing in opened.missing:
            self.report(missing)
        for segment in self.segments:
            for damaged in segment.damage:
                self.report(_corruption(segment, damaged))

    def serve_around_damage(self) -> None:
        """Go on with a log that was refused, but for its damaged ranges."""
        with self.lock:
            if not self.is_refused_for_damage:
                return
            self.is_refused_for_damage = False
            self.corruption = self.refusal = None
        for one in damage_of(self):
            _logger.warning(
                "%s at %d: offsets %d to %d are damaged; no other replica has them, so the rest of"
                " the log is served without them",
                one.path,
                one.position,
                one.first_offset,
                one.last_offset,
            )

    def restored(self) -> None:
        """What was corrupt is no part of the log any more."""
        self.is_refused_for_damage = False
        if self.corruption is not None:
            self.corruption = self.refusal = None

    def abandon(self) -> None:
        """Refuse everything from now on: the log is closed or deleted."""
        self.cache.forget_directory(self.directory)
        self.corruption = None
        self.is_refused_for_damage = False
        self.refusal = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.directory} is closed")


def damage_of(state: LogState) -> list[DamagedBatches]:
    """The damaged ranges of a log that hold offsets it has not deleted.

    Of a log that is refused without any, where that begins; its last offset is -1.
    """
    found = [
        DamagedBatches(
            segment.path,
            one.start.position,
            one.size,
            one.start.offset,
            one.end.offset - 1,
            one.problem,
            one.since_ms,
        )
        for segment in state.segments
        for one in segment.damage
        if one.end.offset > max(state.log_start_offset, one.start.offset)
    ]
    bad = state.corruption
    if bad is not None and not found:
        place = bad.path, max(bad.position, 0), 0, bad.offset, -1
        found = [DamagedBatches(*place, bad.problem, state.corrupt_since_ms)]
    return found


def _corruption(segment: LogSegment, damaged: DamagedRange) -> Corruption:
    return Corruption(segment.path, damaged.start.position, damaged.start.offset, damaged.problem)


def _is_known(segment: LogSegment, bad: BadBatch) -> bool:
    return any(
        one.start == (bad.offset, bad.position)
        or one.start.position <= bad.position < one.end.position
        for one in segment.damage
    )


def _base_offset(segment: LogSegment) -> int:
    return segment.base_offset
