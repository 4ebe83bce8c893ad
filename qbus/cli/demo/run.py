"""The demo from start to end: a broker, a file sent through it, a comparison, a report."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from qbus.cli.demo import latency
from qbus.cli.demo.comparison import Comparison, Plan, compare
from qbus.cli.demo.process import BrokerProcess
from qbus.cli.demo.progress import Progress, shown
from qbus.cli.demo.source import Source, choose_times, find_log
from qbus.cli.demo.transfer import PARTITIONS, Group, produce
from qbus.cli.failures import Failure
from qbus.cli.output import note
from qbus.cli.version import form
from qbus.clients import Admin

TOPIC = "demo"
PROBE_TOPIC = "demo-latency"
GROUP = "demo-readers"

#: The two members start together: the group need not wait for others.
_BROKER_OPTIONS = ("-o", "group.initial.rebalance.delay.ms=500")

#: A log file may have long lines.
_TOPIC_CONFIG = {"max.message.bytes": str(64 * 1024 * 1024)}

#: Bytes written for each byte sent: the broker's log, and the consumers' copy.
_COPIES = 2.2


async def run(source: Source, work_dir: Path, data_dir: Path, progress: Progress) -> dict[str, Any]:
    """Run all steps; return the report. Its ``difference`` is None if every byte is equal.

    ``data_dir`` is for the broker's data, ``work_dir`` for everything else.
    """
    _check_space(source, work_dir)
    progress.begin("Starting a broker")
    with BrokerProcess(data_dir, _BROKER_OPTIONS) as broker:
        async with Admin(broker.bootstrap) as admin:
            await admin.describe_cluster()
            start_seconds = broker.age_seconds()
            await admin.create_topic(TOPIC, partitions=PARTITIONS, config=_TOPIC_CONFIG)
            await admin.create_topic(PROBE_TOPIC, partitions=1)
        idle_bytes = broker.memory_bytes()
        progress.begin("Producing", source.total_size)
        with source.open() as stream:
            plan, produce_seconds = await produce(broker.bootstrap, TOPIC, stream, progress.advance)
        with ExitStack() as stack:
            files = [stack.enter_context(_copy(work_dir, index)) for index in range(PARTITIONS)]
            progress.begin("Consuming", plan.lines)
            group = Group(broker.bootstrap, TOPIC, GROUP, files)
            consumed = await group.consume(plan.lines, progress.advance)
            progress.begin("Comparing")
            comparison = _compare(source, plan, files)
        progress.begin("Measuring latency")
        latencies = await latency.measure(broker.bootstrap, PROBE_TOPIC)
        loaded_bytes = broker.memory_bytes()
        progress.begin("Stopping the broker")
    return {
        "form": form(),
        "file": str(source.path),
        "file_bytes": source.size,
        "times": source.times,
        "records": plan.lines,
        "bytes": plan.size,
        "partitions": PARTITIONS,
        "produce_seconds": produce_seconds,
        "consume_seconds": consumed.seconds,
        "consumed_records": consumed.records,
        "members": consumed.shares,
        "latency_ms": {
            "acknowledged": latencies.acknowledged._asdict(),
            "delivered": latencies.delivered._asdict(),
        },
        "latency_records": latency.RECORDS,
        "sent_sha256": comparison.sent_sha256,
        "received_sha256": comparison.received_sha256,
        "difference": _difference(plan, consumed.records, comparison),
        "broker_start_seconds": start_seconds,
        "broker_idle_bytes": idle_bytes,
        "broker_loaded_bytes": loaded_bytes,
        "broker_exit_code": broker.exit_code,
        "files": partition_files(data_dir),
    }


def _check_space(source: Source, work_dir: Path) -> None:
    needed = int(source.total_size * _COPIES)
    free = shutil.disk_usage(work_dir).free
    if free < needed:
        raise Failure(
            f"{work_dir} has {free:,} bytes free, and {source.path} needs {needed:,}:"
            " name a smaller file, or another directory in $TMPDIR"
        )


def _copy(work_dir: Path, partition: int) -> BinaryIO:
    return (work_dir / f"received-{partition}").open("w+b")


def _compare(source: Source, plan: Plan, files: list[BinaryIO]) -> Comparison:
    for file in files:
        file.seek(0)
    with source.open() as stream:
        return compare(plan, stream.read, files)


def _difference(plan: Plan, records: int, comparison: Comparison) -> str | None:
    if comparison.difference is None and records != plan.lines:
        return f"{plan.lines} records were sent, {records} received"
    return comparison.difference


async def ship(log: Path | None, keep: Path | None) -> dict[str, Any]:
    """Run the demo with ``log``, by default the largest log; return its report.

    ``keep``: a new directory that keeps the broker's data.
    """
    source = choose_source(log)
    _check_new(keep)
    with tempfile.TemporaryDirectory(prefix="qbus-demo-") as work, shown() as progress:
        work_dir = Path(work)
        return await run(source, work_dir, keep or work_dir / "data", progress)


def choose_source(log: Path | None) -> Source:
    """Return the file to send; raises Failure if there is none."""
    path = log or find_log()
    if path is None:
        raise Failure(
            "there is no readable text log below /var/log: name one, such as LOG=/path/to/file"
        )
    size = path.stat().st_size
    if size == 0:
        raise Failure(f"{path} is empty: name another file")
    if log is None and not str(path).startswith("/var/log/"):
        note(f"There is no readable text log below /var/log: using {path}.")
    return Source(path, size, choose_times(size))


def _check_new(directory: Path | None) -> None:
    if directory is not None and directory.exists():
        raise Failure(f"{directory} exists: name a new directory")


_INDEXES = {".index", ".timeindex"}


def partition_files(data_dir: Path) -> list[dict[str, Any]]:
    """Return the number of segments and the bytes of files of each partition."""
    return [
        {
            "directory": directory.name,
            "segments": len(list(directory.glob("*.log"))),
            "log_bytes": sum(_sizes(directory, {".log"})),
            "index_bytes": sum(_sizes(directory, _INDEXES)),
        }
        for directory in sorted(data_dir.iterdir())
        if directory.is_dir() and any(directory.glob("*.log"))
    ]


def _sizes(directory: Path, suffixes: set[str]) -> Iterator[int]:
    for path in directory.iterdir():
        if path.suffix in suffixes:
            yield path.stat().st_size
