"""The settings of a local cluster, stored in its directory."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from qbus.local_cluster.layout import (
    BROKER,
    KINDS,
    SPARK_MASTER,
    SPARK_WORKER,
    ZOOKEEPER,
    LocalClusterError,
    node_name,
)
from qbus.service.files import replace_file

HOST = "127.0.0.1"
CHROOT = "/qbus"
_LISTENING: Final = frozenset({"metrics.listen", "disque.listen"})
"""Settings of a broker with an address of its own, beside that for clients of Kafka."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The ports of Spark's master, its web page, and the workers."""

    master_port: int
    page_port: int
    worker_ports: tuple[int, ...]

    @property
    def master(self) -> str:
        """The URL for ``spark-submit --master``."""
        return f"spark://{HOST}:{self.master_port}"

    @property
    def page(self) -> str:
        """The URL of the master's web page."""
        return f"http://{HOST}:{self.page_port}"


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The nodes of a cluster, and where they listen.

    ``zookeeper_ports``: the client ports. The brokers listen on ``base_port`` and the ports after
    it. ``options``: settings of each broker, as ``key=value``; of ports in them, broker 1 has the
    one that is stated, and the others those after it. ``spark``: None without Spark.
    ``secure``: whether the brokers ask for TLS and passwords, and check who may do what.
    """

    nodes: int
    base_port: int
    zookeeper_ports: tuple[int, ...]
    options: tuple[str, ...] = ()
    spark: SparkSettings | None = None
    secure: bool = False

    @property
    def zookeeper(self) -> str:
        """The addresses of the ZooKeepers, with the chroot of the brokers."""
        return ",".join(f"{HOST}:{port}" for port in self.zookeeper_ports) + CHROOT

    @property
    def bootstrap(self) -> str:
        """The addresses of the brokers."""
        return ",".join(f"{HOST}:{port}" for port in self.ports(BROKER))

    def ports(self, kind: str) -> Sequence[int]:
        """The ports of the nodes of a kind; empty for a kind that the cluster does not have."""
        spark = self.spark
        ports: dict[str, Sequence[int]] = {
            ZOOKEEPER: self.zookeeper_ports,
            BROKER: range(self.base_port, self.base_port + self.nodes),
            SPARK_MASTER: (spark.master_port,) if spark else (),
            SPARK_WORKER: spark.worker_ports if spark else (),
        }
        return ports[kind]

    def options_of(self, number: int) -> list[str]:
        """The options of broker ``number``: each has its own ports, after those of broker 1."""
        return [
            option if (own := _numbered(option)) is None else f"{own.prefix}{own.port + number - 1}"
            for option in self.options
        ]

    def further_ports(self) -> dict[str, Sequence[int]]:
        """The ports of the brokers that options name, by the name of the setting."""
        found = [_numbered(option) for option in self.options]
        return {
            own.name: range(own.port, own.port + self.nodes) for own in found if own is not None
        }

    def port(self, kind: str, number: int) -> int:
        """The port of a node."""
        return self.ports(kind)[number - 1]

    def numbers(self, kind: str) -> range:
        """The numbers of the nodes of a kind."""
        return range(1, len(self.ports(kind)) + 1)

    def ports_by_name(self) -> dict[str, int]:
        """The port of each node, in the order in which they start."""
        return {
            node_name(kind, number): self.port(kind, number)
            for kind in KINDS
            for number in self.numbers(kind)
        }

    def write(self, path: Path) -> None:
        """Store the settings atomically."""
        content = json.dumps(asdict(self), indent=2) + "\n"
        replace_file(path, content.encode(), durable=False)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Load settings; None if none are stored. Raises LocalClusterError for invalid ones."""
        try:
            stored = json.loads(path.read_text())
            return cls(
                nodes=int(stored["nodes"]),
                base_port=int(stored["base_port"]),
                zookeeper_ports=_numbers(stored["zookeeper_ports"]),
                options=tuple(map(str, stored["options"])),
                spark=_spark(stored.get("spark")),
                secure=bool(stored.get("secure", False)),
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LocalClusterError(f"{path} does not hold the settings of a cluster") from error


class _Numbered(NamedTuple):
    """An option that names a port, which differs from broker to broker: ``prefix`` and ``port``."""

    name: str
    prefix: str
    port: int


def _numbered(option: str) -> _Numbered | None:
    """Read an option; None for one that is the same for all brokers, as with port 0."""
    name, _, value = option.partition("=")
    prefix, _, port = option.rpartition(":")
    if name not in _LISTENING or not (port.isascii() and port.isdigit() and int(port)):
        return None
    return _Numbered(name, f"{prefix}:", int(port)) if ":" in value else None


def _spark(stored: Any) -> SparkSettings | None:
    if stored is None:
        return None
    workers = _numbers(stored["worker_ports"])
    return SparkSettings(int(stored["master_port"]), int(stored["page_port"]), workers)


def _numbers(stored: Any) -> tuple[int, ...]:
    return tuple(map(int, stored))
