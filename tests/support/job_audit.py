"""What the workers and adders of jobs saw, read from their journals, and what must not be in them.

A journal is of one process, which may have been killed. Times are of the machine's monotonic clock,
in nanoseconds::

    + NUMBER ASKED      a job was added, for sure, which was asked for at ASKED
    ? NUMBER            adding it failed, or was not answered: it may be there, or twice
    g NUMBER FROM TO NACKS TIMEOUTS
                        a job was given out, asked for at FROM and here at TO; what it counts
    a NUMBER ID         it is acknowledged under this id, which is not answered yet
    d NUMBER AT         the acknowledgement was answered at AT: it is done, and it was not before
    r NUMBER            it is refused, which is not answered yet
    n NUMBER AT         the refusal was answered at AT

Journals grow to millions of lines: each is read once, from where the last look ended, and a job
that is given out once takes some 40 bytes.
"""

import itertools
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_CHUNK_BYTES = 1 << 24
_ADDED, _UNSURE = 1, 2
_GRAIN_NS = 2_000_000  # brokers count in milliseconds

Breaks = Sequence[tuple[int, int]]
"""From when to when leaders may have changed: a new one knows no locks."""


class Given(NamedTuple):
    """A job that came to a worker: when it was asked for, when it was here, and what it counted."""

    asked: int
    here: int
    nacks: int
    timeouts: int

    @property
    def failures(self) -> int:
        """How often it was given out before, and not done, as far as its leader knows."""
        return self.nacks + self.timeouts


