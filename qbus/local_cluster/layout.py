"""What is where in the directory of a local cluster."""

from pathlib import Path

BROKER, ZOOKEEPER = "broker", "zookeeper"
SPARK_MASTER, SPARK_WORKER = "spark-master", "spark-worker"

KINDS = (ZOOKEEPER, BROKER, SPARK_MASTER, SPARK_WORKER)
"""Kinds of nodes, in the order in which they start, each of which needs those before it."""


class Layout:
    """The paths below ``directory``; nodes are called ``broker-1`` and so on."""

    def __init__(self, directory: Path) -> None:
        # A process is known again by its command line: the path in there is always the same.
        self.directory = directory.resolve()

    @property
    def settings(self) -> Path:
        """What the cluster is made of, in JSON."""
        return self.directory / "cluster.json"

    @property
    def lock(self) -> Path:
        """Locked by the one process that runs the cluster."""
        return self.directory / "lock"

    def data(self, name: str) -> Path:
        """What a node stores."""
        return self.directory / name

    def log(self, name: str) -> Path:
        """What a node prints."""
        return self.directory / f"{name}.log"

    def pid_file(self, name: str) -> Path:
        """The process id of a node that runs."""
        return self.directory / f"{name}.pid"

    def request(self, name: str) -> Path:
        """There while somebody asks for a node to be started again."""
        return self.directory / f"{name}.start"


def node_name(kind: str, number: int) -> str:
    """What a node is called."""
    return f"{kind}-{number}"


def kind_and_number(name: str) -> tuple[str, int]:
    """What a node of that name is."""
    kind, _, number = name.rpartition("-")
    return kind, int(number)
