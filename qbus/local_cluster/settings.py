"""What a local cluster is made of, kept in its directory."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from .errors import LocalClusterError

HOST = "127.0.0.1"
CHROOT = "/qbus"


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """``options`` are settings of each broker, as ``key=value``.

    ``zookeeper_ports`` are those for clients; brokers listen on ``base_port`` and the ports after.
    """

    nodes: int
    base_port: int
    zookeeper_ports: tuple[int, ...]
    options: tuple[str, ...] = ()

    @property
    def zookeeper(self) -> str:
        """The addresses of the ZooKeepers, with the chroot of the brokers."""
        return ",".join(f"{HOST}:{port}" for port in self.zookeeper_ports) + CHROOT

    @property
    def bootstrap(self) -> str:
        """The addresses of the brokers."""
        return ",".join(self.broker_address(number) for number in self.broker_ids)

    @property
    def broker_ids(self) -> range:
        """The numbers of the brokers."""
        return range(1, self.nodes + 1)

    @property
    def zookeeper_ids(self) -> range:
        """The numbers of the ZooKeepers."""
        return range(1, len(self.zookeeper_ports) + 1)

    def broker_port(self, number: int) -> int:
        """Where a broker listens."""
        return self.base_port + number - 1

    def broker_address(self, number: int) -> str:
        """Where clients reach a broker."""
        return f"{HOST}:{self.broker_port(number)}"

    def zookeeper_port(self, number: int) -> int:
        """Where a ZooKeeper listens."""
        return self.zookeeper_ports[number - 1]

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
                zookeeper_ports=tuple(map(int, kept["zookeeper_ports"])),
                options=tuple(map(str, kept["options"])),
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise LocalClusterError(f"{path}: these are no settings of a cluster") from error
