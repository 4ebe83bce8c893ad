"""Opening a log: its segments, epochs, producers, and where it starts."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise, tee, zip_longest
from typing import Final

from qbus.clock import Clock
from qbus.records import BatchHeader, crc32c

from .checkpoints import (
    LEADER_EPOCHS,
    LOG_STARTS,
    RECOVERY_POINTS,
    BadCheckpoint,
    decode_epochs,
)
from .config import LogConfig
from .controls import Controls, MakeFold, control_snapshots, load_controls
from .damage import DamagedRange, extent
from .damage_file import load_damage
from .epochs import LeaderEpochCache
from .file_cache import FileCache
from .file_checks import (
    IndexCheck,
    find_shortened,
    list_files,
    note_missing,
    prefix_problem,
)
from .files import Files, read_file
from .health import Corruption
from .lost_markers import warn_of_lost_markers
from .manifest import MANIFEST, NO_TOPIC_ID, Manifest, read_manifest
from .producers import ProducerState, take_marker
from .recovery import Recovery, find_end, find_segments, name_anew, remove_segments
from .replacing import complete_replacements
from .scan import BadBatch, Place
from .segment import LogSegment
from .snapshots import SnapshotFiles
from .transactions import AbortedTransactions

_logger = logging.getLogger(__name__)

MAX_OFFSET: Final = 2**63 - 1

NOT_KNOWN: Final = -1

NO_MANIFEST: Final = Manifest()


# Reading a log's leader epochs when it is opened, and making them anew where they are in doubt.


def load_epochs(
    files: Files, directory: str, segments: list[LogSegment], manifest: Manifest | None
) -> LeaderEpochCache:
    """The epochs of the log in ``directory``; ``dirty`` when they are not those on disk.

    The checkpoint is believed where its CRC is in the manifest; else where the batches agree that
    epochs begin with. If one batch is against it, that batch is bad; if several are, it is. Raises
    OSError.
    """
    path = f"{directory}/{LEADER_EPOCHS}"
    try:
        content = read_file(files, path)
    except FileNotFoundError:
        if manifest is not None and manifest.epochs_crc:
            _logger.warning("%s is missing; it is made anew from the log", path)
        return _read_epochs(segments)
    try:
        epochs = LeaderEpochCache(decode_epochs(content))
    except BadCheckpoint as bad:
        _logger.warning("%s is damaged: %s; it is made anew from the log", path, bad)
    else:
        epochs.saved_crc = crc32c(content)
        if manifest is not None and manifest.epochs_crc == epochs.saved_crc:
            return epochs
        problem = _disagreement(segments, epochs, is_complete=manifest is not None)
        if problem is None or (manifest is None and _count_against(segments, epochs) <= 1):
            return epochs
        _logger.warning("%s is damaged: %s; it is made anew from the log", path, problem)
    return _read_epochs(segments)


def _disagreement(
    segments: list[LogSegment], epochs: LeaderEpochCache, *, is_complete: bool
) -> str | None:
    """Where epochs do not begin, or, if all of them should be there, end as the batches say."""
    for entry in epochs.entries:
        at = _epoch_of_batch(segments, entry.start_offset)
        before = None
        if entry is not epochs.entries[0]:  # which begins where the log starts
            before = _epoch_of_batch(segments, entry.start_offset - 1)
        if at not in {None, entry.epoch} or (before is not None and before >= entry.epoch):
            return f"epoch {entry.epoch} does not begin at offset {entry.start_offset}"
    last = epochs.latest_epoch
    for header in _headers(segments[-1:], MAX_OFFSET):
        last = header.partition_leader_epoch
    return f"epoch {last} is not in it" if is_complete and last > epochs.latest_epoch else None


def _epoch_of_batch(segments: list[LogSegment], offset: int) -> int | None:
    """The epoch of the batch that has ``offset``; None: there is none."""
    holding = [segment for segment in segments if segment.base_offset <= offset]
    for header in _headers(holding[-1:], offset):
        if header.last_offset >= offset:
            return header.partition_leader_epoch if header.base_offset <= offset else None
    return None


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


def _has_listed_size(segment: LogSegment) -> bool:
    return segment.listed is not None and segment.size == segment.listed.log_size


@dataclass(slots=True)
class OpenedLog:
    """What a log begins its life with.

    ``has_hidden`` says whether consumers are not sent all of its batches. ``unsynced`` are segments
    that may not be stable yet; ``clean`` says that nothing on disk was, or may have been, changed
    since the log was closed. ``corruption`` is one that the log cannot be used around; ``found``
    are damaged ranges that were not known before, or have no bytes and so cannot be repaired in
    place; ``missing`` are the files that the log began with.
    ``topic_id`` is what the manifest says; ``is_listed``: that has all of the log's files.
    """

    segments: list[LogSegment]
    log_start_offset: int
    epochs: LeaderEpochCache
    producers: ProducerState
    controls: Controls
    aborted: AbortedTransactions
    snapshots: SnapshotFiles
    control_snapshots: SnapshotFiles
    has_hidden: bool = False
    unsynced: list[LogSegment] = field(default_factory=list)
    clean: bool = True
    corruption: Corruption | None = None
    found: list[tuple[LogSegment, DamagedRange]] = field(default_factory=list)
    missing: list[Corruption] = field(default_factory=list)
    topic_id: bytes | None = None
    is_listed: bool = False


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

    def open(
        self, recovery_point: int, log_start_offset: int, high_watermark: int, *, clean: bool
    ) -> OpenedLog:
        """Open it, trusting what is below ``recovery_point``, or all after a ``clean`` shutdown.

        A recovery point that is NOT_KNOWN is that of the manifest. Records below the checkpointed
        ``high_watermark`` were acknowledged. Raises OSError.
        """
        self._high_watermark = high_watermark
        self._files.make_directory(self._directory)
        damage: BadBatch | None = None
        try:
            if complete_replacements(
                self._cache, self._directory, self._config.index_interval_bytes
            ):
                clean = False
        except BadBatch as bad:
            damage = bad
        manifest = read_manifest(self._files, self._directory)
        self._check = IndexCheck(self._directory, self._config, self._files.list(self._directory))
        self._manifest = manifest or NO_MANIFEST
        self._gaps = self._config.may_have_gaps or self._manifest.gaps
        segments = find_segments(self._cache, self._directory, self._now_ms, gaps=self._gaps)
        list_files(segments, self._manifest)
        if recovery_point == NOT_KNOWN:
            recovery_point = self._manifest.recovery_point
        if manifest is not None:
            recovery_point = self._confirm_point(manifest, recovery_point)
            is_current = clean and segments and _has_listed_size(segments[-1])
            log_start_offset = self._confirm_start(
                manifest, log_start_offset, recovery_point, is_current=bool(is_current)
            )
        segments[:1] = [name_anew(self._cache, segment) for segment in segments[:1]]
        load_damage(self._files, self._directory, segments)
        opened = self._begin(segments, log_start_offset, manifest)
        known = {one for segment in segments for one in segment.damage}
        try:
            if damage is not None:
                opened.segments = segments or [self._new_segment(log_start_offset)]
                raise damage
            trusted = recovery_point
            self._is_clean = clean and self._is_as_closed(segments)
            if self._is_clean:
                trusted = MAX_OFFSET
            else:
                self._recover(opened, recovery_point)
            self._check_reaches(opened, recovery_point)
            if opened.corruption is not None:
                opened.segments = opened.segments or [self._new_segment(log_start_offset)]
            else:
                opened.missing = note_missing(
                    *(opened.segments, self._manifest, self._directory, self._now_ms),
                    log_start_offset=opened.log_start_offset,
                    stable_end=recovery_point,
                )
                self._complete(opened, trusted)
        except BadBatch as bad:
            where = bad.position, bad.offset, bad.problem
            opened.corruption = Corruption(bad.path or self._directory, *where)
        opened.found = [
            (segment, one)
            for segment in opened.segments
            for one in segment.damage
            if one not in known or not one.size
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
                bad = segment.first_bad(bad)
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
        find_shortened(opened.segments, self._now_ms)
        trusted = min(trusted, self._check_indexes(opened))
        self._find_start(opened)
        opened.epochs.truncate_from_end(opened.segments[-1].end_offset)
        opened.epochs.truncate_from_start(opened.log_start_offset)
        self._load(opened, trusted)

    def _confirm_point(self, manifest: Manifest, recovery_point: int) -> int:
        """The recovery point, which the manifest was written before."""
        known = manifest.recovery_point
        if recovery_point <= known:
            return recovery_point
        _logger.warning(
            "%s: %s has %d, %s only %d: what is above that is checked",
            *(self._directory, RECOVERY_POINTS, recovery_point, MANIFEST, known),
        )
        return known

    def _confirm_start(
        self, manifest: Manifest, log_start_offset: int, recovery_point: int, *, is_current: bool
    ) -> int:
        """Where the log starts: its checkpoint lacks logs that start with a segment.

        After a crash the manifest may not be ``is_current``, and does not count above the recovery
        point: what lay there may have been cut off.
        """
        known = manifest.log_start_offset
        is_ahead = log_start_offset > known and is_current
        is_behind = 0 < log_start_offset < known <= recovery_point
        first = manifest.segments[0].base_offset if manifest.segments else known
        is_missing = not log_start_offset and first < known <= recovery_point
        if not (is_ahead or is_behind or is_missing):
            return log_start_offset
        _logger.warning(
            "%s: %s has %d, %s has %d, where the log starts therefore",
            *(self._directory, LOG_STARTS, log_start_offset, MANIFEST, known),
        )
        return known

    def _begin(
        self, segments: list[LogSegment], log_start_offset: int, manifest: Manifest | None
    ) -> OpenedLog:
        snapshots = SnapshotFiles(self._files, self._directory)
        controls = control_snapshots(self._files, self._directory)
        opened = OpenedLog(
            segments,
            log_start_offset,
            load_epochs(self._files, self._directory, segments, manifest),
            ProducerState(self._config.max_producers),
            Controls(self._make_fold()),
            AbortedTransactions(self._cache, self._directory),
            snapshots,
            controls,
        )
        if manifest is not None:
            snapshots.expect(manifest.snapshots)
            controls.expect(manifest.control_snapshots)
            opened.topic_id = manifest.topic_id if manifest.topic_id != NO_TOPIC_ID else None
            opened.is_listed = True
        return opened

    def _load(self, opened: OpenedLog, trusted: int) -> None:
        """Learn what the log's batches add up to. Raises OSError, BadBatch."""
        damaged = opened.aborted.load(opened.segments, self._manifest.segments)
        if self._manifest is NO_MANIFEST and self._check.had_aborted:
            damaged = opened.segments[0].base_offset
        if damaged is not None:
            opened.clean = False
        opened.producers = load_producers(
            opened.snapshots,
            opened.segments,
            self._config,
            self._now_ms,
            opened.aborted,
            trusted if damaged is None else min(trusted, damaged),
        )
        opened.has_hidden = any(len(one.indexes.controls) for one in opened.segments)
        opened.controls = load_controls(opened.control_snapshots, opened.segments, self._make_fold)
        opened.segments[-1].indexes.controls.check()  # before appends go on with it

    def _is_as_closed(self, segments: list[LogSegment]) -> bool:
        """Whether the last segment is as a clean shutdown left it."""
        listed = segments[-1].listed if segments else None
        if listed is not None and segments[-1].size != listed.log_size:
            size, path = segments[-1].size, segments[-1].path
            _logger.warning("%s: recovering: %d bytes instead of %d", path, size, listed.log_size)
            return False
        return self._ends_well(segments)

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
            self._doubts,
            self._high_watermark,
        )
        opened.segments, opened.corruption = recovery.recover(opened.segments)
        # The one that ends there as well: a truncation may have been cut short.
        opened.unsynced = [s for s in opened.segments if s.end_offset >= recovery_point]

    def _doubts(self, segment: LogSegment) -> str | None:
        """What is wrong with a segment's indexes below the recovery point; empty: nobody knows.

        Raises OSError.
        """
        problem = prefix_problem(segment) if self._manifest is not NO_MANIFEST else ""
        segment.listed = None  # for it is written to from here on
        return problem

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
            gaps=self._gaps,
        )

    def _check_indexes(self, opened: OpenedLog) -> int:
        """Make anew what of the indexes does not check: without, every read would walk the segment.

        Returns the base offset of the first segment where that was so without a manifest: what its
        index of aborted transactions says is not trusted. Raises OSError, BadBatch.
        """
        complete = MAX_OFFSET
        recovered = set(map(id, opened.unsynced))
        # After a crash: the one that was appended to when the manifest was written.
        grown = self._manifest.segments[-1].base_offset if self._manifest.segments else -1
        for segment in opened.segments:
            if id(segment) in recovered and segment.listed is None and not segment.doubt:
                continue
            was_listed = segment.listed is not None
            exact = self._is_clean or segment.base_offset != grown
            is_active = segment is opened.segments[-1]
            if self._check.check(segment, is_active=is_active, exact=exact):
                opened.clean = opened.is_listed = False
                if not was_listed:
                    complete = min(complete, segment.base_offset)
        return complete


def load_producers(
    snapshots: SnapshotFiles,
    segments: list[LogSegment],
    config: LogConfig,
    now_ms: int,
    aborted: AbortedTransactions,
    trusted_end: int = MAX_OFFSET,
) -> ProducerState:
    """The producers of a log: the newest snapshot up to ``trusted_end``, then the batches after it.

    What ``aborted`` says from that snapshot on is made anew. Raises OSError, BadBatch.
    """
    producers = snapshots.load(
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
