"""Stores what queues of one partition do: all of one turn of the event loop in one batch.

What was stored holds from the append on; who did it hears when it is acknowledged, as any
``acks=all`` append is.
"""

import asyncio
import logging
from typing import Final, Protocol

from qbus.clock import Clock
from qbus.errors import ApiError, ErrorCode
from qbus.records.control import (
    Change,
    ControlType,
    Shared,
    SharedResult,
    control_batch,
    encode_result,
    encode_shared,
)

from ..partition.partition import Partition
from ..turn_end import at_end
from .fold import QueueFold

_log = logging.getLogger(__name__)

_MOST_BYTES: Final = 1 << 20  # of a batch, unless a single entry is larger
_CHANGE_BYTES: Final = 33  # that a change takes at most


class Told(Protocol):
    """Waits for something to be stored for good."""

    def told(self, token: object, code: ErrorCode, message: str | None) -> None:
        """What was begun with ``token`` is (NONE), or may never be: what ApiError has."""


class Entry:
    """What one group does at a time; classes based on it go on when that is stored, or is not.

    ``acknowledged``, if anybody waits for it, gets its result, or ApiError, in the end; those in
    ``told`` hear of it then, each with its token.
    """

    __slots__ = ("acknowledged", "changes", "group", "result", "told")

    def __init__(
        self, group: str, changes: list[Change], result: SharedResult | None = None
    ) -> None:
        self.group = group
        self.changes = changes
        self.result = result
        self.acknowledged: asyncio.Future[None] | None = None
        self.told: list[tuple[Told, object]] = []

    @property
    def size(self) -> int:
        """About how many bytes its control records take, at most."""
        size = _CHANGE_BYTES * len(self.changes)
        return size if self.result is None else size + len(self.result.body)

    @property
    def is_awaited(self) -> bool:
        """Whether anybody waits for the end."""
        return self.acknowledged is not None or len(self.told) > 0

    def close(self) -> None:
        """It is about to be stored: what is to be in ``changes`` is in there on return."""

    def stored(self) -> None:
        """It is in the log."""

    def failed(self, error: ApiError) -> None:
        """It cannot be stored, and nothing has changed."""

    def finish(self, code: ErrorCode, message: str | None = None) -> None:
        """Tell who waits that it is acknowledged (NONE), or may never be."""
        told, self.told = self.told, []
        for waiter, token in told:
            try:
                waiter.told(token, code, message)
            except Exception:  # noqa: BLE001 - the others wait, and so does the partition
                _log.exception("what came of something in %s cannot be told", self.group)
        waiting = self.acknowledged
        if waiting is not None and not waiting.done():
            if code:
                waiting.set_exception(ApiError(code, message))
            else:
                waiting.set_result(None)


class Journal:
    """Appends control records to one partition that is led here."""

    __slots__ = ("_clock", "_entries", "_loop", "partition")

    def __init__(self, partition: Partition, clock: Clock) -> None:
        self.partition = partition
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._entries: list[Entry] = []

    def add(self, entry: Entry) -> None:
        """Store ``entry`` at the end of this turn of the event loop."""
        if not self._entries:
            at_end(self._loop, self.flush)
        self._entries.append(entry)

    def write(self, entry: Entry) -> "asyncio.Future[None]":
        """Store it likewise, and return what gets its result when it is acknowledged."""
        entry.acknowledged = self._loop.create_future()
        self.add(entry)
        return entry.acknowledged

    def flush(self) -> None:
        """Store all entries now."""
        entries, self._entries = self._entries, []
        together: list[Entry] = []
        size = 0
        for entry in entries:
            if not self._closes(entry):
                continue
            size += entry.size
            if size > _MOST_BYTES and together:
                self._append(together)
                together, size = [], entry.size
            together.append(entry)
        if together:
            self._append(together)

    def _closes(self, entry: Entry) -> bool:
        """Close an entry; false: a defect keeps it from being stored, as who waits was told."""
        try:
            entry.close()
        except Exception as defect:  # noqa: BLE001 - nobody may wait for ever, and others go on
            self._fail([entry], self._blame(defect))
            return False
        return True

    def _append(self, entries: list[Entry]) -> None:
        log = self.partition.log
        before = log.log_end_offset
        try:
            batch = control_batch(_records(entries), self._clock.time_ms())
            first, last, *_ = self.partition.append_own(batch, 0)
        except Exception as error:  # noqa: BLE001 - as above
            if log.log_end_offset == before:
                self._fail(entries, error if isinstance(error, ApiError) else self._blame(error))
                return
            # It is in the log all the same: whoever follows what is appended has the defect.
            _log.exception("%s: something cannot go on after what was stored", self.partition)
            first, last = before, log.log_end_offset - 1
        end = last + 1
        entries = self._taken_in(entries, first)
        for entry in entries:
            self._note_stored(entry)
        waiting = _Batch([entry for entry in entries if entry.is_awaited])
        if self.partition.high_watermark >= end:
            waiting.acknowledged(None, ErrorCode.NONE)
        elif not waiting.done():
            self.partition.when_acknowledged(end, waiting, None)

    def _blame(self, defect: Exception) -> ApiError:
        """What those are told for whom nothing is stored because of a defect."""
        _log.error("%s: what queues have done cannot be stored", self.partition, exc_info=defect)
        return ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"{self.partition}: it cannot be stored, by a defect that the broker's log tells of",
        )

    def _fail(self, entries: list[Entry], error: ApiError) -> None:
        for entry in entries:
            try:
                entry.failed(error)
            except Exception:  # noqa: BLE001 - as above
                _log.exception("%s: what has failed cannot be taken back", self.partition)
            entry.finish(error.code, error.message)

    def _note_stored(self, entry: Entry) -> None:
        try:
            entry.stored()
        except Exception:  # noqa: BLE001 - it is stored all the same
            _log.exception("%s: a queue cannot go on after what was stored", self.partition)

    def _taken_in(self, entries: list[Entry], first_offset: int) -> list[Entry]:
        """Those that the fold has taken in, as all replicas have; the others failed."""
        fold = self.partition.log.fold.part(QueueFold)
        taken = []
        for entry in entries:
            progress = None if fold is None else fold.groups.get(entry.group)
            known = first_offset if progress is None else progress.mentioned_at
            if known >= first_offset:
                taken.append(entry)
                continue
            message = f"what {entry.group} did could not be read again"
            self._fail([entry], ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, message))
        return taken


def _records(entries: list[Entry]) -> list[tuple[ControlType, bytes]]:
    """The control records that say all this."""
    changes: dict[str, list[Change]] = {}
    for entry in entries:
        changes.setdefault(entry.group, []).extend(entry.changes)
    records = [
        (ControlType.SHARED, encode_shared(Shared(group, made))) for group, made in changes.items()
    ]
    results = [entry.result for entry in entries if entry.result is not None]
    records += [(ControlType.RESULT, encode_result(result)) for result in results]
    return records


class _Batch:
    """The entries of a batch, which wait for the high watermark."""

    __slots__ = ("_entries", "_is_done")

    def __init__(self, entries: list[Entry]) -> None:
        self._entries = entries
        self._is_done = not entries

    def done(self) -> bool:
        """Whether nobody waits any longer."""
        return self._is_done

    def acknowledged(self, token: object, code: ErrorCode) -> None:  # noqa: ARG002
        """It is acknowledged (NONE), or never will be."""
        self._is_done = True
        for entry in self._entries:
            entry.finish(code)
