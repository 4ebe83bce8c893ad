"""The mirror beside MirrorMaker 2: one link, near and far, small and larger records.

Both read the same topic of a Qbus broker, through a proxy that makes the way long or short. Ours
writes to a Qbus broker; MirrorMaker to Apache Kafka, since it needs compacted topics at its target.
Measured is from a quarter of the records on, when the JVM is warm, by what arrives at the target.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, Self

import psutil

import qbus
from perf import rdkafka
from perf.peers import kafka, mirrormaker
from perf.report import Figure
from perf.servers import MEMORY
from qbus.errors import QbusError
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tests.support.readiness import answers
from tests.support.server_process import ServerProcess
from tests.support.waiting import wait_until

SIZES = {1000: 1_000_000, 100: 6_000_000}
WAYS = {"local": 0.0, "100 ms": 0.05}
PARTITIONS = 8
_TOPIC = "orders"
_WARM = 0.25
_LONGEST_SECONDS = 300.0
_LOOK_SECONDS = 0.02
_CONFIG = """
topics = ["orders"]
source = [{idc = "a", bootstrap = "%s"}]
target = {idc = "b", bootstrap = "%s"}
transfer = {in_flight = 16, memory_bytes = 268_435_456}
"""
"""As for a long link; the same for a short one."""


class Cost(NamedTuple):
    """What a link does and takes."""

    mb_s: float
    cpu_s_gb: float
    memory_mb: float


_UNITS = {
    "mb_s": ("MB of values/s", False),
    "cpu_s_gb": ("CPU s per GB of values", True),
    "memory_mb": ("MB at most", True),
}


def run(rounds: int, scale: float) -> list[Figure]:
    """Mirror a topic of lz4 batches, with 1 KB and with 100 B a record, near and far."""
    reason = kafka.missing() or mirrormaker.missing()
    if reason is not None:
        print(f"MirrorMaker is left out: {reason}", file=sys.stderr)
    figures = []
    for size, full in SIZES.items():
        count = max(int(full * scale), 10_000)
        with Bench(count, size) as bench:
            for way, delay in WAYS.items():
                ours: list[Cost] = []
                peers: list[Cost] = []
                for _ in range(rounds):
                    ours.append(bench.ours(delay))
                    if reason is None:
                        peers.append(bench.peer(delay))
                figures += [
                    Figure(
                        f"{size} B, {way}",
                        unit,
                        qbus=[getattr(cost, field) for cost in ours],
                        peer=[getattr(cost, field) for cost in peers],
                        lower_is_better=lower_is_better,
                    )
                    for field, (unit, lower_is_better) in _UNITS.items()
                ]
    return figures


class Bench:
    """A source with a topic full of records, behind a proxy."""

    def __init__(self, count: int, size: int) -> None:
        self._count = count
        self._size = size
        self._running = ExitStack()
        self._directory = Path()
        self._proxy_port = free_port()
        self._source_port = free_port()

    def __enter__(self) -> Self:
        name = self._running.enter_context(tempfile.TemporaryDirectory(prefix="qbus-perf-"))
        self._directory = Path(name)
        advertised = f"advertised.listeners=127.0.0.1:{self._proxy_port}"
        source = BrokerProcess(
            self._directory / "source", "-o", advertised, *MEMORY.qbus, port=self._source_port
        )
        self._running.enter_context(source)
        with self._way(0.0):
            rdkafka.create_topic(self._source, _TOPIC, PARTITIONS)
            rdkafka.produce(self._source, _TOPIC, self._count, self._size, compression="lz4")
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    @property
    def _source(self) -> str:
        return f"127.0.0.1:{self._proxy_port}"

    def ours(self, delay: float) -> Cost:
        """The mirror's."""
        with self._run(delay) as directory:
            target = BrokerProcess(directory / "target", *MEMORY.qbus)
            config = directory / "mirror.toml"
            config.write_text(_CONFIG % (self._source, target.bootstrap))
            command = [sys.executable, "-m", "qbus", "mirror", "run", "--config", str(config)]
            with target, (directory / "mirror.log").open("wb") as log:
                return self._measure(subprocess.Popen(command, stdout=log, stderr=log), target)

    def peer(self, delay: float) -> Cost:
        """MirrorMaker's."""
        with self._run(delay) as directory:
            target = kafka.KafkaProcess(directory / "target", MEMORY.kafka, heap="512M")
            with target:
                link = mirrormaker.start(directory, self._source, target.bootstrap, _TOPIC)
                return self._measure(link, target)

    def _measure(self, link: "subprocess.Popen[bytes]", target: ServerProcess) -> Cost:
        """Watch a link until everything is there, then stop it."""
        try:
            process = psutil.Process(link.pid)
            with qbus.Admin(target.bootstrap) as admin:
                since, had, cpu = self._wait(admin, link, int(self._count * _WARM), process)
                until, has, then = self._wait(admin, link, self._count, process)
            memory = process.memory_info().rss / 1e6
        finally:
            link.terminate()
            try:
                link.wait(20)
            except subprocess.TimeoutExpired:
                link.kill()
                link.wait()
        mb = (has - had) * self._size / 1e6
        return Cost(mb / (until - since), (then - cpu) / mb * 1000, memory)

    def _wait(
        self,
        admin: "qbus.Admin",
        link: "subprocess.Popen[bytes]",
        count: int,
        process: psutil.Process,
    ) -> tuple[float, int, float]:
        """Until so many records are there: the time, how many, and the link's CPU time."""
        deadline = time.monotonic() + _LONGEST_SECONDS
        partitions = [qbus.TopicPartition(f"a.{_TOPIC}", index) for index in range(PARTITIONS)]
        while time.monotonic() < deadline:
            if link.poll() is not None:
                raise RuntimeError(f"the link ended with {link.returncode}")
            try:
                found = admin.list_offsets(dict.fromkeys(partitions, qbus.LATEST))
            except QbusError:
                time.sleep(_LOOK_SECONDS)
                continue
            now, there = time.perf_counter(), sum(at.offset for at in found.values())
            if there >= count:
                times = process.cpu_times()
                return now, there, times.user + times.system
            time.sleep(_LOOK_SECONDS)
        raise RuntimeError(f"not {count} records were mirrored in {_LONGEST_SECONDS} s")

    @contextmanager
    def _way(self, delay: float) -> Iterator[None]:
        """To the source."""
        ports = [str(self._proxy_port), str(self._source_port)]
        proxy = subprocess.Popen([sys.executable, "-m", "perf.long_way", *ports, str(delay)])
        try:
            wait_until(lambda: answers(self._proxy_port), "the proxy")
            yield
        finally:
            proxy.kill()
            proxy.wait()

    @contextmanager
    def _run(self, delay: float) -> Iterator[Path]:
        """A directory for one measurement, with the source that far away."""
        with tempfile.TemporaryDirectory(dir=self._directory) as name, self._way(delay):
            yield Path(name)
