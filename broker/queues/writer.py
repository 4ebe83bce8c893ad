"""Stores what was begun with the records of one queue, and tells who waits for it what came of it.

Each thing that was begun is an entry of the partition's journal; but records that are finished,
whoever has them, in one turn of the event loop share one.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from qbus.errors import ApiError
from qbus.records.control import SharedResult

from .journal import Entry, Journal
from .outcomes import SettledListeners
from .settlement import Finishing, Settlement
from .state import QueueState

_MOST_FINISHED: Final = 10_000  # in one entry of the journal


class Owner(Protocol):
    """A queue, as what is stored for it sees it."""

    def was_stored(self, state: QueueState, settlement: Settlement) -> bool:
        """What was begun is in the log; whether the queue still goes by that state."""

    def went_on(self) -> None:
        """What follows from that may be done."""

    def was_not_stored(self, state: QueueState, settlement: Settlement, error: ApiError) -> None:
        """What was begun cannot be stored."""


class SettlementEntry(Entry):
    """Something that was begun with records, until that is stored, or cannot be."""

    __slots__ = ("_listeners", "_queue", "settlement", "state")

    def __init__(
        self,
        group: str,
        queue: Owner,
        listeners: SettledListeners,
        state: QueueState,
        settlement: Settlement | None,
        result: SharedResult | None = None,
    ) -> None:
        super().__init__(group, [] if settlement is None else settlement.changes, result)
        self.state = state
        self.settlement = settlement
        self._queue = queue
        self._listeners = listeners

    def stored(self) -> None:
        """See :class:`Entry`."""
        settlement, self.settlement = self.settlement, None
        if settlement is None or not self._queue.was_stored(self.state, settlement):
            return
        offsets = self._listeners.in_changes(settlement.changes)
        if offsets:
            if self.acknowledged is None:
                self.acknowledged = asyncio.get_running_loop().create_future()
            self.acknowledged.add_done_callback(partial(self._listeners.tell, offsets))
        self._queue.went_on()

    def failed(self, error: ApiError) -> None:
        """See :class:`Entry`."""
        settlement, self.settlement = self.settlement, None
        if settlement is not None:
            self._queue.was_not_stored(self.state, settlement, error)


class FinishedEntry(SettlementEntry):
    """Records that are finished in one turn of the event loop."""

    __slots__ = ("_writer", "finishing", "is_told")

    def __init__(
        self,
        group: str,
        queue: Owner,
        listeners: SettledListeners,
        state: QueueState,
        writer: "QueueWriter",
    ) -> None:
        super().__init__(group, queue, listeners, state, None)
        self.finishing = Finishing()
        self.is_told = False  # to the journal
        self._writer = writer

    def close(self) -> None:
        """See :class:`Entry`: nothing more is gathered in it."""
        self._writer.forget(self)
        self.settlement = self.finishing.settlement()
        self.changes = self.settlement.changes


class _TryOut(Entry):
    """Nothing but the group's name: whether anything can be stored."""

    __slots__ = ("_on_end",)

    def __init__(self, group: str, on_end: Callable[[ApiError | None], None]) -> None:
        super().__init__(group, [])
        self._on_end = on_end

    def stored(self) -> None:
        """See :class:`Entry`."""
        self._on_end(None)

    def failed(self, error: ApiError) -> None:
        """See :class:`Entry`."""
        self._on_end(error)


class QueueWriter:
    """What one queue stores."""

    __slots__ = ("_finished", "_group", "_journal", "_listeners", "_queue")

    def __init__(
        self, queue: Owner, group: str, journal: Journal, listeners: SettledListeners
    ) -> None:
        """``listeners``: who waits until records are done."""
        self._queue = queue
        self._group = group
        self._journal = journal
        self._listeners = listeners
        self._finished: FinishedEntry | None = None

    def store(self, state: QueueState, settlement: Settlement) -> None:
        """Store what was begun; nobody waits for it."""
        self._journal.add(self._entry(state, settlement, None))

    def write(
        self, state: QueueState, settlement: Settlement, result: SharedResult | None = None
    ) -> "asyncio.Future[None]":
        """Store what was begun, and return what gets its result when it is for good."""
        return self._journal.write(self._entry(state, settlement, result))

    def _entry(
        self, state: QueueState, settlement: Settlement, result: SharedResult | None
    ) -> SettlementEntry:
        return SettlementEntry(self._group, self._queue, self._listeners, state, settlement, result)

    def finished(self, state: QueueState) -> FinishedEntry:
        """Where what is finished in this turn of the event loop is gathered."""
        entry = self._finished
        if entry is None or entry.state is not state or entry.finishing.count >= _MOST_FINISHED:
            entry = FinishedEntry(self._group, self._queue, self._listeners, state, self)
            self._finished = entry
        return entry

    def forget(self, entry: FinishedEntry) -> None:
        """Gather nothing more in ``entry``."""
        if entry is self._finished:
            self._finished = None

    def finish(self, entry: FinishedEntry) -> None:
        """Store what was gathered, at the end of this turn of the event loop."""
        if not entry.is_told:
            entry.is_told = True
            self._journal.add(entry)

    def try_out(self, on_end: Callable[[ApiError | None], None]) -> None:
        """Store that the group is there, which changes nothing, and tell whether that was stored.

        ``on_end`` gets the error, if there was one.
        """
        self._journal.add(_TryOut(self._group, on_end))
