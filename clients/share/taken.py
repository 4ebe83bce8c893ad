"""The records that a member has, in runs, and how far its user is in them.

Nearly all are accepted as they were taken, many in a row. So what the user has seen is accepted by
runs, and records are kept one by one only once something is said of single ones.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import length_hint
from typing import NamedTuple

from qbus.records.codec import HeldItems

from ..types import TopicPartition
from .session import Lease
from .types import ShareRecord

Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""


class Span(NamedTuple):
    """Records in a row, taken under one lease."""

    partition: TopicPartition
    first: int
    size: int
    lease: Lease


class TakenRun:
    """Records of one partition that were taken at once; ``rest`` are those that nobody saw yet.

    One thread reads them, and another may look meanwhile how many it has seen.
    """

    def __init__(
        self,
        partition: TopicPartition,
        lease: Lease,
        records: Sequence[ShareRecord] = (),
        offsets: Sequence[int] | None = None,
    ) -> None:
        """``offsets``: of records that were seen already, in another form."""
        self.partition = partition
        self.lease = lease
        # A list's own iterator is the quickest, and knows how far it is.
        self.rest: Iterator[ShareRecord] = iter(records)
        self.done = 0
        """How many of them the user has seen and is done with."""
        self.is_polled = False
        """Whether the user may still be at all that was seen, as after a poll."""
        self.is_passed = False
        """Whether the user is to see no more of it, and is done with the last record seen."""
        self.is_indexed = False
        """Whether something may have been said of single records."""
        self.items: HeldItems[ShareRecord] | None = None
        """What a loop iterates over."""
        self._records = records
        self._offsets = offsets
        self._count = len(records if offsets is None else offsets)
        self._end = self._count  # of what may be seen

    @property
    def seen(self) -> int:
        """The number of records that the user has seen."""
        return self._count - length_hint(self.rest)

    @property
    def is_left(self) -> bool:
        """Whether there are some that the user has not seen."""
        return self.seen < self._end

    @property
    def is_over(self) -> bool:
        """Whether the user is done with all of them."""
        return self.done >= self._end

    def be_quick(self, is_watched: Callable[[], bool]) -> None:
        """Let a loop go on without a look at anything but the clock, until :meth:`look_again`."""
        items = self.items
        if items is None:  # another thread has withheld the rest meanwhile
            return
        items.is_quick = True
        # After it: what another thread changes meanwhile ends it, here or there.
        if self.is_indexed or self.is_passed or not (self.lease.is_valid and is_watched()):
            items.is_quick = False

    def look_again(self) -> None:
        """Have a loop look, before its next record, whether it is still to see it."""
        items = self.items
        if items is not None:
            items.is_quick = False

    def finish(self) -> None:
        """Show no more of them."""
        self.is_passed = True
        self.look_again()
        self.items = None  # which refers to the run: its records would wait for the collector

    def take(self, limit: int) -> list[ShareRecord]:
        """Return up to ``limit`` records, which are seen then."""
        return list(islice(self.rest, limit))

    def withhold(self) -> Sequence[int]:
        """Show no more of them; return the offsets of those that were not seen."""
        seen = self.seen
        withheld = self.offsets(seen)
        self._end = seen
        self.finish()
        return withheld

    def offsets(self, start: int, stop: int | None = None) -> Sequence[int]:
        """Return the offsets of some records, by their numbers."""
        stop = self._end if stop is None else stop
        if self._offsets is not None:
            return self._offsets[start:stop]
        records = self._records[start:stop]
        if not records:
            return ()
        first, last = records[0].offset, records[-1].offset
        if last - first + 1 == len(records):
            return range(first, last + 1)
        return [record.offset for record in records]


class TakenRecords:
    """The runs of one member. Used by one thread, but for what :class:`TakenRun` says.

    ``ready`` are the runs that the user has not seen all of. ``is_explicit``: nothing is accepted
    because the user has seen it.
    """

    def __init__(self, *, is_explicit: bool) -> None:
        self.ready: deque[TakenRun] = deque()
        self._is_explicit = is_explicit
        self._runs: list[TakenRun] = []
        self._index: dict[Place, Lease] = {}

    def add(self, run: TakenRun) -> None:
        """Keep what was taken."""
        self._runs.append(run)
        if self._is_explicit:
            self._look_up(run)

    def seen(self, *, but_current: bool) -> list[Span]:
        """Return what the user has seen and is done with since the last time, to be accepted.

        ``but_current``: not what a poll returned, nor the record that a loop is at.
        """
        spans: list[Span] = []
        for run in self._runs:
            if but_current and run.is_polled:
                continue
            is_at_one = but_current and not run.is_passed
            done = run.seen - 1 if is_at_one else run.seen
            if done > run.done:
                spans += self._done(run, run.offsets(run.done, done))
                run.done = done
            run.is_polled = False
        self._runs = [run for run in self._runs if not run.is_over]
        return spans

    def _done(self, run: TakenRun, offsets: Sequence[int]) -> Iterable[Span]:
        if self._is_explicit:
            return ()
        if run.is_indexed:
            places = ((*run.partition, offset) for offset in offsets)
            offsets = [place[2] for place in places if self._index.pop(place, None) is not None]
        return [Span(run.partition, *row, run.lease) for row in rows_of(offsets)]

    def withhold(self, run: TakenRun) -> list[int]:
        """Show no more of a run; return the offsets that this member still had."""
        withheld = run.withhold()
        if not run.is_indexed:
            return list(withheld)
        places = ((*run.partition, offset) for offset in withheld)
        return [place[2] for place in places if self._index.pop(place, None) is not None]

    def has(self, record: ShareRecord) -> bool:
        """Whether nothing was said of a record of an indexed run."""
        return record[:3] in self._index

    def look_again(self) -> None:
        """Have loops look, before their next record, whether they are still to see it."""
        for run in list(self.ready):  # at once: a loop in another thread passes them meanwhile
            run.look_again()

    # Single records.

    def index(self) -> dict[Place, Lease]:
        """Return what each record is held under that nothing was said of; entries may be removed.

        What was seen is to be accepted before.
        """
        for run in self._runs:
            if not run.is_indexed:
                self._look_up(run)
        return self._index

    def remove(self, places: Iterable[Place]) -> list[Span]:
        """Take these out of the index; return them as few spans, in their order."""
        spans: list[Span] = []
        for topic, partition, offset in places:
            lease = self._index.pop((topic, partition, offset))
            if spans:
                before, first, size, of = spans[-1]
                is_next = offset == first + size and lease is of and partition == before[1]
                if is_next and topic == before[0]:
                    spans[-1] = Span(before, first, size + 1, lease)
                    continue
            spans.append(Span(TopicPartition(topic, partition), offset, 1, lease))
        return spans

    def _look_up(self, run: TakenRun) -> None:
        places = ((*run.partition, offset) for offset in run.offsets(run.done))
        self._index.update(dict.fromkeys(places, run.lease))
        run.is_indexed = True  # last: its reader shows nothing that an indexed run does not have
        run.look_again()

    def clear(self) -> None:
        """Forget all of them, and show no more."""
        for run in self.ready:
            run.withhold()
        self.ready.clear()
        self._runs.clear()
        self._index.clear()


def rows_of(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield offsets that count up as the first of each row, and how many are in it."""
    if isinstance(offsets, range):
        if offsets:
            yield offsets[0], len(offsets)
        return
    start = 0
    for index in range(1, len(offsets) + 1):
        if index == len(offsets) or offsets[index] != offsets[index - 1] + 1:
            yield offsets[start], index - start
            start = index
