"""Compaction of one log beside Kafka's cleaner: ten million records, 5 GB at scale 1.

The records are written while ``min.compaction.lag.ms`` keeps them from being compacted; then it is
set to 0, and the time is taken until ``cleaner-offset-checkpoint``, which both brokers write in the
same form, says that all full segments are compacted. Both have one thread, 128 MiB for the offsets
of keys, which a log of ten million keys exceeds, and no limit of bytes per second.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from perf import quiet, rdkafka
from perf.peers import kafka
from perf.report import Figure
from tests.support.broker_process import BrokerProcess
from tests.support.server_process import ServerProcess
from tests.support.waiting import wait_until

RECORDS = 10_000_000
SIZE = 470  # of a value: about 500 bytes for a record
_SEGMENT_BYTES = 100 * 1024 * 1024
_LEAST_SEGMENT_BYTES = 1024 * 1024
_TIMEOUT_S = 3600
_CASES = (  # how often each key is written, and the compression
    (1, "none"),
    (10, "none"),
    (10, "lz4"),
)


def run(rounds: int, scale: float) -> list[Figure]:
    """MB of segments compacted in a second, and the memory that it takes."""
    rates: dict[tuple[int, str], Figure] = {}
    memory: dict[tuple[int, str], Figure] = {}
    count = int(RECORDS * scale)
    for turn in range(rounds + 1):
        for times, codec in _CASES:
            case = f"each key {times} time{'s' * (times > 1)}, {codec}"
            rate = rates.setdefault((times, codec), Figure(case, "MB/s"))
            peak = memory.setdefault(
                (times, codec), Figure(f"{case}: memory", "MB", lower_is_better=True)
            )
            for name, server, log_dir in _servers():
                measured = _measure(server, log_dir, count, times, codec, scale)
                if turn > 0 or rounds == 0:
                    rate.add(name, measured[0])
                    peak.add(name, measured[1])
    return [*rates.values(), *memory.values()]


def _servers() -> Iterator[tuple[str, ServerProcess, Path]]:
    """Each broker in turn, alone on the machine, with an empty directory."""
    for name in ("qbus", *((kafka.KafkaProcess.name,) if kafka.missing() is None else ())):
        with _server(name) as (server, log_dir):
            yield name, server, log_dir


@contextmanager
def _server(name: str) -> Iterator[tuple[ServerProcess, Path]]:
    with ExitStack() as running:
        directory = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="qbus-perf-")))
        if name == "qbus":
            options = "-o", "durability=memory", "-o", "log.cleaner.backoff.ms=100"
            yield running.enter_context(BrokerProcess(directory, *options)), directory
        else:
            peer = kafka.KafkaProcess(directory, {"log.cleaner.backoff.ms": "100"})
            yield running.enter_context(peer), peer.log_dir


def _measure(
    server: ServerProcess, log_dir: Path, count: int, times: int, codec: str, scale: float
) -> tuple[float, float]:
    """MB/s, and the most memory that the broker had meanwhile beyond before, in MB."""
    rdkafka.create_topic(
        server.bootstrap,
        "table",
        **{
            "cleanup.policy": "compact",
            "min.compaction.lag.ms": str(10**12),
            "min.cleanable.dirty.ratio": "0.01",
            "segment.bytes": str(max(int(_SEGMENT_BYTES * min(scale, 1)), _LEAST_SEGMENT_BYTES)),
        },
    )
    command = [sys.executable, "-m", "perf.compaction", server.bootstrap]
    subprocess.run(
        [*command, str(count), str(count // times), codec], check=True, timeout=_TIMEOUT_S
    )
    directory = log_dir / "table-0"
    wait_until(lambda: any(directory.glob("*.log")), "there is a log", timeout=60)
    time.sleep(2)  # what is written is flushed, and counts as stable
    end = int(max(path.stem for path in directory.glob("*.log")))
    size = sum(path.stat().st_size for path in directory.glob("*.log") if int(path.stem) < end)
    process = psutil.Process(server.pid)
    before = peak = process.memory_info().rss
    started = time.monotonic()
    _set_lag(server.bootstrap, 0)
    while _cleaned_before(log_dir) < end:
        if time.monotonic() - started > _TIMEOUT_S:
            raise TimeoutError(f"{server.name} has compacted up to {_cleaned_before(log_dir)}")
        peak = max(peak, process.memory_info().rss)
        time.sleep(0.02)
    return size / (time.monotonic() - started) / 1e6, (peak - before) / 1e6


def _set_lag(bootstrap: str, ms: int) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    lag = ConfigEntry("min.compaction.lag.ms", str(ms), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "table", incremental_configs=[lag])
    admin = AdminClient(quiet.at(bootstrap))
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(60)


def _cleaned_before(log_dir: Path) -> int:
    """What the checkpoint says of the topic, 0 as long as it says nothing."""
    try:
        lines = (log_dir / "cleaner-offset-checkpoint").read_text().splitlines()
    except FileNotFoundError:
        return 0
    return next((int(line.split()[2]) for line in lines if line.startswith("table 0 ")), 0)


def fill(bootstrap: str, count: int, keys: int, codec: str) -> None:
    """Write ``count`` records of ``keys`` keys, round by round."""
    import os

    from confluent_kafka import Producer

    producer = Producer(
        {
            **quiet.at(bootstrap),
            "compression.type": codec,
            "linger.ms": 20,
            "batch.num.messages": 1000,
            "queue.buffering.max.messages": 500_000,
        }
    )
    half = SIZE // 2
    values = [os.urandom(half) + b"x" * (SIZE - half) for _ in range(1000)]
    for number in range(count):
        while True:
            try:
                producer.produce("table", values[number % 1000], b"key-%012d" % (number % keys))
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush(600)


if __name__ == "__main__":
    fill(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
