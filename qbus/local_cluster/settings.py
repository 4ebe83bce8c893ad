"""What a local cluster is made of, kept in its directory."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from qbus.local_cluster.errors import LocalClusterError
from qbus.local_cluster.layout import (
    BROKER,
    KINDS,
    SPARK_MASTER,
    SPARK_WORKER,
    ZOOKEEPER,
    node_name,
)

HOST = "127.0.0.1"
CHROOT = "/qbus"


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Where Spark's master and its workers listen, and where the master shows its page."""

    master_port: int
    page_port: int
    worker_ports: tuple[int, ...]

    @property
    def master(self) -> str:
        """What ``spark-submit --master`` takes."""
        return f"spark://{HOST}:{self.master_port}"

    @property
    def page(self) -> str:
        """The page of the master: who runs what."""
        return f"http://{HOST}:{self.page_port}"


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """``options`` are settings of each broker, as ``key=value``.

    ``zookeeper_ports`` are those for clients; brokers listen on ``base_port`` and the ports after.
    ``spark`` is None for a cluster without Spark.
    """

    nodes: int
    base_port: int
    zookeeper_ports: tuple[int, ...]
    options: tuple[str, ...] = ()
    spark: SparkSettings | None = None

    @property
    def zookeeper(self) -> str:
        """The addresses of the ZooKeepers, with the chroot of the brokers."""
        return ",".join(f"{HOST}:{port}" for port in self.zookeeper_ports) + CHROOT

    @property
    def bootstrap(self) -> str:
        """The addresses of the brokers."""
        return ",".join(f"{HOST}:{port}" for port in self.ports(BROKER))

    def ports(self, kind: str) -> Sequence[int]:
        """Where the nodes of a kind listen; empty for a kind that the cluster does not have."""
        spark = self.spark
        ports: dict[str, Sequence[int]] = {
            ZOOKEEPER: self.zookeeper_ports,
            BROKER: range(self.base_port, self.base_port + self.nodes),
            SPARK_MASTER: (spark.master_port,) if spark else (),
            SPARK_WORKER: spark.worker_ports if spark else (),
        }
        return ports[kind]

    def port(self, kind: str, number: int) -> int:
        """Where a node listens."""
        return self.ports(kind)[number - 1]

    def numbers(self, kind: str) -> range:
        """The numbers of the nodes of a kind."""
        return range(1, len(self.ports(kind)) + 1)

    def ports_by_name(self) -> dict[str, int]:
        """Where each node listens, in the order in which they start."""
        return {
            node_name(kind, number): self.port(kind, number)
            for kind in KINDS
            for number in self.numbers(kind)
        }

    def write(self, path: Path) -> None:
        """Keep them, all at once or not at all."""
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self), indent=2) + "\n")
        fresh.replace(path)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """What was kept, None if nothing was; LocalClusterError if it makes no sense."""
        try:
            kept = json.loads(path.read_text())
            return cls(
                nodes=int(kept["nodes"]),
                base_port=int(kept["base_port"]),
                zookeeper_ports=_numbers(kept["zookeeper_ports"]),
                options=tuple(map(str, kept["options"])),
                spark=_spark(kept.get("spark")),
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LocalClusterError(f"{path}: these are no settings of a cluster") from error


def _spark(kept: Any) -> SparkSettings | None:
    if kept is None:
        return None
    workers = _numbers(kept["worker_ports"])
    return SparkSettings(int(kept["master_port"]), int(kept["page_port"]), workers)


def _numbers(kept: Any) -> tuple[int, ...]:
    return tuple(map(int, kept))
