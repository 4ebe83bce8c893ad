"""Flatness: what 20 GB of backlog cost writers, readers and a restart."""

import time

from perf import rdkafka
from perf.report import Figure
from perf.servers import MEMORY, both
from tests.support.server_process import ServerProcess

BACKLOG_BYTES = 20_000_000_000
_RECORD = 10_000


def run(rounds: int, scale: float) -> list[Figure]:
    """The same load on an empty broker and beside and upon the backlog; here the peer is itself."""
    written = Figure("produce with backlog / on an empty log", "MB/s")
    read = Figure("consume the newest with backlog / from an empty log", "MB/s")
    restart = Figure("restart after a clean stop with backlog / without", "s", lower_is_better=True)
    with both(MEMORY) as servers:
        broker = servers[0]
        for server in servers[1:]:
            server.stop()  # this claim is about Qbus alone
        rdkafka.create_topic(broker.bootstrap, "backlog")
        _load(broker, rounds, "backlog", written.peer, read.peer)
        restart.peer.append(_restart(broker))
        filled = int(BACKLOG_BYTES * scale / _RECORD)
        rdkafka.run("produce", broker.bootstrap, topic="backlog", count=filled, size=_RECORD)
        _load(broker, rounds, "backlog", written.qbus, read.qbus)
        restart.qbus.append(_restart(broker))
    return [written, read, restart]


def _load(
    broker: ServerProcess,
    rounds: int,
    topic: str,
    written: list[float],
    read: list[float],
) -> None:
    count, size = 500_000, 1000
    for _ in range(rounds):
        offset = rdkafka.end_offset(broker.bootstrap, topic)
        sent = rdkafka.run("produce", broker.bootstrap, topic=topic, count=count, size=size)
        seen = rdkafka.run("consume", broker.bootstrap, topic=topic, count=count, start=offset)
        written.append(sent["mb_s"])
        read.append(seen["mb_s"])


def _restart(broker: ServerProcess) -> float:
    broker.stop()
    started = time.perf_counter()
    broker.start()
    return time.perf_counter() - started
