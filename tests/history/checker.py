"""Checks whether what the clients saw is consistent with a correct log.

A correct log is a dense sequence of offsets for each partition. It holds every acknowledged record
at its acknowledged offset, returns the same record at the same offset to every reader, keeps the
order of each idempotent producer and of operations that did not overlap in time, and holds nothing
else. The kinds of findings follow Jepsen's checker for Kafka (jepsen.tests.kafka).
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from .history import History, Outcome, Poll, Produce
from .report import Finding, Kind, Report


def check(history: History) -> Report:
    """Compare the history with a correct log."""
    produces: defaultdict[int, list[Produce]] = defaultdict(list)
    polls: defaultdict[int, list[Poll]] = defaultdict(list)
    for produce in history.produces:
        produces[produce.partition].append(produce)
    for poll in history.polls:
        polls[poll.partition].append(poll)
    homes = {produce.value: produce.partition for produce in history.produces}
    findings = [
        finding
        for partition in sorted({*produces, *polls, *history.ends})
        for finding in _Partition(
            partition,
            produces[partition],
            polls[partition],
            history.relaxed,
            history.ends.get(partition),
            homes,
        ).findings()
    ]
    return Report(findings, _summary(history))


def assert_correct(history: History) -> None:
    """Fail with the report if there are findings."""
    report = check(history)
    assert not report.findings, str(report)


def _summary(history: History) -> str:
    told = ", ".join(f"{history.told(outcome)} {outcome.value}" for outcome in Outcome)
    read = sum(len(poll.records) for poll in history.polls)
    errors = {produce.error for produce in history.produces if produce.error} | set(history.errors)
    reasons = f"; errors: {'; '.join(sorted(errors)[:5])}" if errors else ""
    return f"{len(history.produces)} records sent ({told}), {read} read{reasons}"


class _Partition:
    """The log of one partition, as far as the clients saw it, and the contradictions."""

    def __init__(
        self,
        partition: int,
        produces: list[Produce],
        polls: list[Poll],
        relaxed: set[str],
        end: int | None,
        homes: dict[bytes, int],
    ) -> None:
        self._partition = partition
        self._produces = produces
        self._polls = polls
        self._relaxed = relaxed
        self._end = end
        self._homes = homes
        self._sent = {produce.value: produce for produce in produces}
        self._told: dict[int, set[bytes]] = {}
        """The values at an offset, from acknowledgements and reads."""
        self._read: dict[int, bytes] = {}
        self._places: dict[bytes, set[int]] = {}
        """The offsets of a value, from acknowledgements and reads."""
        self._known: dict[bytes, float] = {}
        """The earliest time at which a client knew that a value was stored."""
        self._collect()

    def _collect(self) -> None:
        for produce in self._produces:
            if produce.outcome is Outcome.OK and produce.ended is not None:
                self._note(produce.value, produce.offset, produce.ended)
        for poll in self._polls:
            for offset, value in poll.records:
                self._read.setdefault(offset, value)
                self._note(value, offset, poll.ended)

    def _note(self, value: bytes, offset: int | None, when: float) -> None:
        self._known[value] = min(self._known.get(value, when), when)
        if offset is not None:
            self._told.setdefault(offset, set()).add(value)
            self._places.setdefault(value, set()).add(offset)

    def findings(self) -> Iterator[Finding]:
        """Yield all contradictions."""
        for kind, found in (
            (Kind.LOST, self._lost()),
            (Kind.UNSEEN, self._unseen()),
            (Kind.DUPLICATED, self._duplicated()),
            (Kind.REORDERED, self._reordered()),
            (Kind.PHANTOM, self._phantoms()),
            (Kind.INCONSISTENT, self._inconsistent()),
            (Kind.NON_MONOTONIC, self._repeated()),
            (Kind.GAP, self._gaps()),
        ):
            for what in found:
                yield Finding(kind, self._partition, what)

    def _unread(self) -> Iterator[tuple[Produce, bool]]:
        """Yield the acknowledged records that were not read, and whether they are surely lost."""
        read = set(self._read.values())
        is_read_out = self._end is not None and not self._missing()
        jumps = [(before, after) for _, before, after in self._steps() if after > before + 1]
        for produce in self._produces:
            if produce.outcome is not Outcome.OK or produce.value in read:
                continue
            place = produce.offset
            yield (
                produce,
                is_read_out
                or (place is not None and place in self._read)
                or (place is not None and self._end is not None and place >= self._end)
                or (place is not None and any(a < place < b for a, b in jumps)),
            )

    def _missing(self) -> list[int]:
        """The offsets below the end that were not read."""
        return [offset for offset in range(self._end or 0) if offset not in self._read]

    def _lost(self) -> Iterator[str]:
        for produce, is_gone in self._unread():
            if is_gone:
                there = None if produce.offset is None else self._read.get(produce.offset)
                yield (
                    f"{produce.value!r} of {produce.producer} was acknowledged at {produce.offset};"
                    f" read there: {there!r}, end: {self._end}"
                )
        if self._end is not None:
            for offset in sorted(offset for offset in self._read if offset >= self._end):
                yield f"{self._read[offset]!r} was read at {offset}; end: {self._end}"

    def _unseen(self) -> Iterator[str]:
        for produce, is_gone in self._unread():
            if not is_gone:
                yield (
                    f"{produce.value!r} of {produce.producer}, acknowledged at {produce.offset},"
                    " was not read"
                )

    def _duplicated(self) -> Iterator[str]:
        for value, places in self._places.items():
            produce = self._sent.get(value)
            if len(places) > 1 and (produce is None or produce.producer not in self._relaxed):
                yield f"{value!r} is at {sorted(places)}"

    def _reordered(self) -> Iterator[str]:
        places = {value: min(places) for value, places in self._places.items()}
        yield from self._reordered_by_producers(places)
        # A record known before another was sent precedes it, whatever their producers.
        earliest, first = float("inf"), b""
        for value in sorted(places, key=places.__getitem__, reverse=True):
            produce = self._sent.get(value)
            if produce is not None and earliest < produce.started:
                yield (
                    f"{value!r} at {places[value]} was sent when {first!r}"
                    f" at {places[first]} was stored already"
                )
            if self._known[value] < earliest:
                earliest, first = self._known[value], value

    def _reordered_by_producers(self, places: dict[bytes, int]) -> Iterator[str]:
        sent: defaultdict[str, list[bytes]] = defaultdict(list)
        for produce in self._produces:
            if produce.value in places and produce.producer not in self._relaxed:
                sent[produce.producer].append(produce.value)
        for producer, values in sent.items():
            for before, after in pairwise(values):
                if places[after] < places[before]:
                    yield (
                        f"{producer} sent {before!r}, at {places[before]},"
                        f" before {after!r}, at {places[after]}"
                    )

    def _phantoms(self) -> Iterator[str]:
        first: dict[bytes, Poll] = {}
        for poll in self._polls:
            for _, value in poll.records:
                if value not in first or poll.ended < first[value].ended:
                    first[value] = poll
        for value, poll in first.items():
            produce = self._sent.get(value)
            if produce is None:
                home = self._homes.get(value)
                why = "was never sent" if home is None else f"was sent to partition {home}"
                yield f"{value!r}, read by {poll.consumer}, {why}"
            elif produce.outcome is Outcome.FAILED:
                yield f"{value!r}, read by {poll.consumer}, was refused: {produce.error}"
            elif poll.ended < produce.started:
                yield f"{value!r} was read by {poll.consumer} before it was sent"

    def _inconsistent(self) -> Iterator[str]:
        for offset, values in self._told.items():
            if len(values) > 1:
                yield f"at {offset} are {', '.join(map(repr, sorted(values)))}"

    def _steps(self) -> Iterator[tuple[Poll, int, int]]:
        """Yield each offset that a consumer returned in a session, with the previous one."""
        last: dict[tuple[str, int], int] = {}
        for poll in self._polls:
            who = poll.consumer, poll.session
            for offset, _ in poll.records:
                if who in last:
                    yield poll, last[who], offset
                last[who] = offset

    def _repeated(self) -> Iterator[str]:
        for poll, before, after in self._steps():
            if after <= before:
                yield f"{poll.consumer} returned {after} after {before}"

    def _gaps(self) -> Iterator[str]:
        for poll, before, after in self._steps():
            if after > before + 1:
                yield f"{poll.consumer} returned {after} after {before}"
        if missing := self._missing():
            yield f"{len(missing)} below the end {self._end} were not read: {missing[:5]}"
