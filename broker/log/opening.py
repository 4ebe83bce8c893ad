"""Opening a log: its segments, epochs, producers, and where it starts."""

import logging
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import pairwise, tee, zip_longest
from typing import Final

from qbus.clock import Clock
from qbus.records import BatchHeader

from .checkpoints import LEADER_EPOCHS, BadCheckpoint, decode_epochs
from .config import LogConfig
from .controls import Controls, MakeFold, load_controls
from .damage import DamagedRange, extent
from .damage_file import load_damage
from .epochs import EpochStart, LeaderEpochCache
from .file_cache import FileCache
from .files import PASSING, Files, read_file
from .health import Corruption
from .lost_markers import warn_of_lost_markers
from .producers import ProducerState, take_marker
from .recovery import Recovery, find_end, find_segments, name_anew, remove_segments
from .replacing import complete_replacements
from .scan import BadBatch, Place
from .segment import LogSegment
from .snapshots import SnapshotFiles
from .transactions import AbortedTransactions

_logger = logging.getLogger(__name__)

MAX_OFFSET: Final = 2**63 - 1


# Reading a log's leader epochs when it is opened, and making them anew where they are in doubt.


def load_epochs(files: Files, directory: str, segments: list[LogSegment]) -> LeaderEpochCache:
    """The epochs of the log in ``directory``; ``dirty`` when they are not those on disk.

    The checkpoint has no sum: it is believed where the batches that epochs begin with agree. If one
    batch is against it, that batch is bad; if several are, it is. Raises OSError.
    """
    path = f"{directory}/{LEADER_EPOCHS}"
    if files.exists(path):
        try:
            epochs = LeaderEpochCache(decode_epochs(read_file(files, path)))
        except BadCheckpoint as bad:
            _logger.warning("%s is made anew from the log: %s", path, bad)
        else:
            if all(_agrees(segments, entry) for entry in epochs.entries):
                return epochs
            if _count_against(segments, epochs) <= 1:
                return epochs
            _logger.warning("%s is made anew from the log, which contradicts it", path)
    return _read_epochs(segments)


def _agrees(segments: list[LogSegment], entry: EpochStart) -> bool:
    holding = [segment for segment in segments if segment.base_offset <= entry.start_offset]
    for header in _headers(holding[-1:], entry.start_offset):
        if header.last_offset >= entry.start_offset:
            return header.partition_leader_epoch == entry.epoch
    return True  # the epoch has no records, or they are gone


def _count_against(segments: list[LogSegment], epochs: LeaderEpochCache) -> int:
    return sum(
        header.partition_leader_epoch != epochs.epoch_at(header.base_offset)
        for header in _headers(segments)
    )


def _read_epochs(segments: list[LogSegment]) -> LeaderEpochCache:
    """The epochs that the batches have; one that the next batch takes back was never there."""
    epochs = LeaderEpochCache()
    reached = segments[0].base_offset if segments else 0
    headers, following = tee(_headers(segments))
    next(following, None)
    for header, after in zip_longest(headers, following):
        epoch = header.partition_leader_epoch
        if after is None or after.partition_leader_epoch >= epoch:
            epochs.assign(epoch, reached)
            reached = header.last_offset + 1
    epochs.dirty = True
    return epochs


def _headers(segments: list[LogSegment], from_offset: int = 0) -> Iterator[BatchHeader]:
    """Batches' headers, up to where the log is torn, if it is."""
    try:
        for segment in segments:
            for placed in segment.batches_from(from_offset):
                yield placed.header
    except BadBatch:
        return


@dataclass(slots=True)
class OpenedLog:
    """What a log begins its life with.

    ``has_hidden`` says whether consumers are not sent all of its batches. ``unsynced`` are segments
    that may not be stable yet; ``clean`` says that nothing on disk was, or may have been, changed
    since the log was closed. ``corruption`` is one that the log cannot be used around; ``found``
    are damaged ranges that were not known before.
    """

    segments: list[LogSegment]
    log_start_offset: int
    epochs: LeaderEpochCache
    producers: ProducerState
    controls: Controls
    aborted: AbortedTransactions
    has_hidden: bool = False
    unsynced: list[LogSegment] = field(default_factory=list)
    clean: bool = True
    corruption: Corruption | None = None
    found: list[tuple[LogSegment, DamagedRange]] = field(default_factory=list)


