"""Committed offsets: many clients at once and one alone, in every storage and beside Kafka."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from perf import commit_load, rdkafka
from perf.peers import kafka
from perf.report import Figure
from tests.support.broker_process import BrokerProcess
from tests.support.server_process import ServerProcess
from tests.support.zookeeper_process import ZooKeeperProcess

PARTITIONS = 50
_SECONDS = 8.0
_CASES = (  # clients, each with a group of its own, and partitions in each commit
    (1, 1),
    (100, 1),
    (100, 20),
    (100, 50),
)


def run(rounds: int, scale: float) -> list[Figure]:
    """Closed loops: each client commits, waits for the answer, and commits the next positions."""
    figures: dict[tuple[str, int, int], Figure] = {}
    with _servers() as (storages, peer):
        for server in [*storages.values(), *peer]:
            rdkafka.create_topic(server.bootstrap, "commits", PARTITIONS)
        for turn in range(rounds + 1):
            for clients, partitions in _CASES:
                load = {"clients": clients, "partitions": partitions, "seconds": _SECONDS * scale}
                theirs = [commit_load.run(server.bootstrap, **load) for server in peer]
                for storage, server in storages.items():
                    ours = commit_load.run(server.bootstrap, **load)
                    case = f"{storage}: {clients} clients committing {partitions} at a time"
                    figure = figures.setdefault(
                        (storage, clients, partitions), Figure(case, "offsets/s")
                    )
                    if turn > 0:
                        figure.add("qbus", ours)
                        for rate in theirs:
                            figure.add(kafka.KafkaProcess.name, rate)
    return list(figures.values())


@contextmanager
def _servers() -> Iterator[tuple[dict[str, ServerProcess], list[ServerProcess]]]:
    """A broker for each place that offsets can be in, and Kafka where it can run.

    All acknowledge from the system's cache, but for ZooKeeper, which always flushes.
    """
    with ExitStack() as running:
        directory = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="qbus-perf-")))
        zookeeper = running.enter_context(ZooKeeperProcess())
        options = {
            "zookeeper": ("--zookeeper", f"{zookeeper.bootstrap}/plain"),
            "zookeeper, a node a topic": (
                *("--zookeeper", f"{zookeeper.bootstrap}/topics"),
                *("-o", "offsets.zookeeper.layout=topic"),
            ),
            "embedded": (),
            "log": ("-o", "offsets.storage=log"),
        }
        storages: dict[str, ServerProcess] = {
            storage: BrokerProcess(directory / storage, *some, "-o", "durability=memory")
            for storage, some in options.items()
        }
        peer: list[ServerProcess] = []
        if kafka.missing() is None:
            peer.append(kafka.KafkaProcess(directory / "kafka"))
        for server in [*storages.values(), *peer]:
            running.enter_context(server)
        yield storages, peer
