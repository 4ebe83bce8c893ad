"""The servers under measurement, one after the other over fresh directories."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from perf import before
from perf.peers import kafka
from perf.peers.kafka_cluster import KafkaCluster
from tests.support.broker_process import BrokerProcess
from tests.support.qbus_cluster import QbusCluster
from tests.support.server_process import ServerProcess


@dataclass(frozen=True)
class Setup:
    """How both sides are run: Qbus options, and Kafka properties that promise the same."""

    qbus: tuple[str, ...] = ()
    kafka: Mapping[str, str] | None = None


# Kafka acknowledges from the page cache by default; this is the same promise.
MEMORY = Setup(qbus=("-o", "durability=memory"))
WORKERS = Setup(qbus=(*MEMORY.qbus, "--workers", "2"))
# Every acknowledged record on stable storage, on both sides.
FSYNC = Setup(kafka={"log.flush.interval.messages": "1"})


class BrokerBefore(BrokerProcess):
    """A broker of the other checkout."""

    name = "before"

    def __init__(self, directory: Path, data_dir: Path, *options: str) -> None:
        super().__init__(data_dir, *options, env=before.environment(directory))


class ClusterBefore(QbusCluster):
    """A cluster of the other checkout."""

    name = "before"

    def __init__(self, directory: Path, data_dir: Path, *options: str) -> None:
        kept = dict(os.environ)
        os.environ.update(before.environment(directory))  # taken over by each process
        try:
            super().__init__(data_dir, *options)
        finally:
            os.environ.clear()
            os.environ.update(kept)


@contextmanager
def both(setup: Setup = MEMORY) -> Iterator[list[ServerProcess]]:
    """Qbus and its peer, both running, to be loaded in turn.

    The peer is the other checkout if one is named, else Kafka where Java and Maven are.
    """
    with tempfile.TemporaryDirectory(prefix="qbus-perf-") as directory:
        servers: list[ServerProcess] = [BrokerProcess(Path(directory, "qbus"), *setup.qbus)]
        if before.checkout is not None:
            earlier = BrokerBefore(before.checkout, Path(directory, "before"), *setup.qbus)
            servers.append(earlier)
        elif kafka.missing() is None:
            servers.append(kafka.KafkaProcess(Path(directory, "kafka"), setup.kafka))
        try:
            for server in servers:
                server.start()
            yield servers
        finally:
            for server in servers:
                if server.alive:
                    server.kill()


Cluster = QbusCluster | KafkaCluster


@contextmanager
def both_clusters(setup: Setup = MEMORY) -> Iterator[list[Cluster]]:
    """Three brokers of Qbus and three of its peer, as for :func:`both`; all running."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="qbus-perf-")))
        clusters: list[Cluster] = [QbusCluster(directory / "qbus", *setup.qbus)]
        if before.checkout is not None:
            earlier = ClusterBefore(before.checkout, directory / "before", *setup.qbus)
            clusters.append(earlier)
        elif kafka.missing() is None:
            clusters.append(KafkaCluster(directory / "kafka", setup.kafka))
        for cluster in clusters:
            stack.enter_context(cluster)
        yield clusters


def resident_mb(server: ServerProcess) -> float:
    """Resident memory of the server, in MB."""
    return psutil.Process(server.pid).memory_info().rss / 1e6


def cpu_seconds(server: ServerProcess) -> float:
    """Processor time that the server's processes have used, in seconds."""
    return cpu_seconds_of(server.pid)


def cpu_seconds_of(pid: int) -> float:
    """Processor time that a process and those it started have used, in seconds."""
    first = psutil.Process(pid)
    times = [one.cpu_times() for one in (first, *first.children(recursive=True))]
    return sum(one.user + one.system for one in times)
