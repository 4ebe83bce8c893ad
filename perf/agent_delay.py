"""From a line's end of writing to a consumer, through the agent and through rsyslog.

Each form in turn through each of them: how long that takes, what of a core the shipper uses, and
what 1,000 files cost that nobody writes.
"""

import subprocess
import tempfile
import time
from array import array
from functools import partial
from pathlib import Path

import psutil

from perf import agent
from perf.agent import Measure, Side
from perf.agent_lines import Form, command
from perf.report import Figure
from perf.servers import MEMORY
from qbus import Consumer
from tests.support.broker_process import BrokerProcess

SECONDS = 5.0
IDLE_FILES = 1000
RECORD_START = "^[0-9]{8} "
_PATIENCE_S = 20.0
_FIRST = b"99999999 begins\n"
_WARM_UP = 5
"""One of so many records warms up."""

FORMS = (
    Form(name="1 file, 10 lines/s", rate=10),
    Form(name="1 file, 1,000 lines/s", rate=1000),
    Form(name="1 file, 20,000 lines/s", rate=20_000),
    Form(name="100 files, 1,000 lines/s", rate=1000, files=100),
    Form(name="100 files, 20,000 lines/s", rate=20_000, files=100),
    Form(name="1,000 files, 5 written, 1,000 lines/s", rate=1000, files=1000, written=5),
    Form(name="lines of 10,000 bytes, 1,000/s", rate=1000, size=10_000),
    Form(name="lines in two halves, 500/s", rate=500, is_halved=True),
    Form(name="records of 3 lines, 1,000/s", rate=1000, lines=3),
    Form(name="opened for each line, 1,000/s", rate=1000, is_reopened=True),
    Form(name="renamed every 0.5 s, 1,000 lines/s", rate=1000, is_rotated=True),
)


class Incomplete(Exception):  # noqa: N818 - what happened
    """Not every record came."""


def run(rounds: int, scale: float) -> list[Figure]:
    """Measure every form, then idle files."""
    sides = agent.all_sides()
    figures: list[Figure] = []
    with (
        tempfile.TemporaryDirectory(prefix="qbus-perf-") as directory,
        BrokerProcess(Path(directory, "qbus"), *MEMORY.qbus) as broker,
    ):
        seconds = max(SECONDS * scale, 2.0)
        for form in FORMS:
            measure: Measure = partial(_wait, broker.bootstrap, form, seconds)
            found = agent.compare(sides, rounds, form.name, measure)
            if any(figure.unit == "lost" and any(figure.qbus) for figure in found):
                raise Incomplete(f"the agent lost records: {form.name}")
            figures += found
        idle: Measure = partial(_rest, broker.bootstrap, seconds)
        figures += agent.compare(sides, rounds, f"{IDLE_FILES:,} files that nobody writes", idle)
    return figures


def _wait(bootstrap: str, form: Form, seconds: float, side: Side) -> dict[str, float]:
    """Write for some seconds; return the delays of the records."""
    count = max(20, int(seconds * form.rate))
    with (
        agent.fresh_topic(bootstrap) as topic,
        tempfile.TemporaryDirectory(prefix="qbus-perf-") as state,
    ):
        logs, ends = _make_logs(Path(state), form.files, form.lines), Path(state, "ends")
        start = RECORD_START if form.lines > 1 else None
        with (
            side(Path(state), f"{logs}/*.log", bootstrap, topic, record_start=start) as pid,
            Consumer(bootstrap, offset_reset="earliest") as consumer,
        ):
            consumer.assign([(topic, 0, 0)])
            _await_first(consumer, form.files)
            before = _cpu(pid)
            writer = subprocess.Popen(command(logs, form, count, ends))
            try:
                arrivals = _read(consumer, count, form.lines)
            finally:
                writer.wait(_PATIENCE_S + seconds)
            used = (_cpu(pid) - before) / (count / form.rate)
        written = array("d", ends.read_bytes())
    delays = sorted(
        arrived - end
        for arrived, end in zip(
            arrivals[count // _WARM_UP :], written[count // _WARM_UP :], strict=True
        )
        if arrived
    )
    lost = sum(not arrived for arrived in arrivals) - (form.lines > 1)
    found = {f"ms (p{part})": delays[len(delays) * part // 100] * 1000 for part in (50, 99)}
    return {**found, "% of a core": used * 100, "lost": float(max(0, lost))}


def _rest(bootstrap: str, seconds: float, side: Side) -> dict[str, float]:
    """What the shipper takes while nothing is written."""
    with (
        agent.fresh_topic(bootstrap) as topic,
        tempfile.TemporaryDirectory(prefix="qbus-perf-") as state,
    ):
        logs = _make_logs(Path(state), IDLE_FILES)
        with (
            side(Path(state), f"{logs}/*.log", bootstrap, topic) as pid,
            Consumer(bootstrap, offset_reset="earliest") as consumer,
        ):
            consumer.assign([(topic, 0, 0)])
            _await_first(consumer, IDLE_FILES)
            time.sleep(1)
            before = _cpu(pid)
            time.sleep(2 * seconds)
            used = (_cpu(pid) - before) / (2 * seconds)
            memory = psutil.Process(pid).memory_info().rss
    return {"% of a core": used * 100, "MB": memory / 1e6}


def _make_logs(directory: Path, files: int, lines: int = 1) -> Path:
    """Make files with a first record each, which shows that all of them are tailed.

    ``lines``: those of a record; if there are several, its end is shown by the next one.
    """
    logs = directory / "logs"
    logs.mkdir()
    for number in range(files):
        (logs / f"{number:04d}.log").write_bytes(_FIRST * min(lines, 2))
    return logs


def _await_first(consumer: Consumer, files: int) -> None:
    deadline, seen = time.monotonic() + 60, 0
    while seen < files:
        seen += sum(len(part) for part in consumer.poll(0.1))
        if time.monotonic() > deadline:
            raise Incomplete(f"only {seen} of {files} files were begun")


def _read(consumer: Consumer, count: int, lines: int) -> list[float]:
    """Return when each record came; the last one of several lines may still be unfinished."""
    arrivals, missing = [0.0] * count, count - (lines > 1)
    deadline = time.monotonic() + _PATIENCE_S
    while missing > 0 and time.monotonic() < deadline:
        values = [record.value or b"" for part in consumer.poll(0.1) for record in part]
        now = time.perf_counter()
        if values:
            deadline = time.monotonic() + _PATIENCE_S
        for value in values:
            if value.startswith(_FIRST.strip()):
                continue
            index = int(value[:8])
            missing -= not arrivals[index]
            arrivals[index] = arrivals[index] or now
    return arrivals


def _cpu(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system
