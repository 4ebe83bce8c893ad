"""Committed offsets: many clients at once and one alone, over a real ZooKeeper and beside Kafka."""

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
    figures = {
        case: Figure(f"{case[0]} clients committing {case[1]} partitions at a time", "offsets/s")
        for case in _CASES
    }
    with _servers() as servers:
        for server in servers:
            rdkafka.create_topic(server.bootstrap, "commits", PARTITIONS)
        for turn in range(rounds + 1):
            for (clients, partitions), figure in figures.items():
                for server in servers:
                    rate = commit_load.run(
                        server.bootstrap,
                        clients=clients,
                        partitions=partitions,
                        seconds=_SECONDS * scale,
                    )
                    if turn > 0:
                        figure.add(server.name, rate)
    return list(figures.values())


@contextmanager
def _servers() -> Iterator[list[ServerProcess]]:
    """A broker whose store is a ZooKeeper, and Kafka where it can run."""
    with ExitStack() as running:
        directory = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="qbus-perf-")))
        zookeeper = running.enter_context(ZooKeeperProcess())
        options = ("--zookeeper", zookeeper.bootstrap, "-o", "durability=memory")
        servers: list[ServerProcess] = [BrokerProcess(directory / "qbus", *options)]
        if kafka.missing() is None:
            servers.append(kafka.KafkaProcess(directory / "kafka"))
        for server in servers:
            running.enter_context(server)
        yield servers
