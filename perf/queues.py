"""Jobs beside Disque, beanstalkd, Redis, BullMQ, RQ and Kafka's share groups.

Workers add jobs of 100 bytes, one after another, and take and acknowledge them, each over a
connection of its own: jobs/s, of a worker's loop as services run it. Then the time from add to get
under a steady rate, and the memory for jobs that wait. Each server as durable as it can be (every
job on stable storage when it is answered) and without waiting for a disk (``memory``: Qbus and
Kafka write to the page cache, the others keep jobs in their memory).

Qbus is loaded as its peer is: as Disque, by a Go program, beside those that take a job at a time,
and as share groups, by Kafka's Java client, beside Kafka.
"""

import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count as counter

from perf.peers import job_queues
from perf.peers.job_queues import JobServer
from perf.report import Figure
from perf.servers import cpu_seconds_of

SIZE = 100
SECONDS = 4.0
STEADY_WORKERS = 16
STEADY_RATE = 1_000
STEADY_SECONDS = 8.0
LEAST_STEADY_SECONDS = 4.0
"""At any scale: one in a hundred of fewer jobs says what one pause was."""
WAITING = 1_000_000
_PATIENCE = 3  # times the seconds in which jobs were added, to take them
_FILL_SECONDS = 300.0
_FIRST_SECONDS = 20.0  # for a queue that is made at first use
_WARM_UP = 2  # times the seconds of a row: a JVM compiles while it is loaded
_MB = 1e6
_ONE_AT_A_TIME = {"beanstalkd", "bullmq", "rq"}  # whatever a worker asks for

_queues = counter()


@dataclass(frozen=True)
class Row:
    """So many workers; each takes ``most`` jobs at a time, or what its client takes by default."""

    workers: int
    most: int | None = None

    def __str__(self) -> str:
        workers = f"{self.workers} worker{'s' if self.workers > 1 else ''}"
        return workers if self.most is None else f"{workers}, {self.most} at a time"


# Kafka's client takes up to 500 by default; the others take one.
ROWS = {
    "disque": (Row(1), Row(16), Row(64), Row(16, most=100)),
    "share groups": (Row(1), Row(16), Row(64), Row(16, most=1)),
}


@dataclass
class Figures:
    """Figures by case and unit, each beside every peer that Qbus is compared with."""

    peers: Sequence[str]
    found: dict[tuple[str, str], Figure] = field(default_factory=dict)

    def add(
        self,
        server: str,
        case: str,
        unit: str,
        value: float,
        *,
        lower: bool = False,
        without: Collection[str] = (),
    ) -> None:
        """Add a measurement of one server; Qbus's is there for each peer that has the case, too.

        ``without``: those that do not.
        """
        beside = [peer for peer in self.peers or ["nobody"] if peer not in without]
        for peer in beside if server == "qbus" else [server]:
            name = f"{case} beside {peer}"
            new = Figure(name, unit, lower_is_better=lower)
            self.found.setdefault((name, unit), new).add(server, value)


def run(
    rounds: int, scale: float, peers: Sequence[str] = job_queues.NAMES, processes: int = 1
) -> list[Figure]:
    """Measure Qbus and those of the peers that can run here, in turn.

    ``processes``: Qbus is a broker with so many workers; nothing is said of memory then.
    """
    present = []
    for name in peers:
        reason = job_queues.missing(name)
        if reason is None:
            present.append(name)
        else:
            print(f"{name} is left out: {reason}", file=sys.stderr)
    figures: list[Figure] = []
    for way, known in job_queues.WAYS.items():
        if not set(known).isdisjoint(peers):
            found = Figures([name for name in known if name in present])
            for durable in (True, False):
                start = partial(
                    job_queues.running, way=way, size=SIZE, durable=durable, processes=processes
                )
                with ExitStack() as stack:
                    names = ("qbus", *found.peers)
                    servers = [stack.enter_context(start(name)) for name in names]
                    promise = "fsync" if durable else "memory"
                    _measure_load(found, servers, ROWS[way], rounds, scale, promise)
            if processes == 1:
                _measure_memory(found, way, scale)
            figures += found.found.values()
    return figures


