"""Three nodes of Apache Kafka that replicate among each other, in KRaft's combined mode."""

from collections.abc import Mapping
from pathlib import Path

from perf.peers.kafka import KafkaProcess
from tests.support.namespaces import Network
from tests.support.ports import free_port
from tests.support.server_process import ServerGroup

NODES = (1, 2, 3)
# What three nodes can keep, and a single one could not.
_REPLICATED = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}


class KafkaCluster(ServerGroup):
    """Each node is broker and controller; ``properties`` go over Kafka's defaults.

    With a ``network``, whose names are those of NODES, each node runs in its own namespace.
    """

    name = "kafka"

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        heap: str = "1G",
        network: Network | None = None,
    ) -> None:
        controllers = {
            node: f"{network.hosts[str(node)] if network else '127.0.0.1'}:{free_port()}"
            for node in NODES
        }
        voters = ",".join(f"{node}@{address}" for node, address in controllers.items())
        self.brokers: dict[int, KafkaProcess] = {}
        for node in NODES:
            port = free_port()
            host = network.hosts[str(node)] if network else "127.0.0.1"
            listeners = f"PLAINTEXT://{host}:{port},CONTROLLER://{controllers[node]}"
            process = KafkaProcess(
                directory / f"node-{node}",
                {
                    **_REPLICATED,
                    "node.id": str(node),
                    "listeners": listeners,
                    "controller.quorum.voters": voters,
                    **(properties or {}),
                },
                port=port,
                heap=heap,
            )
            process.host = host
            process.prefix = network.prefix(str(node)) if network else ()
            self.brokers[node] = process

    @property
    def stages(self) -> list[list[KafkaProcess]]:
        return [list(self.brokers.values())]

    @property
    def bootstrap(self) -> str:
        """The addresses for clients."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def log_dir(self, node: int) -> Path:
        """The directory of a node that holds one directory for each replica."""
        return self.brokers[node].log_dir
