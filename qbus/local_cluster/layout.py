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

    @property
    def client_properties(self) -> Path:
        """What the administrator of a secure cluster connects with."""
        return self.directory / "client.properties"

    @property
    def ca_certificate(self) -> Path:
        """The certificate of the authority that a secure cluster's brokers are signed by."""
        return self.directory / "ca.pem"

    @property
    def secrets(self) -> Path:
        """The directory of what only the cluster's owner may read."""
        return self.directory / "secrets"

    @property
    def ca_key(self) -> Path:
        """The key of the authority."""
        return self.secrets / "ca.key"

    @property
    def broker_properties(self) -> Path:
        """What logs in as the brokers do, which may do anything."""
        return self.secrets / "broker.properties"

    def keystore(self, name: str) -> Path:
        """A broker's certificate and key."""
        return self.secrets / f"{name}.pem"

    def broker_config(self, name: str) -> Path:
        """The settings of a broker that hold secrets."""
        return self.secrets / f"{name}.toml"

    def audit_log(self, name: str) -> Path:
        """The audit log of a broker."""
        return self.directory / f"{name}.audit.log"

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