class Seen:
    """What all processes saw of one queue, whose jobs are numbers from 0 on."""

    def __init__(self) -> None:
        self._states = bytearray()
        self._added_at = array("q")
        self._asked = array("q")  # of the first giving, 0: none
        self._here = array("q")
        self._done_at = array("q")  # 0: not done
        self._counted: dict[int, tuple[int, int]] = {}  # by the first giving, if not both are 0
        self._again: dict[int, list[Given]] = defaultdict(list)
        self._done_again: set[int] = set()
        self._tried: dict[int, bytes] = {}  # of those that are not done
        self._refused: dict[int, list[int]] = defaultdict(list)
        self._refusing: Counter[int] = Counter()
        self._offsets: dict[Path, int] = {}
        self.added = 0
        self.done = 0

    # Reading

    def read(self, path: Path) -> None:
        """Take in what a journal has more than at the last look.

        A line that is not whole does not count, yet: its process may have been killed.
        """
        offset = self._offsets.get(path, 0)
        with path.open("rb") as file:
            file.seek(offset)
            while data := file.read(_CHUNK_BYTES):
                end = data.rfind(b"\n") + 1
                if not end:
                    break
                for line in data[:end].splitlines():
                    self._take_in(line.split())
                offset += end
                file.seek(offset)
        self._offsets[path] = offset

    def _take_in(self, words: list[bytes]) -> None:
        kind, number = words[0], int(words[1])
        if number >= len(self._states):
            self._make_room(number + 1)
        if kind == b"g":
            self._give(number, Given(*map(int, words[2:])))
        elif kind == b"a":
            if not self._done_at[number]:
                self._tried[number] = words[2]
        elif kind == b"d":
            self._finish(number, int(words[2]))
        elif kind == b"+":
            self.added += not self._states[number] & _ADDED
            self._states[number] |= _ADDED
            self._added_at[number] = int(words[2])
        elif kind == b"?":
            self._states[number] |= _UNSURE
        elif kind == b"r":
            self._refusing[number] += 1
        else:
            self._refused[number].append(int(words[2]))

    def _make_room(self, count: int) -> None:
        more = max(count, 2 * len(self._states)) - len(self._states)
        self._states.extend(bytes(more))
        for times in (self._added_at, self._asked, self._here, self._done_at):
            times.frombytes(bytes(8 * more))

    def _give(self, number: int, given: Given) -> None:
        if self._here[number]:
            self._again[number].append(given)
            return
        self._asked[number], self._here[number] = given.asked, given.here
        if given.nacks or given.timeouts:
            self._counted[number] = given.nacks, given.timeouts

    def _finish(self, number: int, at: int) -> None:
        before = self._done_at[number]
        if before:
            self._done_again.add(number)
            at = min(at, before)
        else:
            self.done += 1
            self._tried.pop(number, None)
        self._done_at[number] = at

    # What there is

    def givings(self, number: int) -> list[Given]:
        """How a job came to workers, in the order of what it counted.

        The times do not tell the order: a worker may ask early and wait, or note late what it got.
        """
        if not self._here[number]:
            return []
        counted = self._counted.get(number, (0, 0))
        first = Given(self._asked[number], self._here[number], *counted)
        givings = [first, *self._again.get(number, ())]
        return sorted(givings, key=lambda given: (given.failures, given.here))

    @property
    def given(self) -> int:
        """How many jobs came to a worker, at least once."""
        return sum(1 for here in self._here if here)

    def numbers(self) -> set[int]:
        """The jobs that were added for sure."""
        return {number for number, state in enumerate(self._states) if state & _ADDED}

    def unsure(self) -> set[int]:
        """Jobs that may have been added twice, or not at all."""
        return {number for number, state in enumerate(self._states) if state & _UNSURE}

    def unanswered(self) -> dict[int, bytes]:
        """Jobs that are acknowledged, and not done as far as anybody was told: with an id."""
        return self._tried

    def histogram(self) -> str:
        """How many jobs were given out how often."""
        counts = Counter(1 + len(again) for again in self._again.values())
        counts[1] = self.given - counts.total()
        return str(sorted(counts.items()))

    # What must not be

    def open(self, dead: Collection[int] = frozenset()) -> set[int]:
        """Jobs that were added, and nobody was told that they are done; ``dead``: given up."""
        added = (number for number, state in enumerate(self._states) if state & _ADDED)
        return {number for number in added if not self._done_at[number]}.difference(dead)

    def lost(self, dead: Collection[int] = frozenset()) -> set[int]:
        """The same, but for those with an acknowledgement under way, which may have counted."""
        if self.added <= self.done:
            return set()
        return self.open(dead) - self._tried.keys()

    def done_twice(self) -> set[int]:
        """Jobs whose acknowledgement was told twice that it was the first; added once for sure."""
        return self._sure(self._done_again)

    def given_after_done(self) -> set[int]:
        """Jobs that somebody asked for and got after their acknowledgement was answered."""
        return self._sure(
            number
            for number, done_at in enumerate(self._done_at)
            if done_at and any(given.asked > done_at for given in self._all_of(number))
        )

    def given_twice(self) -> set[int]:
        """Jobs that were given out more than once."""
        return self._sure(self._again)

    def given_within_lock(self, lock_s: float, breaks: Breaks) -> set[int]:
        """Jobs that two had at a time, though the first did not refuse it."""
        return self._sure(
            number
            for number, one, other in self._pairs(breaks)
            if other.nacks == one.nacks and other.here < one.asked + _lock_ns(lock_s)
        )

    def miscounted(self, lock_s: float, breaks: Breaks) -> set[int]:
        """Jobs that count otherwise than they were given out.

        Each time-out takes a lock's time. Each delivery before this one ended by a time-out or a
        refusal, unless the leader changed. A refusal that was answered is counted for ever, and
        none that nobody tried is.
        """
        found = {
            number
            for number, one, other in self._pairs(breaks)
            if other.failures == one.failures or other.here < one.asked
        }
        lock_ns = _lock_ns(lock_s)
        for number in self._again.keys() | self._counted.keys() | self._refusing.keys():
            refused = self._refused.get(number, [])
            added_at = self._added_at[number]
            for given in self.givings(number):
                least = sum(1 for at in refused if at < given.asked)
                is_early = added_at != 0 and given.here - added_at < given.timeouts * lock_ns
                if is_early or not least <= given.nacks <= self._refusing[number]:
                    found.add(number)
        return self._sure(found)

    def pairs(self, breaks: Breaks) -> tuple[int, int]:
        """Of how many deliveries after others it is checked how they follow them; of how many."""
        everything = sum(len(again) for again in self._again.values())
        return sum(1 for _ in self._pairs(breaks)), everything

    def _pairs(self, breaks: Breaks) -> Iterator[tuple[int, Given, Given]]:
        """Each delivery after another one of the same leader."""
        for number in self._again:
            for one, other in itertools.pairwise(self.givings(number)):
                first, last = min(one.asked, other.asked), max(one.here, other.here)
                if not any(begin < last and end > first for begin, end in breaks):
                    yield number, one, other

    def _all_of(self, number: int) -> list[Given]:
        if number in self._again:
            return self.givings(number)
        return [Given(self._asked[number], self._here[number], 0, 0)]

    def _sure(self, numbers: "Collection[int] | Iterator[int]") -> set[int]:
        return {number for number in numbers if not self._states[number] & _UNSURE}


def _lock_ns(lock_s: float) -> float:
    return lock_s * 1e9 - _GRAIN_NS
