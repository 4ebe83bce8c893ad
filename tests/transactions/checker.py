"""Checks whether what transactional clients saw is consistent.

Reading with isolation ``read_committed`` shows the records of committed transactions alone, each
at one offset, all of a transaction or none, to every consumer in the order of their offsets; and
what a transaction consumed is consumed once. The kinds of findings follow Jepsen's checker for
Kafka (jepsen.tests.kafka). Writes of transactions that ran at the same time may be interleaved:
cycles of writes alone are no fault.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from graphlib import CycleError, TopologicalSorter

from .history import History, Outcome, Poll, Send, Transaction


class Kind(Enum):
    """The kinds of contradictions."""

    ABORTED_READ = "aborted read"
    """A value of a transaction that was aborted for certain."""
    EARLY_READ = "early read"
    """A value that was read before its commit was asked for; its own client's, too."""
    PHANTOM = "phantom"
    """A value that nobody sent, or that was sent to another partition."""
    LOST_WRITE = "lost write"
    """A value of a committed transaction, or one that was read, and is gone."""
    TORN = "torn transaction"
    """Some values of a transaction are there, and others are not."""
    INCONSISTENT = "inconsistent offsets"
    """Two values at one offset, or one value at two."""
    CYCLE = "write/read cycle"
    """Transactions of which each read what the next one wrote (G1c)."""
    SKIP = "skip"
    """A consumer passed over a committed value."""
    INVERSION = "inversion"
    """A value at a lower offset than one that its client had sent before."""
    NON_MONOTONIC = "non-monotonic poll"
    """A consumer returned an offset again, or an earlier one."""
    CONSUMED_TWICE = "consumed twice"
    """A value that two committed transactions of one client consumed."""
    NOT_CONSUMED = "not consumed"
    """A value below a group's committed offset, consumed by none of its transactions."""
    WENT_BACK = "offset went back"
    """A last stable offset or an end below an earlier one, or a last stable offset above an end."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One contradiction."""

    kind: Kind
    what: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.what}"


@dataclass(frozen=True, slots=True)
class Report:
    """All findings, and how much was looked at."""

    findings: Sequence[Finding]
    summary: str
    shown: int = 5
    """How many findings of each kind are printed."""

    @property
    def kinds(self) -> set[Kind]:
        """The kinds of contradictions that were found."""
        return {finding.kind for finding in self.findings}

    def __str__(self) -> str:
        lines = [self.summary]
        for kind, total in Counter(finding.kind for finding in self.findings).items():
            these = [finding for finding in self.findings if finding.kind is kind]
            lines += [f"  {finding}" for finding in these[: self.shown]]
            if total > self.shown:
                lines.append(f"  {kind.value}: {total} in all")
        return "\n".join(lines)


def check(history: History) -> Report:
    """Compare the history with what transactions promise."""
    return Report(list(_Check(history).findings()), _summary(history))


def assert_correct(history: History) -> None:
    """Fail with the report if there are findings."""
    report = check(history)
    assert not report.findings, str(report)


def _summary(history: History) -> str:
    told = ", ".join(f"{history.told(outcome)} {outcome.value}" for outcome in Outcome)
    sent = sum(len(one.sends) for one in history.transactions)
    read = sum(len(poll.records) for one in history.transactions for poll in one.polls)
    errors = sorted({one.error for one in history.transactions if one.error} | set(history.errors))
    reasons = f"; errors: {'; '.join(errors[:5])}" if errors else ""
    return (
        f"{len(history.transactions)} transactions ({told}), {sent} records sent, {read} polled,"
        f" {len(history.ends)} looks at the ends{reasons}"
    )


Place = tuple[int, int]
"""A partition and an offset."""


