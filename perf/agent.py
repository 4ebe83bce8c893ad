"""The agent beside rsyslog: the same files into the same broker.

Each takes its turn, as a process of its own, from its start until every line is stored. Both are
idempotent with ``acks=all``, wait 5 ms for more lines, and compress with lz4.
"""

import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count as counter
from pathlib import Path

import psutil

from perf import rdkafka
from perf.peers import rsyslog
from perf.report import Figure
from perf.servers import MEMORY
from qbus import Consumer
from tests.support.agent_process import AgentProcess
from tests.support.broker_process import BrokerProcess

LINES = 1_000_000
LINE = b"2026-11-21T09:00:00 host program[123]: a line of a log as there are many, number %08d\n"
RATE = 1000
LINGER_MS = 5
_PATIENCE = 120.0
_HIGHER = {"lines/s", "MB/s"}

_topics = counter()

Side = Callable[[Path, str, str, str], AbstractContextManager[int]]
"""Ships files that match a glob: takes a directory, the glob, bootstrap, topic; gives its pid."""
Measure = Callable[[Side], dict[str, float]]


def run(rounds: int, scale: float) -> list[Figure]:
    """Ship one large file, then 1,000 files; then the delay of single lines at a fixed rate."""
    sides: dict[str, Side] = {"qbus": _agent}
    if reason := rsyslog.missing():
        print(f"rsyslog is left out: {reason}", file=sys.stderr)
    else:
        sides["rsyslog"] = _rsyslog
    lines = max(int(LINES * scale), 10_000)
    figures: list[Figure] = []
    with (
        tempfile.TemporaryDirectory(prefix="qbus-perf-") as directory,
        BrokerProcess(Path(directory, "qbus"), *MEMORY.qbus) as broker,
    ):
        for files in (1, 1000):
            logs = Path(directory, f"logs-{files}")
            size = _write(logs, files, lines)
            measure = partial(_ship, bootstrap=broker.bootstrap, logs=logs, lines=lines, size=size)
            figures += _compare(sides, rounds, f"{lines:,} lines, files: {files:,}", measure)
        measure = partial(_wait, bootstrap=broker.bootstrap, seconds=max(5 * scale, 2.0))
        figures += _compare(sides, rounds, f"write to readable, {RATE:,} lines/s", measure)
    return figures


def _compare(sides: dict[str, Side], rounds: int, case: str, measure: Measure) -> list[Figure]:
    figures: dict[str, Figure] = {}
    for _ in range(rounds):
        for name, side in sides.items():
            for unit, value in measure(side).items():
                if unit not in figures:
                    figures[unit] = Figure(case, unit, lower_is_better=unit not in _HIGHER)
                figures[unit].add(name, value)
    return list(figures.values())


def _write(logs: Path, files: int, lines: int) -> int:
    """Write logs; how many bytes they have."""
    logs.mkdir()
    each = lines // files
    for number in range(files):
        start = number * each
        content = b"".join(LINE % index for index in range(start, start + each))
        (logs / f"{number:04d}.log").write_bytes(content)
    return lines * len(LINE % 0)


def _ship(side: Side, bootstrap: str, logs: Path, lines: int, size: int) -> dict[str, float]:
    """What it takes to ship files that are there."""
    with _topic(bootstrap) as topic, tempfile.TemporaryDirectory(prefix="qbus-perf-") as state:
        started = time.perf_counter()
        with side(Path(state), f"{logs}/*.log", bootstrap, topic) as pid:
            process = psutil.Process(pid)
            while (stored := rdkafka.end_offset(bootstrap, topic)) < lines:
                if time.perf_counter() - started > _PATIENCE:
                    raise RuntimeError(f"{stored} of {lines} lines were stored")
                time.sleep(0.01)
            seconds = time.perf_counter() - started
            times = process.cpu_times()
            peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
        assert peak is not None
        if (stored := rdkafka.end_offset(bootstrap, topic)) != lines:
            raise RuntimeError(f"{stored} lines were stored, not {lines}")
    return {
        "lines/s": lines / seconds,
        "MB/s": size / seconds / 1e6,
        "CPU s per GB": (times.user + times.system) / size * 1e9,
        "MB at most": int(peak[1]) / 1000,
    }


def _wait(side: Side, bootstrap: str, seconds: float) -> dict[str, float]:
    """How long it takes from a line's end of writing until it is read from the topic."""
    count = int(seconds * RATE)
    with _topic(bootstrap) as topic, tempfile.TemporaryDirectory(prefix="qbus-perf-") as state:
        log = Path(state, "steady.log")
        log.touch()
        with (
            side(Path(state), f"{log}", bootstrap, topic),
            Consumer(bootstrap, offset_reset="earliest") as consumer,
        ):
            consumer.assign([(topic, 0, 0)])
            with log.open("ab", buffering=0) as file:  # what is written first warms all up
                file.write(b"0 begins\n")
                delays: list[float] = []
                while not delays:
                    delays = _read(consumer)
                writer = threading.Thread(target=_write_steadily, args=(file, count))
                writer.start()
                delays = []
                deadline = time.monotonic() + _PATIENCE
                while len(delays) < count and time.monotonic() < deadline:
                    delays += _read(consumer)
                writer.join()
    if len(delays) != count:
        raise RuntimeError(f"{len(delays)} of {count} lines came")
    steady = sorted(delays[count // 5 :])
    return {f"ms (p{part})": steady[len(steady) * part // 100] * 1000 for part in (50, 99)}


def _write_steadily(file: object, count: int) -> None:
    start = time.perf_counter()
    for index in range(count):
        due = start + index / RATE
        time.sleep(max(0.0, due - time.perf_counter()))
        file.write(b"%.6f a line of a log\n" % time.perf_counter())  # type: ignore[attr-defined]


def _read(consumer: Consumer) -> list[float]:
    values = [record.value or b"" for part in consumer.poll(0.1) for record in part]
    now = time.perf_counter()
    return [now - float(value.split()[0]) for value in values]


@contextmanager
def _topic(bootstrap: str) -> Iterator[str]:
    topic = f"agent-{next(_topics)}"
    rdkafka.create_topic(bootstrap, topic)
    yield topic
    rdkafka.delete_topic(bootstrap, topic)


@contextmanager
def _agent(directory: Path, pattern: str, bootstrap: str, topic: str) -> Iterator[int]:
    document = {
        "bootstrap": bootstrap,
        "topic": topic,
        "source": [{"paths": [pattern], "from_beginning": True}],
        "delivery": {"linger_ms": LINGER_MS},
    }
    with AgentProcess(directory, document) as agent:
        yield agent.pid
        agent.stop()


@contextmanager
def _rsyslog(directory: Path, pattern: str, bootstrap: str, topic: str) -> Iterator[int]:
    process = rsyslog.start(directory, pattern, bootstrap, topic)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()
