"""Produce and consume throughput, with librdkafka and with Kafka's own tools."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count as counter
from itertools import product
from typing import Any

from perf import java_tools, rdkafka
from perf.report import Figure
from perf.servers import FSYNC, MEMORY, Setup, both, cpu_seconds
from tests.support.server_process import ServerProcess

_topics = counter()


@dataclass(frozen=True)
class Case:
    """One way to load a broker."""

    load: str
    size: int
    acks: str
    compression: str

    def __str__(self) -> str:
        return f"{self.load} {self.size} B acks={self.acks} {self.compression}"

    def produce(self, bootstrap: str, topic: str, count: int) -> dict[str, Any]:
        """Send ``count`` records."""
        if self.load == "java":
            return java_tools.produce(
                bootstrap, topic, count, self.size, self.acks, self.compression
            )
        return rdkafka.run(
            "produce",
            bootstrap,
            topic=topic,
            count=count,
            size=self.size,
            acks=self.acks,
            compression=self.compression,
        )

    def consume(self, bootstrap: str, topic: str, count: int) -> dict[str, Any]:
        """Read ``count`` records from the start of the log."""
        if self.load == "java":
            return java_tools.consume(bootstrap, topic, count)
        return rdkafka.run("consume", bootstrap, topic=topic, count=count)


def cases(acks: tuple[str, ...], compressions: tuple[str, ...]) -> Iterator[Case]:
    """Every combination of client, record size and the given settings."""
    for load, size, ack, codec in product(("librdkafka", "java"), (100, 1000), acks, compressions):
        yield Case(load, size, ack, codec)


def run(rounds: int, scale: float) -> list[Figure]:
    """Every case of the claim under the promise that Kafka makes by default."""
    return _measure(MEMORY, cases(("1", "all"), ("none", "lz4")), rounds, scale)


def run_fsync(rounds: int, scale: float) -> list[Figure]:
    """acks=all with every record on stable storage, on both sides."""
    return _measure(FSYNC, cases(("all",), ("none",)), rounds, scale)


def _measure(setup: Setup, which: Iterator[Case], rounds: int, scale: float) -> list[Figure]:
    figures: list[Figure] = []
    with both(setup) as servers:
        for case in which:
            count = int((1_500_000 if case.size == 100 else 300_000) * scale)
            figures += _measure_case(servers, case, count, rounds)
    return figures


def _measure_case(
    servers: list[ServerProcess], case: Case, count: int, rounds: int
) -> list[Figure]:
    written = Figure(f"produce {case}", "MB/s")
    cpu = Figure(f"broker CPU, produce {case}", "s", lower_is_better=True)
    taken = Figure(f"consume {case}", "MB/s")
    for turn in range(rounds + 1):
        for server in servers:
            topic = f"throughput-{next(_topics)}"
            rdkafka.create_topic(server.bootstrap, topic)
            before = cpu_seconds(server)
            sent = case.produce(server.bootstrap, topic, count)
            used = cpu_seconds(server) - before
            seen = case.consume(server.bootstrap, topic, count)
            rdkafka.delete_topic(server.bootstrap, topic)
            if turn == 0:
                continue  # warms both up: the JVM compiles, Python imports
            written.add(server.name, sent["mb_s"])
            cpu.add(server.name, used)
            taken.add(server.name, seen["mb_s"])
    return [written, cpu, taken]