class _Check:
    """The findings of one history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._sent: dict[str, tuple[Transaction, Send]] = {
            send.value: (one, send) for one in history.transactions for send in one.sends
        }
        self._clients: defaultdict[str, list[Transaction]] = defaultdict(list)
        for one in history.transactions:
            self._clients[one.client].append(one)
        self._final: dict[str, Place] = {
            value: (partition, offset)
            for partition, records in history.final.items()
            for offset, value in records
        }
        self._places: defaultdict[str, set[Place]] = defaultdict(set)
        """Where each value is, from acknowledgements, polls and the reading at the end."""
        for partition, offset, value in self._told():
            self._places[value].add((partition, offset))

    def _polls(self) -> Iterator[tuple[Transaction, Poll]]:
        for one in self._history.transactions:
            for poll in one.polls:
                yield one, poll

    def _read(self) -> Iterator[tuple[int, int, str]]:
        for _, poll in self._polls():
            for offset, value in poll.records:
                yield poll.partition, offset, value
        for partition, records in self._history.final.items():
            for offset, value in records:
                yield partition, offset, value

    def _told(self) -> Iterator[tuple[int, int, str]]:
        yield from self._read()
        for _, send in self._sent.values():
            if send.offset is not None:
                yield send.partition, send.offset, send.value

    def findings(self) -> Iterator[Finding]:
        """Yield all contradictions."""
        for kind, found in (
            (Kind.ABORTED_READ, self._aborted_reads()),
            (Kind.EARLY_READ, self._early_reads()),
            (Kind.PHANTOM, self._phantoms()),
            (Kind.LOST_WRITE, self._lost()),
            (Kind.TORN, self._torn()),
            (Kind.INCONSISTENT, self._inconsistent()),
            (Kind.CYCLE, self._cycles()),
            (Kind.SKIP, self._skips()),
            (Kind.INVERSION, self._inversions()),
            (Kind.NON_MONOTONIC, self._non_monotonic()),
            (Kind.CONSUMED_TWICE, self._consumed_twice()),
            (Kind.NOT_CONSUMED, self._not_consumed()),
            (Kind.WENT_BACK, self._went_back()),
        ):
            for what in found:
                yield Finding(kind, what)

    def _aborted_reads(self) -> Iterator[str]:
        for value in dict.fromkeys(value for _, _, value in self._read()):
            one, _ = self._sent.get(value, (None, None))
            if one is not None and one.outcome is Outcome.ABORTED:
                yield f"{value} at {sorted(self._places[value])}; {_named(one)}: {one.error}"

    def _early_reads(self) -> Iterator[str]:
        for reader, poll in self._polls():
            for offset, value in poll.records:
                one, _ = self._sent.get(value, (None, None))
                if one is None:
                    continue
                if one is reader:
                    yield f"{_named(one)} polled its own {value} at {offset}"
                elif one.committing is not None and poll.ended < one.committing:
                    yield f"{value} at {offset} was read before {_named(one)} was to be committed"

    def _phantoms(self) -> Iterator[str]:
        for partition, offset, value in self._read():
            _, send = self._sent.get(value, (None, None))
            if send is None:
                yield f"{value} at {offset} of {partition} was never sent"
            elif send.partition != partition:
                yield f"{value} at {offset} of {partition} was sent to {send.partition}"

    def _lost(self) -> Iterator[str]:
        if not self._history.final:
            return
        polled = {value for _, poll in self._polls() for _, value in poll.records}
        for value, (one, send) in self._sent.items():
            if value in self._final:
                continue
            if one.outcome is Outcome.COMMITTED:
                yield f"{value} of {_named(one)}, committed, sent to {send.partition}"
            elif value in polled:
                yield f"{value} of {_named(one)} was polled, and is not there at the end"

    def _torn(self) -> Iterator[str]:
        if not self._history.final:
            return
        for one in self._history.transactions:
            there = [send.value for send in one.sends if send.value in self._final]
            if there and len(there) < len(one.sends):
                gone = [send.value for send in one.sends if send.value not in self._final]
                yield f"{_named(one)}, {one.outcome.value}: {there} are there, {gone} are not"

    def _inconsistent(self) -> Iterator[str]:
        values: defaultdict[Place, set[str]] = defaultdict(set)
        for value, places in self._places.items():
            if len(places) > 1:
                yield f"{value} is at {sorted(places)}"
            for place in places:
                values[place].add(value)
        for place, found in values.items():
            if len(found) > 1:
                yield f"at {place} are {sorted(found)}"

    def _cycles(self) -> Iterator[str]:
        whole = self._history.transactions
        numbers = {id(one): number for number, one in enumerate(whole)}
        writers: dict[int, set[int]] = {}
        for number, one in enumerate(whole):
            read = (value for poll in one.polls for _, value in poll.records)
            found = {numbers[id(self._sent[value][0])] for value in read if value in self._sent}
            writers[number] = found - {number}
        try:
            TopologicalSorter(writers).prepare()
        except CycleError as error:
            named = "; ".join(_named(whole[number]) for number in error.args[1][1:])
            yield f"each wrote what the next one read: {named}"

    def _steps(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield each offset that a consumer returned in a session, with the one before."""
        last: dict[tuple[str, int, int], int] = {}
        for one, poll in self._polls():
            who = one.client, poll.partition, poll.session
            for offset, _ in poll.records:
                if who in last:
                    yield one.client, poll.partition, last[who], offset
                last[who] = offset

    def _skips(self) -> Iterator[str]:
        committed: defaultdict[int, list[int]] = defaultdict(list)
        ranks: dict[Place, int] = {}
        for partition, records in self._history.final.items():
            for offset in sorted(offset for offset, _ in records):
                ranks[partition, offset] = len(committed[partition])
                committed[partition].append(offset)
        for client, partition, before, after in self._steps():
            first, last = ranks.get((partition, before)), ranks.get((partition, after))
            if first is not None and last is not None and last > first + 1:
                passed = committed[partition][first + 1 : last]
                yield f"{client} passed over {passed[:5]} of {partition}, from {before} to {after}"

    def _inversions(self) -> Iterator[str]:
        for client, transactions in self._clients.items():
            last: dict[int, tuple[int, str]] = {}
            for one in transactions:
                for send in one.sends:
                    place = self._final.get(send.value)
                    offset = send.offset if place is None else place[1]
                    if offset is None:
                        continue
                    before, value = last.get(send.partition, (-1, ""))
                    if offset < before:
                        yield (
                            f"{client} sent {send.value}, at {offset} of {send.partition}, after"
                            f" {value}, at {before}"
                        )
                    last[send.partition] = offset, send.value

    def _non_monotonic(self) -> Iterator[str]:
        for client, partition, before, after in self._steps():
            if after <= before:
                yield f"{client} returned {after} of {partition} after {before}"

    def _consumed_twice(self) -> Iterator[str]:
        for transactions in self._clients.values():
            consumed: dict[str, Transaction] = {}
            for one in transactions:
                if one.outcome is not Outcome.COMMITTED:
                    continue
                for value in {value for poll in one.polls for _, value in poll.records}:
                    if value in consumed:
                        yield f"{value} by {_named(consumed[value])} and {_named(one)}"
                    consumed[value] = one

    def _not_consumed(self) -> Iterator[str]:
        for client, positions in self._history.positions.items():
            consumed = {
                value
                for one in self._clients[client]
                if one.outcome is not Outcome.ABORTED
                for poll in one.polls
                for _, value in poll.records
            }
            for partition, position in positions.items():
                for offset, value in self._history.final.get(partition, ()):
                    if offset < position and value not in consumed:
                        yield f"{value} at {offset} of {partition}; {client} is at {position}"

    def _went_back(self) -> Iterator[str]:
        for look in self._history.ends:
            if look.stable > look.end:
                yield f"stable of {look.partition} is {look.stable}, and its end {look.end}"
        looks = sorted(self._history.ends, key=lambda one: one.told)
        for what in ("stable", "end"):
            # The highest of all that was told before a look was asked for.
            highest: dict[int, int] = {}
            told = iter(looks)
            waiting = next(told, None)
            for look in sorted(self._history.ends, key=lambda one: one.asked):
                while waiting is not None and waiting.told <= look.asked:
                    known = highest.get(waiting.partition, 0)
                    highest[waiting.partition] = max(known, getattr(waiting, what))
                    waiting = next(told, None)
                if getattr(look, what) < highest.get(look.partition, 0):
                    yield (
                        f"{what} of {look.partition} was {highest[look.partition]}, and then"
                        f" {getattr(look, what)}"
                    )


def _named(one: Transaction) -> str:
    values = [send.value for send in one.sends]
    return f"the transaction of {one.client} with {values[0] if values else 'polls alone'}"
