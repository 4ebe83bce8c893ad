"""Three Qbus brokers and their ZooKeeper, each in a network namespace if asked for."""

from collections.abc import Mapping
from pathlib import Path

from .broker_process import BrokerProcess
from .namespaces import Network
from .ports import free_port
from .server_process import ServerGroup, ServerProcess
from .zookeeper_process import ZooKeeperProcess

NODES = (1, 2, 3)


def zookeeper_names(count: int) -> list[str]:
    """The names of the ZooKeepers' namespaces."""
    return [f"zk{number}" for number in range(1, count + 1)]


class QbusCluster(ServerGroup):
    """Brokers 1 to 3 with one or three ZooKeepers, started on entry and killed on exit.

    ``options``: further arguments for each broker. ``network``: it has a namespace for each of
    NODES and of :func:`zookeeper_names`. ``env``: what is added to the environment of each node.
    """

    name = "qbus"

    def __init__(
        self,
        directory: Path,
        *options: str,
        zookeepers: int = 1,
        network: Network | None = None,
        env: Mapping[int, Mapping[str, str]] | None = None,
    ) -> None:
        self.directory = directory
        self.zookeepers = _zookeepers(zookeepers, network)
        self.brokers: dict[int, BrokerProcess] = {}
        for node in NODES:
            broker = BrokerProcess(
                self.log_dir(node),
                *("--node-id", str(node)),
                *("--zookeeper", f"{self.zookeeper_address}/qbus"),
                *options,
                env=(env or {}).get(node),
            )
            if network is not None:
                broker.host, broker.prefix = network.hosts[str(node)], network.prefix(str(node))
            self.brokers[node] = broker

    @property
    def stages(self) -> list[list[ServerProcess]]:
        return [[*self.zookeepers], [*self.brokers.values()]]

    @property
    def zookeeper_address(self) -> str:
        """The addresses of the ZooKeepers."""
        return ",".join(zookeeper.bootstrap for zookeeper in self.zookeepers)

    @property
    def bootstrap(self) -> str:
        """The addresses for clients."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def log_dir(self, node: int) -> Path:
        """The data directory of a node, with a directory for each replica."""
        return self.directory / f"node-{node}"


def _zookeepers(count: int, network: Network | None) -> list[ZooKeeperProcess]:
    names = zookeeper_names(count)
    hosts = [network.hosts[name] if network else "127.0.0.1" for name in names]
    ensemble = {
        number: f"{host}:{free_port()}:{free_port()}" for number, host in enumerate(hosts, 1)
    }
    found = []
    for number, (name, host) in enumerate(zip(names, hosts, strict=True), 1):
        zookeeper = ZooKeeperProcess(
            number=number, ensemble=ensemble if count > 1 else {}, host=host
        )
        zookeeper.prefix = network.prefix(name) if network else ()
        found.append(zookeeper)
    return found
