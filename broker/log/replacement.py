"""Taking the place of adjacent segments: what compaction makes of them, in Kafka's steps.

The new content is written to ``<first offset>.log.cleaned``, with its indexes beside it. When all
of that is stable, the file is renamed to ``.log.swap``: from then on the new content counts. Then
the old segments go, the indexes get their names, and last the file gets its own. The names are made
stable between the steps, so a crash leaves

- before the rename to ``.swap``: the old segments, and files that a start removes;
- after it: a ``.swap`` file, whose replacement the next start completes. It says itself which
  segments it replaces: those from its first offset to the end of its last batch
  (:mod:`.replacing`).

Who reads meanwhile keeps the old files: an old segment holds its own open, and its indexes in
memory, as long as somebody holds the segment.
"""

from collections.abc import Container, Sequence
from contextlib import suppress

from qbus.errors import ApiError

from .files import PASSING, Data, File, write_all
from .flusher import LogFlusher
from .indexes import MaxTimestamp, SegmentIndexes
from .names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    numbered,
)
from .segment import LogSegment
from .state import LogState


class SegmentReplacement:
    """New content for adjacent segments of a log that nothing is appended to any more.

    Its methods wait for the disk: they are for threads. Write all batches and index entries, then
    :meth:`commit`, or :meth:`discard`. Raises ApiError KAFKA_STORAGE_ERROR.
    """

    def __init__(
        self, state: LogState, flusher: LogFlusher, old: Sequence[LogSegment], rewrites: int
    ) -> None:
        """``rewrites``: how often records of the log had been cut off or repaired before."""
        self._state = state
        self._flusher = flusher
        self._old = list(old)
        self._rewrites = rewrites
        self._base_offset = old[0].base_offset
        self._path = f"{state.directory}/{numbered(self._base_offset, LOG_SUFFIX)}"
        self._aborted_path = (
            f"{state.directory}/{numbered(self._base_offset, TRANSACTION_INDEX_SUFFIX)}"
        )
        self._files = state.cache.files
        self._size = 0
        self._is_swapping = False  # what was written counts, or will after a start
        self._indexes = SegmentIndexes(
            state.cache, state.directory, self._base_offset, CLEANED_SUFFIX
        )
        state.check_usable()
        try:
            self._indexes.remove()
            self._file: File = self._files.open(self._path + CLEANED_SUFFIX, write=True)
            self._file.truncate(0)
        except OSError as error:
            raise self._failed(error) from error

    @property
    def path(self) -> str:
        """Where the new segment's log will be."""
        return self._path

    def write(self, data: Data) -> None:
        """Write whole batches behind those before."""
        try:
            write_all(self._file, self._size, data)
        except OSError as error:
            raise self._failed(error) from error
        self._size += len(data)

    def index(self, position: int, last_offset: int, greatest: MaxTimestamp) -> None:
        """Add an entry to the indexes, for the batch at ``position``."""
        with suppress(OSError):  # the entries are kept in memory; writing is tried again
            self._indexes.times.maybe_append(*greatest)
            self._indexes.offsets.append(last_offset, position)

    def hidden(self, base_offset: int, position: int, *, hidden: bool) -> None:
        """Say whether the batch at ``position`` is hidden."""
        self._indexes.controls.account(base_offset, position, hidden=hidden)

    @property
    def ends_hidden(self) -> bool:
        """Whether the last batch is hidden."""
        return self._indexes.controls.is_open

    def commit(
        self, greatest: MaxTimestamp, first_timestamp: int, aborted_at: Container[int] = ()
    ) -> bool:
        """Let the new content take the place of the old; stable on return.

        ``greatest`` is the greatest timestamp of all batches, ``first_timestamp`` that of the
        first. ``aborted_at``: the offsets of those markers of aborted transactions that readers
        still have to know. Returns False if the segments are others by now, for they were
        truncated, repaired or deleted: then nothing has changed.
        """
        state = self._state
        try:
            self._indexes.write(greatest if self._size else None)
            self._indexes.sync()
            self._file.sync()
        except OSError as error:
            raise self._failed(error) from error
        with state.sync_lock:
            with state.lock:
                state.check_usable()
                if not self._is_current():
                    return False
            try:
                self._flusher.save_epochs()
                self._write_aborted(aborted_at)
                for segment in self._old:
                    segment.detach()
                self._flusher.save_manifest(without=self._old)
                self._files.sync_directory(state.directory)
            except OSError as error:
                raise self._failed(error) from error
            self._begin_swap()
            try:
                self._swap()
            except OSError as error:
                raise state.health.fail(f"replace segments of {state.directory}", error) from error
            self._switch(greatest, first_timestamp, aborted_at)
        return True

    def discard(self) -> None:
        """Remove what was written, unless it counts. A failure leaves it to the next start."""
        if self._is_swapping:
            return
        with suppress(OSError):
            self._indexes.remove()
            self._files.remove(self._aborted_path + CLEANED_SUFFIX)
            self._files.remove(self._path + CLEANED_SUFFIX)

    def _is_current(self) -> bool:
        state = self._state
        if state.rewrites != self._rewrites:
            return False
        first = next((i for i, one in enumerate(state.segments) if one is self._old[0]), None)
        if first is None:
            return False
        there = state.segments[first : first + len(self._old)]
        return there == self._old and self._old[-1] is not state.active

    def _write_aborted(self, aborted_at: Container[int]) -> None:
        """Write the index of aborted transactions, be it empty, if there was one."""
        state = self._state
        with state.lock:
            state.aborted.write(state.segments)
            content = state.aborted.select(self._base_offset, self._old[-1].end_offset, aborted_at)
        there = (
            f"{state.directory}/{numbered(one.base_offset, TRANSACTION_INDEX_SUFFIX)}"
            for one in self._old
        )
        if content is not None or any(self._files.exists(path) for path in there):
            file = self._files.open(self._aborted_path + CLEANED_SUFFIX, write=True)
            file.truncate(0)
            write_all(file, 0, content or b"")
            file.sync()

    def _begin_swap(self) -> None:
        """Give the new file the name by which it counts."""
        self._is_swapping = True
        try:
            self._files.rename(self._path + CLEANED_SUFFIX, self._path + SWAP_SUFFIX)
        except OSError as error:
            if error.errno in PASSING:  # a directory, too, needs room: nothing has changed
                self._is_swapping = False
            raise self._failed(error) from error

    def _swap(self) -> None:
        state, files = self._state, self._files
        files.sync_directory(state.directory)
        for segment in self._old[1:]:
            for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
                path = f"{segment.directory}/{numbered(segment.base_offset, suffix)}"
                with suppress(FileNotFoundError):
                    files.rename(path, path + DELETED_SUFFIX)
                    state.trash.add(path + DELETED_SUFFIX, state.config.file_delete_delay_ms)
                state.cache.forget(path)
        files.sync_directory(state.directory)
        target = SegmentIndexes(state.cache, state.directory, self._base_offset)
        target.remove()
        self._indexes.replace(target)
        if files.exists(self._aborted_path + CLEANED_SUFFIX):
            files.rename(self._aborted_path + CLEANED_SUFFIX, self._aborted_path)
        state.cache.forget(self._aborted_path)
        files.sync_directory(state.directory)
        files.rename(self._path + SWAP_SUFFIX, self._path)
        state.cache.forget(self._path)
        files.sync_directory(state.directory)

    def _switch(
        self, greatest: MaxTimestamp, first_timestamp: int, aborted_at: Container[int]
    ) -> None:
        """Let readers find the new segment from now on."""
        state, last = self._state, self._old[-1]
        new = LogSegment(
            state.cache,
            state.directory,
            self._base_offset,
            size=0,  # all of it was checked when it was written
            created_ms=last.created_ms,
            gaps=True,
        )
        new.end = (last.end_offset, self._size)
        new.know_timestamps(first_timestamp, greatest)
        with state.lock:
            first = next(i for i, one in enumerate(state.segments) if one is self._old[0])
            behind = state.segments[first + len(self._old) :]
            state.segments = [*state.segments[:first], new, *behind]
            state.aborted.keep(self._base_offset, last.end_offset, aborted_at)
            state.rewrites += 1
            self._flusher.forget(self._old)

    def _failed(self, error: OSError) -> ApiError:
        return self._state.health.judge(f"write {self._path}{CLEANED_SUFFIX}", error)
