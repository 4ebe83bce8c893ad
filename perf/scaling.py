"""How a broker of several workers scales: measured on two cores, and what a model makes of it.

The model has three times for each request: of the worker that answers it, of the generator, and of
the hub. Workers share no lock and no memory, so cores that have nothing else to do answer requests
at the rate of one of them, times their number. What they do share (the memory's bandwidth, the
network stack, the page cache) shows when two work at once and each takes longer for a request than
one alone. Where requests need the hub, it is one process, and no number of workers goes beyond it.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count as counter
from pathlib import Path

import psutil

from perf import rdkafka, requests
from perf.report import Figure
from perf.requests import PARTITIONS, Load, Row
from perf.servers import MEMORY
from qbus.wire import ApiKey, encode_request, encode_response
from qbus.wire.messages.find_coordinator import FindCoordinatorRequest
from qbus.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until
from tests.support.workers_process import WorkersProcess

CORES = 16
SECONDS = 2.0
COMMIT = "commit 1 offset, 64 connections"
_COMMIT_VERSION = 8
_GROUPS = 64
_MICRO = 1e6
_ROWS = (
    Row(64, 1, 100, 1),
    Row(64, 1, 100, -1),
    Row(16, 160, 100, 1),
    Row(16, 1000, 100, None),
)
_topics = counter()

Case = tuple[str, Callable[[WorkersProcess], AbstractContextManager[Load]], int]
"""What it is called, how it is prepared on a broker, and by how many connections it is sent."""


@dataclass(frozen=True)
class Spent:
    """What was measured of one load: answers a second, and seconds of CPU for each answer.

    ``worker``, ``hub`` and ``generator``: of all processes of that kind together.
    """

    rate: float
    worker: float
    hub: float
    generator: float


def one_core(of: Spent) -> float:
    """The rate that the model gives workers on one core, with the generator on another."""
    return min(1 / (of.worker + of.hub), 1 / of.generator)


def shared_cores(of: Spent, cores: int) -> float:
    """The rate of workers that share ``cores`` with the generator."""
    return cores / (of.worker + of.hub + of.generator)


def contention(alone: Spent, together: Spent) -> float:
    """By how much a request costs a worker more beside another one: 0.1 is a tenth."""
    return together.worker / alone.worker - 1


def many_cores(of: Spent, cores: int, each: float) -> tuple[float, float]:
    """The least and the most that workers on ``cores`` answer; clients are elsewhere.

    The most: a request costs what it does beside one other worker, however many there are. The
    least: each further worker adds as much again (``each``, from :func:`contention`). Neither is
    more than the hub can do, where requests need it.
    """
    each = max(each, 0.0)
    least = cores / (of.worker * (1 + each * (cores - 1)))
    most = cores / (of.worker * (1 + each))
    limit = 1 / of.hub if of.hub else most
    return min(least, limit), min(most, limit)


@dataclass(frozen=True)
class Placed:
    """Workers on one core of their own, or on all cores, with the generator."""

    count: int
    is_spread: bool

    def __str__(self) -> str:
        where = "two cores, with the generator" if self.is_spread else "one core"
        return f"{self.count} on {where}"

    def model(self, of: Spent) -> float:
        """The rate that the model gives them."""
        return shared_cores(of, 2) if self.is_spread else one_core(of)


ALONE = Placed(1, is_spread=False)
BESIDE = Placed(2, is_spread=False)
TOGETHER = Placed(2, is_spread=True)
PLACES = (ALONE, BESIDE, TOGETHER, Placed(4, is_spread=False), Placed(4, is_spread=True))

Measured = dict[str, dict[Placed, list[Spent]]]


def run(rounds: int, scale: float) -> list[Figure]:
    """Each load on 1, 2 and 4 workers: what was measured, and what the model says of it."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise RuntimeError("this needs two cores")
    measured: Measured = {}
    with _brokers() as brokers:
        for turn in range(rounds + 1):
            for placed in PLACES:
                broker = brokers[placed.count]
                broker.pin(cores if placed.is_spread else cores[1:])
                generator = cores if placed.is_spread else cores[:1]
                for case, prepared, connections in _CASES:
                    with prepared(broker.process) as load:
                        spent = _measure(broker, load, connections, SECONDS * scale, generator)
                    if turn:
                        measured.setdefault(case, {}).setdefault(placed, []).append(spent)
    return [figure for case, found in measured.items() for figure in figures(case, found)]


def figures(case: str, found: Mapping[Placed, Sequence[Spent]]) -> list[Figure]:
    """What was measured beside what the model says, by its parameters in the same round."""
    # A single broker keeps offsets itself: what the hub has of them shows with two.
    base = found[BESIDE] if case == COMMIT else found[ALONE]
    shown = []
    for placed, several in found.items():
        rate = Figure(f"{case}: {placed}", "requests/s; model")
        for one, of in zip(several, base, strict=True):
            rate.add("qbus", one.rate)
            rate.add("model", placed.model(of))
        shown.append(rate)
        for part in ("worker", "hub", "generator"):
            spent = [_MICRO * getattr(one, part) for one in several]
            if any(spent):
                shown.append(Figure(f"{case}: {placed}", f"us of the {part} for a request", spent))
    bounds = Figure(f"{case}: {CORES} cores", "requests/s; at most")
    for of, together in zip(base, found[TOGETHER], strict=True):
        least, most = many_cores(of, CORES, contention(of, together))
        bounds.add("qbus", least)
        bounds.add("most", most)
    return [*shown, bounds]


