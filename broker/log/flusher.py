"""Making a log stable: the data by group commit, and now and then what opening it needs.

``flush`` and ``checkpoint`` run in threads while the log is appended to. All that was appended when
a flush began is stable when it returns, whoever appended it: that is the group commit.
"""

import logging
from collections.abc import Container

from qbus.records import crc32c

from .checkpoints import LEADER_EPOCHS, encode_epochs
from .files import NO_DESCRIPTOR, PASSING, write_atomically
from .manifest import MANIFEST, NO_TOPIC_ID, Manifest, write_manifest
from .segment import LogSegment
from .snapshots import encode_snapshot
from .state import LogState

_logger = logging.getLogger(__name__)

_CONTROL_SNAPSHOTS = 2  # that are kept: should one not check, the one before it is there


class LogFlusher:
    """Keeps one log's ``flushed_offset`` and ``recovery_point``.

    Every record below ``flushed_offset`` is on stable storage. Below ``recovery_point`` the indexes
    and leader epochs are, too, so that after a crash nothing below it need be read.
    """

    def __init__(
        self, state: LogState, unsynced: list[LogSegment], *, clean: bool, is_listed: bool = False
    ) -> None:
        """``is_listed``: the manifest on disk has all of the log's files."""
        self._state = state
        self._is_listed = is_listed
        self._unsynced = [segment for segment in unsynced if segment is not state.active]
        self._unfinished = list(self._unsynced)
        self._new_names = not clean
        self._all_unsynced = bool(unsynced)  # even if no record is: what was cut may come back
        self._closed_at = state.end_offset if clean else -1
        self.flushed_offset = unsynced[0].base_offset if unsynced else state.end_offset
        self.recovery_point = self.flushed_offset
        self.flushed_at = state.clock.monotonic()

    def is_due(self) -> bool:
        """Do what :meth:`Log.flush_due` states."""
        unflushed = self._state.end_offset - self.flushed_offset
        if self._unsynced or not unflushed:
            return bool(self._unsynced)
        config = self._state.config
        waited = self._state.clock.monotonic() - self.flushed_at
        return unflushed >= config.flush_messages or waited * 1000 >= config.flush_ms

    def segment_is_full(self, segment: LogSegment) -> None:
        """``segment`` got its last batch and there is a new one; under the log's lock."""
        segment.listed = None
        self._unsynced = [*self._unsynced, segment]
        self._unfinished = [*self._unfinished, segment]
        self._new_names = True

    def is_finished(self, segment: LogSegment) -> bool:
        """Whether the indexes of ``segment``, which is full, have their last entries on disk."""
        return segment not in self._unfinished

    def begun_anew(self) -> None:
        """The log's one segment begins with another offset; under the log's lock."""
        self._unsynced = self._unfinished = []
        self._new_names = self._all_unsynced = True

    def forget(self, segments: list[LogSegment]) -> None:
        """``segments`` are no part of the log any more; under the log's lock."""
        self._unsynced = [segment for segment in self._unsynced if segment not in segments]
        self._unfinished = [segment for segment in self._unfinished if segment not in segments]

    def flush(self) -> int:
        """Sync what was appended so far; the offset that is stable now.

        Raises ApiError KAFKA_STORAGE_ERROR when it fails, which takes the directory offline for
        good, unless it was only that no more files can be opened.
        """
        state = self._state
        with state.sync_lock:
            with state.lock:
                state.check_usable()
                end = state.active.end
                segments = [*self._unsynced, state.active]
                new_names, self._new_names = self._new_names, False
            try:
                if end[0] != self.flushed_offset or self._all_unsynced:
                    for segment in segments:
                        segment.file.sync()
                if new_names:
                    state.cache.files.sync_directory(state.directory)
            except OSError as error:
                self._new_names = self._new_names or new_names
                if error.errno in NO_DESCRIPTOR:  # from opening: no sync failed
                    raise state.health.judge(f"sync {state.directory}", error) from error
                raise state.health.fail(f"sync {state.directory}", error) from error
            with state.lock:
                for segment in segments[:-1]:
                    segment.release()
                self._unsynced = self._unsynced[len(segments) - 1 :]
                segments[-1].places.add(*end)
                if segments[-1].end == end:  # nothing was appended, or cut, meanwhile
                    segments[-1].is_stable = True
                self._all_unsynced = False
                self.flushed_offset = end[0]
                self.flushed_at = state.clock.monotonic()
            return end[0]

    def checkpoint(self) -> int:
        """Bring the recovery point up to the flushed offset, for the caller to write down.

        When the disk is full, or files cannot be opened, it stays as it is. Raises ApiError
        KAFKA_STORAGE_ERROR when syncing fails, which takes the directory offline.
        """
        return self._checkpoint(full=False)

    def close(self) -> int:
        """Flush, and leave everything so that opening needs to read nothing. Raises likewise."""
        point = self.flush()
        is_due = point != self._closed_at or self._unfinished or not self._is_listed
        if is_due or self._state.epochs.dirty:
            point = self._checkpoint(full=True)
        return point

    def _checkpoint(self, *, full: bool) -> int:
        state = self._state
        with state.sync_lock:
            state.check_usable()
            state.save_damage()
            point = self.flushed_offset
            is_due = point != self.recovery_point or self._unfinished or state.epochs.dirty
            if not (is_due or full or not self._is_listed):
                return point
            try:
                self.save_epochs()
                self._finish_segments()
                self._save_active(point, full=full)
                state.cache.files.sync_directory(state.directory)
            except OSError as error:
                if error.errno not in PASSING:
                    raise state.health.fail(f"checkpoint {state.directory}", error) from error
                _logger.warning("%s: no checkpoint: %s", state.directory, error.strerror)
                return self.recovery_point
            self.recovery_point = point
            return point

    def save_epochs(self) -> None:
        """Make the leader epochs stable. Raises OSError."""
        epochs = self._state.epochs
        if epochs.dirty:
            epochs.dirty = False
            try:
                content = encode_epochs(epochs.entries)
                path = f"{self._state.directory}/{LEADER_EPOCHS}"
                write_atomically(self._state.cache.files, path, content)
                epochs.saved_crc = crc32c(content)
            except OSError:
                epochs.dirty = True
                raise

    def restart_at(self, end_offset: int) -> None:
        """All that is left of the log, which ends with ``end_offset``, is stable."""
        self._unsynced = self._unfinished = []
        self._new_names = self._is_listed = False
        self.flushed_offset = self.recovery_point = end_offset

    def list_again(self) -> None:
        """The manifest does not hold any more; the next checkpoint writes it."""
        self._is_listed = False

    def _finish_segments(self) -> None:
        """Write the indexes of full segments for the last time."""
        with self._state.lock:
            finished = self._unfinished
            for segment in finished:
                segment.write_indexes(full=True)
                segment.listed = None
            self._state.aborted.write(self._state.segments)
        for segment in finished:
            segment.indexes.sync()
            self._state.snapshots.sync(segment.end_offset)
        self._state.aborted.sync()
        with self._state.lock:
            self._unfinished = self._unfinished[len(finished) :]

    def _save_active(self, point: int, *, full: bool) -> None:
        state = self._state
        with state.lock:
            active = state.active
            active.write_indexes(full=full)
            state.aborted.write(state.segments)
            offset, snapshot = state.end_offset, encode_snapshot(state.producers)
            controls = state.controls.encode() if state.controls.is_due(full=full) else None
            manifest = self._manifest(point)
        active.indexes.sync()
        state.aborted.sync()
        if controls is not None:
            state.control_snapshots.write(offset, b"".join(controls), sync=True)
        if state.snapshots.newest() != offset:
            state.snapshots.write(offset, snapshot, sync=True)
        self._write(manifest)
        if controls is not None:
            state.control_snapshots.keep_newest(_CONTROL_SNAPSHOTS)
        bases = {segment.base_offset for segment in state.segments}
        state.snapshots.remove(lambda known: known < offset and known not in bases)

    def save_manifest(self, without: Container[LogSegment] = ()) -> None:
        """Write down what the log's files hold, but those of some segments; stable on return.

        It is called before segments go or are replaced, with ``sync_lock`` held: what the manifest
        lists and is not there counts as lost. Where there is no room for it, the manifest goes.
        Raises OSError.
        """
        state = self._state
        try:
            with state.lock:
                manifest = self._manifest(self.recovery_point, without)
            self._write(manifest)
        except OSError as error:
            if error.errno not in PASSING:
                raise
            state.cache.files.remove(f"{state.directory}/{MANIFEST}")
        state.cache.files.sync_directory(state.directory)
        self._is_listed = False  # until the next checkpoint

    def _manifest(self, point: int, without: Container[LogSegment] = ()) -> Manifest:
        """What the files hold as they were written last. Under the log's lock; raises OSError."""
        state = self._state
        segments = [segment for segment in state.segments if segment not in without]
        for segment in segments:
            is_full = segment is not state.active
            if not (is_full and segment.listed is not None) and not segment.doubt:
                aborted = state.aborted.encode(segment.base_offset, segment.end_offset)
                segment.listed = segment.describe(aborted)
        return Manifest(
            topic_id=state.topic_id or NO_TOPIC_ID,
            log_start_offset=state.log_start_offset,
            recovery_point=point,
            epochs_crc=state.epochs.saved_crc,
            gaps=state.active.gaps,
            segments=[one.listed for one in segments if one.listed is not None],
        )

    def _write(self, manifest: Manifest) -> None:
        state = self._state
        manifest.snapshots = dict(state.snapshots.crcs)
        manifest.control_snapshots = dict(state.control_snapshots.crcs)
        write_manifest(state.cache.files, state.directory, manifest)
        self._is_listed = True
