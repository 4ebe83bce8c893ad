"""Gives out what a queue has next: records one by one, or whole batches of them."""

import asyncio
from collections.abc import Callable
from typing import Final

from qbus.clock import Clock
from qbus.records import ConsumerRecord
from qbus.records.record import Headers

from .batches import StoredBatch
from .settlement import Given, Reason, Settlement
from .source import Found, RecordSource, neighbours
from .state import QueueState
from .taking import BatchesTaken, Once, RecordsTaken, Terms

_MOST_DROPPED: Final = 4_000  # in one turn of the loop
_AT_ONCE: Final = 256  # records decoded at a time
_NO_TERMS: Final = Terms(0, is_once=False)


class Giver:
    """Takes records of one queue for members, and leaves out those that nobody gets."""

    __slots__ = ("_clock", "_source", "_store", "_write")

    def __init__(
        self,
        source: RecordSource,
        clock: Clock,
        store: Callable[[QueueState, Settlement], None],
        write: Callable[[QueueState, Settlement], "asyncio.Future[None]"],
    ) -> None:
        """``store`` stores what was begun; ``write``, too, and returns what is done with that."""
        self._source = source
        self._clock = clock
        self._store = store
        self._write = write

    def take_records(self, state: QueueState, taken: RecordsTaken) -> bool:
        """Take what is there; whether only so many were dropped that others should have a turn.

        Raises Missing, ApiError, OSError.
        """
        source, count = self._source, 0
        while taken.left > 0 and state.has_room:
            if state.ready.size and self._drops_missing(state):
                continue
            found = source.next(state, min(taken.left, state.room, _AT_ONCE))
            if found is None:
                break
            last = found.last
            records, broken = source.read(found.batch, found.first, last)
            dropped = [(offset, Reason.BROKEN) for offset in broken]
            last = self._give(state, taken, found, records, dropped)
            if dropped:
                for low, high, reason in neighbours(dropped):
                    self._drop(state, low, high, reason)
            if found.is_fresh:
                state.pass_to(last + 1)
            count += len(dropped)
            if count >= _MOST_DROPPED and not taken.records:
                return True
        return False

    def _give(
        self,
        state: QueueState,
        taken: RecordsTaken,
        found: Found,
        records: list[ConsumerRecord],
        dropped: list[tuple[int, Reason]],
    ) -> int:
        """Give out those that are wanted, neighbours with one lock; the last one looked at.

        ``dropped`` gets those that are not.
        """
        source, by_headers, batch = self._source, taken.offer.by_headers, found.batch
        now_ms, takes_all, wall_ms = self._now_ms, source.takes_all(batch), self._clock.time_ms()
        terms = _NO_TERMS
        headers: Headers | None = None  # of the record before
        first = last = until_ms = -1  # of neighbours that are given out, and not noted yet
        for record in records:
            if not takes_all:
                reason = source.unwanted(batch, record, wall_ms)
                if reason is not None:
                    dropped.append((record.offset, reason))
                    continue
            offset = record.offset
            if by_headers is not None and record.headers is not headers:
                terms, headers = by_headers(record.headers), record.headers
            if terms.is_once:
                self._note(state, taken, first, last, until_ms)
                first = -1
                taken.add(record)
                settlement, history = state.give_at_most_once(offset)
                taken.add_once(history, self._write(state, settlement))
            else:
                until = now_ms + (terms.lock_ms or state.settings.lock_ms)
                if first < 0 or offset != last + 1 or until != until_ms:
                    self._note(state, taken, first, last, until_ms)
                    first, until_ms = offset, until
                last = offset
                taken.add(record)
            if taken.left <= 0:
                self._note(state, taken, first, last, until_ms)
                return offset
        self._note(state, taken, first, last, until_ms)
        return found.last

    def _note(
        self, state: QueueState, taken: RecordsTaken, first: int, last: int, until_ms: int
    ) -> None:
        """Note that neighbouring records are given out; a negative ``first``: there are none."""
        if first >= 0:
            for given in state.give(first, last, taken.offer.member, until_ms):
                taken.add_histories(given)

    def _drop(self, state: QueueState, first: int, last: int, reason: Reason) -> None:
        self._store(state, state.drop(first, last, reason))

    def _drops_missing(self, state: QueueState) -> bool:
        """Give up some of what is next and not in the log any more; whether there is any."""
        missing = self._source.missing(state)
        if missing is None:
            return False
        first, last = missing
        self._drop(state, first, last, Reason.BROKEN)
        return True

    def take_batches(self, state: QueueState, taking: BatchesTaken) -> None:
        """Take whole batches of what is there. Raises Missing, ApiError, OSError."""
        while state.has_room and taking.left > 0 and state.ready.size:
            if self._drops_missing(state):
                continue
            ready = self._source.next_ready(state, state.ready.size)
            if ready is None or not taking.has_room_for(ready.batch):
                return
            self._give_range(state, taking, ready.batch, ready.first, ready.last)
        while state.has_room and taking.left > 0:
            fresh = self._source.next_fresh(state)
            if fresh is None:
                return
            batch, free = fresh
            if not taking.has_room_for(batch):
                return
            for low, high in free:
                if taking.is_exact and (taking.left <= 0 or not state.has_room):
                    return
                state.pass_to(self._give_range(state, taking, batch, low, high) + 1)

    def _give_range(
        self, state: QueueState, taking: BatchesTaken, batch: StoredBatch, first: int, last: int
    ) -> int:
        """Give out what is wanted of records, as many as may be; the last one looked at."""
        if taking.is_exact:
            last = min(last, first + min(taking.left, state.room) - 1)
        until_ms = self._now_ms + state.settings.lock_ms
        for low, high, reason in self._source.runs(batch, first, last):
            if reason is None:
                taking.add(batch, state.give(low, high, taking.member, until_ms))
            elif reason is Reason.ONCE:
                for offset in range(low, high + 1):
                    settlement, history = state.give_at_most_once(offset)
                    taking.add(batch, [Given(offset, offset, history)])
                    taking.once.append(Once(offset, self._write(state, settlement)))
            else:
                self._drop(state, low, high, reason)
        return last

    @property
    def _now_ms(self) -> int:
        """The time of a clock that never goes back, in milliseconds."""
        return int(self._clock.monotonic() * 1000)