class _Broker:
    """A broker of workers, and which processes it has."""

    def __init__(self, process: WorkersProcess) -> None:
        self.process = process
        count = process.count
        several = count > 1  # else the one process is the worker
        self._workers = (
            [process.worker_pid(number + 1) for number in range(count)]
            if several
            else [process.pid]
        )
        self._hub = [process.hub_pid()] if several else []

    def pin(self, cores: Sequence[int]) -> None:
        """Give each worker, and the hub, a core of these, in turn."""
        for at, pid in enumerate([*self._workers, *self._hub]):
            for thread in psutil.Process(pid).threads():
                os.sched_setaffinity(thread.id, {cores[at % len(cores)]})

    def cpu_seconds(self) -> tuple[float, float]:
        """Of all workers, and of the hub."""
        return sum(map(_run_time, self._workers)), sum(map(_run_time, self._hub))


def _run_time(pid: int) -> float:
    """Seconds that the process's threads have run: finer than the ticks of its CPU times."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


@contextmanager
def _brokers() -> Iterator[dict[int, _Broker]]:
    with ExitStack() as running:
        directory = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="qbus-perf-")))
        counts = dict.fromkeys(placed.count for placed in PLACES)
        yield {
            count: _Broker(
                running.enter_context(WorkersProcess(directory / str(count), count, *MEMORY.qbus))
            )
            for count in counts
        }


def _measure(
    broker: _Broker, load: Load, connections: int, seconds: float, cores: Sequence[int]
) -> Spent:
    ports = ",".join(map(str, load.ports))
    with tempfile.NamedTemporaryFile() as frames:
        frames.write(load.frames)
        frames.flush()
        host = broker.process.host
        words = [host, ports, seconds, connections, 0, load.length, load.error_at, frames.name]
        pinned = ["taskset", "-c", ",".join(map(str, cores))]
        with subprocess.Popen(
            [*pinned, requests.compiled("requests"), *map(str, words)],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "counting\n", "the load failed"
            before = broker.cpu_seconds()
            outcome = json.loads(process.stdout.readline())
            after = broker.cpu_seconds()
    answers = outcome["answers"]
    worker, hub = (late - early for late, early in zip(after, before, strict=True))
    return Spent(
        rate=answers / outcome["seconds"],
        worker=worker / answers,
        hub=hub / answers,
        # Its time has the warm-up in it, whose answers are not counted.
        generator=outcome["cpu_s"] * outcome["seconds"] / seconds / answers,
    )


# Loads


def _row(row: Row) -> Case:
    @contextmanager
    def prepared(broker: WorkersProcess) -> Iterator[Load]:
        topic = f"scaling-{next(_topics)}"
        # Gigabytes may be left, whose pages would be written while the next load is measured.
        at_once = {"file.delete.delay.ms": "0"}
        rdkafka.create_topic(broker.bootstrap, topic, PARTITIONS, 1, **at_once)
        yield requests.prepare(broker.bootstrap, topic, row)
        rdkafka.delete_topic(broker.bootstrap, topic)

    return str(row), prepared, row.connections


# Commits of offsets: what needs the hub


@contextmanager
def _commits(broker: WorkersProcess) -> Iterator[Load]:
    """One commit for each of many groups, to its coordinator, after each was answered well."""
    topic = f"scaling-{next(_topics)}"
    rdkafka.create_topic(broker.bootstrap, topic)
    groups = [f"group-{number}" for number in range(_GROUPS)]
    frames = [commit_frame(group, topic) for group in groups]
    error_at = commit_error_position(topic)
    ports = []
    lengths = set()
    for group, frame in zip(groups, frames, strict=True):
        port = wait_until(partial(_coordinator, broker.port, group), "a coordinator")
        # The topic is new to the coordinator, too.
        lengths.add(wait_until(partial(_committed, port, frame, error_at), "a commit"))
        ports.append(port)
    (length,) = lengths
    yield Load(b"".join(frames), tuple(ports), length, error_at, 0, 0)
    rdkafka.delete_topic(broker.bootstrap, topic)


def _coordinator(port: int, group: str) -> int:
    with RawClient(port) as client:
        found = client.ask(ApiKey.FIND_COORDINATOR, 1, FindCoordinatorRequest(key=group))
    return int(found.port) if not found.error_code else 0


def _committed(port: int, frame: bytes, error_at: int) -> int:
    """The length of the answer to a commit; 0 if it is refused."""
    with RawClient(port) as client:
        client.send(frame)
        answer = client.receive_frame()
    assert answer is not None, "the broker closed the connection"
    return 0 if any(answer[error_at : error_at + 2]) else len(answer)


def commit_frame(group: str, topic: str) -> bytes:
    """An OffsetCommit request for one partition, by a client without a membership."""
    partition = OffsetCommitRequestPartition(committed_offset=7, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    )
    parts = encode_request(ApiKey.OFFSET_COMMIT, _COMMIT_VERSION, 0, "perf", request)
    return b"".join(map(bytes, parts))


def commit_error_position(topic: str) -> int:
    """Where an answer to :func:`commit_frame` has its error code, behind the length."""

    def answer(code: int) -> bytes:
        partition = OffsetCommitResponsePartition(partition_index=0, error_code=code)
        topics = [OffsetCommitResponseTopic(name=topic, partitions=[partition])]
        response = OffsetCommitResponse(topics=topics)
        parts = encode_response(ApiKey.OFFSET_COMMIT, _COMMIT_VERSION, 0, response)
        return b"".join(map(bytes, parts))[4:]

    pairs = zip(answer(0), answer(-1), strict=True)
    return next(at for at, (one, other) in enumerate(pairs) if one != other)


_CASES: tuple[Case, ...] = (*map(_row, _ROWS), (COMMIT, _commits, _GROUPS))
