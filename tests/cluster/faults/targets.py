"""The clusters under test: Qbus, or Apache Kafka, which validates the tests themselves."""

from collections.abc import Mapping
from pathlib import Path

from perf.peers.kafka_cluster import KafkaCluster
from tests.support.namespaces import Network
from tests.support.qbus_cluster import NODES, QbusCluster, zookeeper_names

SESSION = 4.0
"""Seconds of silence after which a broker is considered dead."""
_LAG_MS = 4_000
"""Milliseconds of silence after which a replica leaves the ISR."""

_QBUS = {
    "zookeeper.session.timeout.ms": f"{SESSION * 1000:.0f}",
    "replica.lag.time.max.ms": str(_LAG_MS),
    "group.initial.rebalance.delay.ms": "0",
}
_KAFKA = {
    "broker.session.timeout.ms": f"{SESSION * 1000:.0f}",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": str(_LAG_MS),
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


Cluster = QbusCluster | KafkaCluster
"""A cluster of three brokers."""


def names(target: str, zookeepers: int) -> list[str]:
    """The names of the namespaces that the target needs."""
    nodes = [str(node) for node in NODES]
    return nodes if target == "kafka" else [*nodes, *zookeeper_names(zookeepers)]


def cluster(
    target: str,
    directory: Path,
    network: Network | None = None,
    zookeepers: int = 1,
    env: Mapping[int, Mapping[str, str]] | None = None,
    settings: Mapping[str, str] | None = None,
) -> Cluster:
    """The target's cluster, not yet started.

    ``env``: of each node of ours, added to ours. ``settings``: of all nodes, beside those of here.
    """
    given = {**(_KAFKA if target == "kafka" else _QBUS), **(settings or {})}
    if target == "kafka":
        return KafkaCluster(directory, given, heap="512M", network=network)
    options = [word for pair in given.items() for word in ("-o", "=".join(pair))]
    return QbusCluster(directory, *options, zookeepers=zookeepers, network=network, env=env)
