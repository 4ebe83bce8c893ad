"""Flatness: what 20 GB of backlog cost writers, readers and a restart."""

import os
import tempfile
import time
from pathlib import Path

from perf import rdkafka
from perf.report import Figure
from perf.servers import MEMORY
from tests.support.broker_process import BrokerProcess
from tests.support.server_process import ServerProcess

BACKLOG_BYTES = 20_000_000_000
PARTITIONS = 1000
_RECORD = 10_000
_COUNT, _SIZE = 500_000, 1000


def run(rounds: int, scale: float) -> list[Figure]:
    """Two brokers in turn, one with the backlog and one, the peer here, without."""
    with tempfile.TemporaryDirectory(prefix="qbus-perf-") as directory:
        full, empty = (BrokerProcess(Path(directory, name), *MEMORY.qbus) for name in "ab")
        with full, empty:
            rdkafka.create_topic(full.bootstrap, "backlog")
            rdkafka.create_topic(empty.bootstrap, "backlog")
            records = int(BACKLOG_BYTES * scale / _RECORD)
            rdkafka.run("produce", full.bootstrap, topic="backlog", count=records, size=_RECORD)
            os.sync()
            return [*_load(full, empty, rounds), _restarts(full, empty, rounds)]


def _load(full: ServerProcess, empty: ServerProcess, rounds: int) -> list[Figure]:
    written = Figure("produce with backlog / on an empty log", "MB/s")
    read = Figure("consume the newest with backlog / from an empty log", "MB/s")
    for turn in range(rounds + 1):
        for broker, sent, seen in (
            (full, written.qbus, read.qbus),
            (empty, written.peer, read.peer),
        ):
            offset = rdkafka.end_offset(broker.bootstrap, "backlog")
            load = {"topic": "backlog", "count": _COUNT}
            produced = rdkafka.run("produce", broker.bootstrap, size=_SIZE, **load)
            consumed = rdkafka.run("consume", broker.bootstrap, start=offset, **load)
            os.sync()  # what one has written must not be written out in the other's turn
            if turn:
                sent.append(produced["mb_s"])
                seen.append(consumed["mb_s"])
    return [written, read]


def _restarts(full: ServerProcess, empty: ServerProcess, rounds: int) -> Figure:
    """Clean restarts, of the full one with 1,000 partitions more."""
    figure = Figure(
        "clean restart, 20 GB and 1,000 partitions / nearly nothing", "s", lower_is_better=True
    )
    rdkafka.create_topic(full.bootstrap, "idle", PARTITIONS)
    for _ in range(rounds):
        figure.qbus.append(_restart(full))
        figure.peer.append(_restart(empty))
    return figure


def _restart(broker: ServerProcess) -> float:
    broker.stop()
    started = time.perf_counter()
    broker.start()
    return time.perf_counter() - started
