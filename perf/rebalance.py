"""How long a group reads nothing of a partition when a member joins, leaves or dies."""

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import count, pairwise
from typing import NamedTuple

from perf import rdkafka
from perf.rebalance_load import HEARTBEAT_MS, SESSION_MS, Crew, Read
from perf.report import Figure
from perf.servers import Setup, both
from tests.support.steady_records import steady_records

_PER_MEMBER = 2
"""Partitions for each member."""
_EVERY_S = 0.1
"""Seconds between two records of a partition."""
_QUIET_S = 1.5
"""The rebalance is over when nothing has changed for so long."""
_STOP_S = 0.5
"""What is shorter is no stop, but how records come."""
_PATIENCE_S = 90.0
_CASES = (("librdkafka", 10), ("qbus", 10), ("librdkafka", 100))
_PROTOCOLS = ("classic", "consumer")
_EVENTS = ("joins", "leaves", "dies")
_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
}
_SETUP = Setup(
    qbus=tuple(word for pair in _SETTINGS.items() for word in ("-o", "=".join(pair))),
    kafka=_SETTINGS,
)

_topics = count()


class Outcome(NamedTuple):
    """What an event did to the reading of a group, in seconds.

    until_whole: from the event until the last partition was read again, by whoever has it after.
    standstill: the longest time that nothing was read of a partition that stayed where it was.
    """

    until_whole: float
    standstill: float


def run(rounds: int, scale: float) -> list[Figure]:
    """Groups of both protocols, of librdkafka's consumers and of Qbus's own.

    A member more joins a group, leaves it, joins again and is killed. Heartbeats come every second,
    and sessions last 6 s. All partitions get ten records a second.
    """
    figures: dict[tuple[str, str], Figure] = {}
    cases = [(client, size) for client, size in _CASES if scale >= 1 or size == _CASES[0][1]]
    with both(_SETUP) as servers:
        for _ in range(rounds):
            for client, size in cases:
                for protocol in _PROTOCOLS:
                    group = f"{protocol}, {size} members of {client}"
                    for server in servers:
                        measured = _measure(server.bootstrap, client, protocol, size)
                        for event, (until_whole, standstill) in measured.items():
                            again = _figure(figures, group, f"one {event}: all are read again")
                            again.add(server.name, until_whole)
                            others = _figure(figures, group, f"one {event}: longest stop of others")
                            others.add(server.name, standstill)
    return list(figures.values())


def _figure(figures: dict[tuple[str, str], Figure], group: str, what: str) -> Figure:
    case = f"{group}; {what}"
    return figures.setdefault((group, what), Figure(case, "s", lower_is_better=True))


def _measure(bootstrap: str, client: str, protocol: str, size: int) -> dict[str, Outcome]:
    """Return what each of _EVENTS does to a group of so many members."""
    topic = f"rebalance-{next(_topics)}"
    partitions = size * _PER_MEMBER
    rdkafka.create_topic(bootstrap, topic, partitions)
    measured: dict[str, Outcome] = {}
    with ExitStack() as stack:
        stack.enter_context(steady_records(bootstrap, topic, partitions, _EVERY_S))

        def make(name: str, members: int) -> Crew:
            crew = Crew(bootstrap, name, members, client=client, protocol=protocol, topic=topic)
            stack.callback(crew.end)
            return crew

        group = _Group(partitions)
        group.crews.append(make("crew", size - 1))
        group.crews[0].join()
        group.settle()
        for event in _EVENTS[1:]:
            last = make(f"last-{event}", 1)
            group.crews.append(last)
            joined_at = group.watch(last.join)
            group.settle()
            measured.setdefault(_EVENTS[0], outcome(group.reads, joined_at))
            gone_at = group.watch(last.leave if event == "leaves" else last.die)
            group.crews.remove(last)
            group.settle()
            if event == "leaves":
                last.left()
            measured[event] = outcome(group.reads, gone_at)
    rdkafka.delete_topic(bootstrap, topic)
    return measured


class _Group:
    """What all members have read lately."""

    def __init__(self, partitions: int) -> None:
        self.crews: list[Crew] = []
        self.reads: list[Read] = []
        self._partitions = partitions
        self._began_at = time.monotonic()

    def watch(self, event: Callable[[], float]) -> float:
        """Have something happen; return when. Reads of the last second before are kept."""
        self._collect()
        self._began_at = event()
        self.reads = [read for read in self.reads if read.at > self._began_at - 1.0]
        return self._began_at

    def settle(self) -> None:
        """Return when each member reads its partitions, and has for a while."""
        members = sum(crew.count for crew in self.crews)
        deadline = self._began_at + _PATIENCE_S
        while True:
            self._collect()
            now = time.monotonic()
            lately = [read for read in self.reads if read.at > now - _QUIET_S]
            has_been_long = now - self._began_at > _QUIET_S
            if has_been_long and is_shared(lately, self._partitions, members):
                return
            if now > deadline:
                errors = [error for crew in self.crews for error in crew.errors]
                raise AssertionError(
                    f"{members} members do not settle: {lately[-50:]}; their last errors: {errors}"
                )
            time.sleep(0.2)

    def _collect(self) -> None:
        for crew in self.crews:
            self.reads += crew.report()
        self.reads.sort()


def is_shared(reads: Iterable[Read], partitions: int, members: int) -> bool:
    """Whether so many members read so many partitions, each partition by one member."""
    pairs = {(read.partition, read.member) for read in reads}
    readers = {member for _, member in pairs}
    return len(pairs) == len({one for one, _ in pairs}) == partitions and len(readers) == members


def outcome(reads: Iterable[Read], event_at: float) -> Outcome:
    """Return what an event did, from all reads of about a second before it until all is quiet."""
    by_partition: dict[int, list[Read]] = {}
    for read in sorted(reads):
        by_partition.setdefault(read.partition, []).append(read)
    until_whole = standstill = 0.0
    for found in by_partition.values():
        before = [read for read in found if read.at <= event_at]
        owner = found[-1].member
        if before and before[-1].member == owner:
            times = [before[-1].at, *(read.at for read in found if read.at > event_at)]
            stop, ended_at = max((after - first, after) for first, after in pairwise(times))
            standstill = max(standstill, stop)
            back_at = ended_at if stop > _STOP_S else event_at
        else:
            back_at = min(read.at for read in found if read.at > event_at and read.member == owner)
        until_whole = max(until_whole, back_at - event_at)
    return Outcome(until_whole, standstill)
