"""What an honest client notices of others that are idle, slow, or never read."""

import resource
import socket
from contextlib import ExitStack
from struct import pack

from confluent_kafka import KafkaException

from perf import rdkafka
from perf.report import Figure
from perf.servers import MEMORY, both, resident_mb
from tests.support.server_process import ServerProcess

IDLE, SLOW = 5000, 500
_LONG = 99 << 20  # what a slow client says it will send


def run(rounds: int, scale: float) -> list[Figure]:
    """Latency at 1,000 records/s alone, and beside 5,000 idle and 500 slow connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    figures = {
        name: Figure(name, "ms", lower_is_better=True)
        for name in ("p50 alone", "p99 alone", "p50 beside 5,500 others", "p99 beside 5,500 others")
    }
    memory = Figure("memory for each idle connection", "bytes", lower_is_better=True)
    with both(MEMORY) as servers:
        for server in servers:
            for turn in range(rounds + 1):
                kept = figures if turn else None  # the first warms up
                _measure(server, f"alone-{turn}", "alone", kept, scale)
            before = resident_mb(server)
            with ExitStack() as stack:
                for _ in range(IDLE):
                    stack.enter_context(_connect(server))
                each = (resident_mb(server) - before) * 1e6 / IDLE
                memory.add(server.name, each)
                for _ in range(SLOW):
                    stack.enter_context(_connect(server)).sendall(pack(">i", _LONG) + b"slowly")
                try:
                    for turn in range(rounds):
                        _measure(server, f"beside-{turn}", "beside 5,500 others", figures, scale)
                except (KafkaException, TimeoutError) as error:
                    # That it stops answering is a finding, too.
                    print(f"{server.name} does not serve beside them: {error!r}")
    return [*figures.values(), memory]


def _connect(server: ServerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), 30)


def _measure(
    server: ServerProcess,
    topic: str,
    situation: str,
    figures: dict[str, Figure] | None,
    scale: float,
) -> None:
    rdkafka.create_topic(server.bootstrap, topic)
    options = {"rate": 1000, "seconds": 8 * scale, "size": 100, "acks": "all"}
    result = rdkafka.run("latency", server.bootstrap, topic=topic, **options)
    if figures is None:
        return
    for p in ("p50", "p99"):
        figures[f"{p} {situation}"].add(server.name, result[f"{p}_ms"])
