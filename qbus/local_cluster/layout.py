"""The files in the directory of a local cluster."""

from pathlib import Path

from qbus.errors import QbusError

BROKER, ZOOKEEPER = "broker", "zookeeper"
SPARK_MASTER, SPARK_WORKER = "spark-master", "spark-worker"

KINDS = (ZOOKEEPER, BROKER, SPARK_MASTER, SPARK_WORKER)
"""The kinds of nodes, in the order in which they start; each needs those before it."""


class LocalClusterError(QbusError):
    """A local cluster cannot run; the message says why, and what to do about it."""


class Layout:
    """The paths below ``directory``; nodes are named ``broker-1`` and so on."""

    def __init__(self, directory: Path) -> None:
        # Processes are recognized by this path in their command lines.
        self.directory = directory.resolve()

    @property
    def settings(self) -> Path:
        """The settings of the cluster, in JSON."""
        return self.directory / "cluster.json"

    @property
    def lock(self) -> Path:
        """The lock file, held by the process that runs the cluster."""
        return self.directory / "lock"

    def data(self, name: str) -> Path:
        """The data directory of a node."""
        return self.directory / name

    def log(self, name: str) -> Path:
        """The log file of a node: its standard output and error."""
        return self.directory / f"{name}.log"

    def pid_file(self, name: str) -> Path:
        """The file with the process id of a running node."""
        return self.directory / f"{name}.pid"

    def request(self, name: str) -> Path:
        """The file that requests a node to be started again; it exists until that is done."""
        return self.directory / f"{name}.start"


def node_name(kind: str, number: int) -> str:
    """The name of a node."""
    return f"{kind}-{number}"


def kind_and_number(name: str) -> tuple[str, int]:
    """The kind and the number of the node with that name."""
    kind, _, number = name.rpartition("-")
    return kind, int(number)