class LogOpener:
    """Opens the log in one directory, once."""

    def __init__(
        self,
        cache: FileCache,
        directory: str,
        config: LogConfig,
        clock: Clock,
        make_fold: MakeFold,
    ) -> None:
        self._cache = cache
        self._make_fold = make_fold
        self._files = cache.files
        self._directory = directory
        self._config = config
        self._now_ms = clock.time_ms()

    def open(self, recovery_point: int, log_start_offset: int, *, clean: bool) -> OpenedLog:
        """Open it, trusting what is below ``recovery_point``, or all after a ``clean`` shutdown.

        Raises OSError.
        """
        self._files.make_directory(self._directory)
        damage: BadBatch | None = None
        try:
            if complete_replacements(
                self._cache, self._directory, self._config.index_interval_bytes
            ):
                clean = False
        except BadBatch as bad:
            damage = bad
        segments = find_segments(
            self._cache, self._directory, self._now_ms, gaps=self._config.may_have_gaps
        )
        segments[:1] = [name_anew(self._cache, segment) for segment in segments[:1]]
        load_damage(self._files, self._directory, segments)
        opened = OpenedLog(
            segments,
            log_start_offset,
            load_epochs(self._files, self._directory, segments),
            ProducerState(self._config.max_producers),
            Controls(self._make_fold()),
            AbortedTransactions(self._cache, self._directory),
        )
        known = {one for segment in segments for one in segment.damage}
        try:
            if damage is not None:
                opened.segments = segments or [self._new_segment(log_start_offset)]
                raise damage
            trusted = recovery_point
            if clean and self._ends_well(segments):
                trusted = MAX_OFFSET
            else:
                self._recover(opened, recovery_point)
            self._check_reaches(opened, recovery_point)
            if opened.corruption is not None:
                opened.segments = opened.segments or [self._new_segment(log_start_offset)]
            else:
                self._complete(opened, trusted)
        except BadBatch as bad:
            where = bad.position, bad.offset, bad.problem
            opened.corruption = Corruption(bad.path or self._directory, *where)
        opened.found = [
            (segment, one)
            for segment in opened.segments
            for one in segment.damage
            if one not in known
        ]
        if any(segment.damage for segment in opened.segments):
            warn_of_lost_markers(self._directory, opened.segments, opened.producers)
        return opened

    def _complete(self, opened: OpenedLog, trusted: int) -> None:
        """Learn what the batches say, but for damaged ones. Raises OSError, BadBatch."""
        while True:
            try:
                self._learn(opened, trusted)
            except BadBatch as bad:
                if not self._note(opened.segments, bad):
                    raise
            else:
                return

    def _note(self, segments: list[LogSegment], bad: BadBatch) -> bool:
        """Let the segment of a bad batch step over it; whether that is new."""
        for segment, following in pairwise([*segments, None]):
            if segment is not None and segment.path == bad.path:
                damaged = extent(
                    segment.file,
                    bad,
                    segment.size,
                    segment.end_offset if following is None else following.base_offset,
                    at_least=0,
                    since_ms=self._now_ms,
                )
                if min(bad.position, bad.offset) < 0 or damaged in segment.damage:
                    return False
                segment.set_damaged(damaged)
                return True
        return False

    def _learn(self, opened: OpenedLog, trusted: int) -> None:
        trusted = min(trusted, self._complete_indexes(opened))
        self._find_start(opened)
        opened.epochs.truncate_from_end(opened.segments[-1].end_offset)
        opened.epochs.truncate_from_start(opened.log_start_offset)
        aborted = opened.aborted.load(opened.segments)
        opened.producers = load_producers(
            self._files,
            self._directory,
            opened.segments,
            self._config,
            self._now_ms,
            opened.aborted,
            trusted if aborted is None else min(trusted, aborted),
        )
        opened.has_hidden = any(len(one.indexes.controls) for one in opened.segments)
        opened.controls = load_controls(
            self._files, self._directory, opened.segments, self._make_fold
        )

    def _ends_well(self, segments: list[LogSegment]) -> bool:
        try:
            if segments:
                find_end(segments[-1])
        except BadBatch as bad:
            _logger.warning("%s: recovering: %s", segments[-1].path, bad.problem)
            return False
        return True

    def _recover(self, opened: OpenedLog, recovery_point: int) -> None:
        opened.clean = False
        recovery = Recovery(
            self._cache,
            recovery_point,
            opened.epochs,
            self._config.index_interval_bytes,
            self._now_ms,
        )
        opened.segments, opened.corruption = recovery.recover(opened.segments)
        # The one that ends there as well: a truncation may have been cut short.
        opened.unsynced = [s for s in opened.segments if s.end_offset >= recovery_point]

    def _check_reaches(self, opened: OpenedLog, recovery_point: int) -> None:
        last = opened.segments[-1] if opened.segments else None
        end_offset = last.end_offset if last is not None else 0
        if opened.corruption is not None or end_offset >= recovery_point:
            return
        problem = f"records up to {recovery_point} are missing"
        if last is None:
            opened.corruption = Corruption(self._directory, 0, end_offset, problem)
            return
        end = Place(recovery_point, last.size)
        last.skip_damaged(DamagedRange(Place(*last.end), end, problem, self._now_ms))

    def _find_start(self, opened: OpenedLog) -> None:
        """A log whose records were all deleted, and the rest lost, goes on where they ended."""
        segments = opened.segments
        if segments and segments[-1].end_offset < opened.log_start_offset:
            remove_segments(self._cache, segments)
            segments = opened.unsynced = []
        if not segments:
            new = self._new_segment(opened.log_start_offset)
            new.create()
            segments = [new]
            opened.clean = False
        opened.segments = segments
        opened.log_start_offset = max(opened.log_start_offset, segments[0].base_offset)

    def _new_segment(self, base_offset: int) -> LogSegment:
        return LogSegment(
            self._cache,
            self._directory,
            base_offset,
            size=0,
            created_ms=self._now_ms,
            gaps=self._config.may_have_gaps,
        )

    def _complete_indexes(self, opened: OpenedLog) -> int:
        """Make anew what somebody removed: without indexes every read would walk the segment.

        A segment of a batch or two has no entries, and needs none. Returns the base offset of the
        first segment that lacked them: what its index of aborted transactions says is not trusted.
        """
        config = self._config
        complete = MAX_OFFSET
        small = config.index_interval_bytes + 2 * config.max_message_bytes
        for segment in opened.segments:
            if segment.size > small and not segment.indexes.have_entries():
                _logger.warning("%s: making its indexes anew", segment.path)
                complete = min(complete, segment.base_offset)
                try:
                    full = segment is not opened.segments[-1]
                    segment.rebuild_indexes(
                        config.index_interval_bytes, full=full, lock=nullcontext()
                    )
                except OSError as error:
                    if error.errno not in PASSING:
                        raise
                opened.clean = False
        return complete


def load_producers(
    files: Files,
    directory: str,
    segments: list[LogSegment],
    config: LogConfig,
    now_ms: int,
    aborted: AbortedTransactions,
    trusted_end: int = MAX_OFFSET,
) -> ProducerState:
    """The producers of a log: the newest snapshot up to ``trusted_end``, then the batches after it.

    What ``aborted`` says from that snapshot on is made anew. Raises OSError, BadBatch.
    """
    producers = SnapshotFiles(files, directory).load(
        min(segments[-1].end_offset, trusted_end),
        limit=config.max_producers,
        start_offset=segments[0].base_offset,
        now_ms=now_ms,
    )
    start = producers.end_offset
    aborted.truncate_to(start, segments)
    for segment in segments:
        if segment.end_offset > start:
            for placed in segment.batches_from(start):
                header = placed.header
                if not header.has_producer_id or header.base_offset < start:
                    continue
                if header.is_marker:
                    batch = segment.file.read_at(placed.position, header.size)
                    take_marker(producers, aborted, header, batch, now_ms)
                else:
                    producers.update(header, now_ms)
    producers.end_offset = segments[-1].end_offset
    producers.has_transactions = producers.has_transactions or len(aborted) > 0
    return producers
