"""The agent beside rsyslog: the same files into the same broker.

Each takes its turn, as a process of its own, from its start until every line is stored. Both are
idempotent with ``acks=all``, wait 5 ms for more lines, and compress with lz4.
"""

import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count as counter
from pathlib import Path
from typing import Any

import psutil

from perf import before, rdkafka
from perf.peers import rsyslog
from perf.report import Figure
from perf.servers import MEMORY
from qbus.agent.config import read, to_toml
from tests.support.broker_process import BrokerProcess
from tests.support.server_process import ServerProcess

LINES = 1_000_000
LINE = b"2026-11-21T09:00:00 host program[123]: a line of a log as there are many, number %08d\n"
LINGER_MS = 5
_PATIENCE = 120.0
_HIGHER = {"lines/s", "MB/s"}

_topics = counter()

Side = Callable[..., AbstractContextManager[int]]
"""Ships files that match a glob: takes a directory, the glob, bootstrap, topic; gives its pid.

``record_start``: a regular expression of lines that begin records of several lines.
"""
Measure = Callable[[Side], dict[str, float]]


def run(rounds: int, scale: float) -> list[Figure]:
    """Ship one large file, then 1,000 files."""
    sides = all_sides()
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
            figures += compare(sides, rounds, f"{lines:,} lines, files: {files:,}", measure)
    return figures


def all_sides() -> dict[str, Side]:
    """Return what ships in turn: the agent, and that of the other checkout, or rsyslog."""
    sides: dict[str, Side] = {"qbus": through_agent}
    if before.checkout is not None:
        sides["before"] = partial(through_agent, env=before.environment(before.checkout))
    elif reason := rsyslog.missing():
        print(f"rsyslog is left out: {reason}", file=sys.stderr)
    else:
        sides["rsyslog"] = through_rsyslog
    return sides


def compare(sides: dict[str, Side], rounds: int, case: str, measure: Measure) -> list[Figure]:
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
    with fresh_topic(bootstrap) as topic, tempfile.TemporaryDirectory(prefix="qbus-perf-") as state:
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


@contextmanager
def fresh_topic(bootstrap: str) -> Iterator[str]:
    topic = f"agent-{next(_topics)}"
    rdkafka.create_topic(bootstrap, topic)
    yield topic
    rdkafka.delete_topic(bootstrap, topic)


class AgentCommand(ServerProcess):
    """``qbus agent run`` with a configuration."""

    name = "agent"

    def __init__(
        self, directory: Path, document: dict[str, Any], env: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(1, env)
        self._data_dir = directory / "data"
        self._config = directory / "agent.toml"
        self._config.write_text(to_toml(read(document)))

    def command(self) -> list[str]:
        """Return the command line."""
        command = [sys.executable, "-m", "qbus", "agent", "run", "--config", str(self._config)]
        return [*command, "--data-dir", str(self._data_dir)]

    def serves(self) -> bool:
        """Whether it runs: it serves nobody."""
        return self.alive


@contextmanager
def through_agent(
    directory: Path,
    pattern: str,
    bootstrap: str,
    topic: str,
    record_start: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """Ship by the agent, as its users start it."""
    source: dict[str, Any] = {"paths": [pattern], "from_beginning": True}
    if record_start is not None:
        source["multiline_start"] = record_start
    document = {
        "bootstrap": bootstrap,
        "topic": topic,
        "source": [source],
        "delivery": {"linger_ms": LINGER_MS},
    }
    with AgentCommand(directory, document, env) as agent:
        yield agent.pid
        agent.stop()


@contextmanager
def through_rsyslog(
    directory: Path, pattern: str, bootstrap: str, topic: str, record_start: str | None = None
) -> Iterator[int]:
    """Ship by rsyslog."""
    process = rsyslog.start(directory, pattern, bootstrap, topic, record_start)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()