def _measure_load(
    figures: Figures,
    servers: Sequence[JobServer],
    rows: Sequence[Row],
    rounds: int,
    scale: float,
    promise: str,
) -> None:
    for server in servers:
        _add_and_work(server, Row(STEADY_WORKERS), _WARM_UP * SECONDS * scale)
    for _ in range(rounds):
        for row in rows:
            without = _ONE_AT_A_TIME if row.most else ()
            for server in servers:
                if server.name not in without:
                    found = _add_and_work(server, row, SECONDS * scale)
                    for (what, unit), value in found.items():
                        case = f"{what}, {row}, {promise}"
                        figures.add(server.name, case, unit, value, without=without)
        for server in servers:
            case = f"add to get at {STEADY_RATE:,}/s, {STEADY_WORKERS} workers, {promise}"
            seconds = max(STEADY_SECONDS * scale, LEAST_STEADY_SECONDS)
            for unit, value in _steady(server, seconds).items():
                figures.add(server.name, case, unit, value, lower=True)


def _measure_memory(figures: Figures, way: str, scale: float) -> None:
    """The memory of servers that are as fast as they can be, so that many jobs come to wait.

    Once, whatever the number of rounds: it is hardly ever another.
    """
    count, patience = int(WAITING * scale), max(_FILL_SECONDS * scale, _FIRST_SECONDS)
    for name in ("qbus", *figures.peers):
        with job_queues.running(name, way, SIZE, durable=False) as server:
            _add_and_work(server, Row(1), SECONDS * scale)
            with _opened(server, Row(1)):
                before = server.memory()
                filled = server.load.ask("fill", count, patience, seconds=patience)
                grown = max(server.memory() - before, 0)  # the objects of a JVM come and go
        per_million = grown / _MB * 1e6 / filled["jobs"]
        figures.add(name, "memory, per million jobs waiting", "MB", per_million, lower=True)


def _add_and_work(server: JobServer, row: Row, seconds: float) -> dict[tuple[str, str], float]:
    """Add jobs for so long, and then take and acknowledge them all, or for some times as long."""
    patience = _PATIENCE * seconds
    with _opened(server, row):
        added, found = _timed(server, "add", seconds, patience=seconds)
        _, worked = _timed(server, "work", added, patience, patience=patience)
    return found | worked


def _timed(
    server: JobServer, what: str, *words: object, patience: float
) -> tuple[int, dict[tuple[str, str], float]]:
    before = cpu_seconds_of(server.process.pid)
    done = server.load.ask(what, *words, seconds=patience)
    spent = cpu_seconds_of(server.process.pid) - before
    count = int(done["jobs"])
    rates = {
        "jobs/s": count / (done["seconds"] or 1),
        "jobs per CPU second": count / max(spent, 0.01),
    }
    return count, {(what, unit): rate for unit, rate in rates.items()}


def _steady(server: JobServer, seconds: float) -> dict[str, float]:
    """The milliseconds from when a job should have been added to when a worker has it.

    Nothing of a server that falls so far behind that some jobs do not come in time.
    """
    with _opened(server, Row(STEADY_WORKERS)):
        found = server.load.ask("steady", STEADY_RATE, seconds, seconds=seconds)
    if found["jobs"] < int(STEADY_RATE * seconds):
        print(f"{server.name} does not keep up: {found}", file=sys.stderr)
        return {}
    return {"p50 ms": found["p50_ms"], "p99 ms": found["p99_ms"]}


@contextmanager
def _opened(server: JobServer, row: Row) -> Iterator[None]:
    """The workers of a row, connected, with a queue of their own, which had a job before."""
    ask = server.load.ask
    ask("queue", f"jobs-{next(_queues)}")
    ask("open", row.workers, *([] if row.most is None else [row.most]))
    ask("fill", 1, _FIRST_SECONDS)
    ask("work", 1, _FIRST_SECONDS)
    yield
    ask("close")
