"""The cluster, its brokers, and who of them decides."""

from typing import Any, NamedTuple, Self

from qbus.metadata.errors import MalformedNode
from qbus.metadata.znodes.json_data import decoding, dump

CLUSTER_ID = "/cluster/id"
BROKERS = "/brokers/ids"
BROKER_EPOCHS = "/brokers/epochs"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"


class ClusterIdNode(NamedTuple):
    """The cluster's id, given once."""

    cluster_id: str

    def encode(self) -> bytes:
        """Kafka's JSON, version 1."""
        return dump({"version": "1", "id": self.cluster_id}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what :meth:`encode` wrote."""
        with decoding("cluster id", data) as json_:
            return cls(str(json_["id"]))


class BrokerNode(NamedTuple):
    """A broker that lives: an ephemeral node of its session.

    ``directory`` tells its data from all other data: whoever has locked that is the same broker.
    ``is_stopping``: it is about to leave, and takes over nothing more. ``is_full``: one of its data
    directories has no room; it leads only where nobody else can.
    """

    host: str
    port: int
    epoch: int
    rack: str | None = None
    timestamp_ms: int = 0
    directory: str = ""
    is_stopping: bool = False
    is_full: bool = False

    @staticmethod
    def path(node_id: int) -> str:
        """Where the broker ``node_id`` is registered."""
        return f"{BROKERS}/{node_id}"

    @staticmethod
    def id_of(path: str) -> int:
        """Which broker is registered at ``path``."""
        name = path.rpartition("/")[2]
        if not name.isdecimal():
            raise MalformedNode(f"no broker id: {path}")
        return int(name)

    def encode(self) -> bytes:
        """Kafka's JSON, version 5, with what Kafka does not know of beside it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        registration = {
            "version": 5,
            "host": self.host,
            "port": self.port,
            "jmx_port": -1,
            "timestamp": str(self.timestamp_ms),
            "endpoints": [f"PLAINTEXT://{host}:{self.port}"],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "features": {},
            "epoch": self.epoch,
        }
        if self.rack is not None:
            registration["rack"] = self.rack
        if self.directory:
            registration["directory"] = self.directory
        if self.is_stopping:
            registration["stopping"] = True
        if self.is_full:
            registration["full"] = True
        return dump(registration).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what :meth:`encode` wrote."""
        with decoding("broker", data) as json_:
            return cls(
                host=str(json_["host"]),
                port=int(json_["port"]),
                epoch=int(json_["epoch"]),
                rack=json_.get("rack"),
                timestamp_ms=int(json_["timestamp"]),
                directory=str(json_.get("directory", "")),
                is_stopping=bool(json_.get("stopping", False)),
                is_full=bool(json_.get("full", False)),
            )


class BrokerEpochNode(NamedTuple):
    """Bumped at each registration of a broker: the node's version is the broker's epoch."""

    timestamp_ms: int

    @staticmethod
    def path(node_id: int) -> str:
        """Where the epoch of the broker ``node_id`` is."""
        return f"{BROKER_EPOCHS}/{node_id}"

    def encode(self) -> bytes:
        """When the broker was registered last, for people."""
        return dump({"version": 1, "timestamp": str(self.timestamp_ms)}).encode()


class ControllerNode(NamedTuple):
    """The broker that decides: an ephemeral node of its session.

    ``broker_epoch`` is that of its registration: of two lives of a broker it tells which.
    """

    broker: int
    timestamp_ms: int = 0
    broker_epoch: int = -1

    def encode(self) -> bytes:
        """Kafka's JSON, version 2, with the broker's epoch beside it."""
        controller: dict[str, Any] = {
            "version": 2,
            "brokerid": self.broker,
            "timestamp": str(self.timestamp_ms),
            "kraftControllerEpoch": -1,
        }
        if self.broker_epoch >= 0:
            controller["broker_epoch"] = self.broker_epoch
        return dump(controller).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what :meth:`encode` wrote."""
        with decoding("controller", data) as json_:
            return cls(
                int(json_["brokerid"]),
                int(json_["timestamp"]),
                int(json_.get("broker_epoch", -1)),
            )


class ControllerEpochNode(NamedTuple):
    """How many controllers there were. Each checks the node's version with all that it writes."""

    epoch: int

    def encode(self) -> bytes:
        """Kafka's plain number."""
        return str(self.epoch).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what :meth:`encode` wrote."""
        with decoding("controller epoch", data) as number:
            return cls(int(number))
