"""ZooKeeper from the jars that come with PySpark: one server, or an ensemble of three."""

import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path

from qbus.local_cluster import zookeeper
from qbus.local_cluster.layout import LocalClusterError

from .ports import free_port
from .secure_broker import Certificates
from .server_process import ServerGroup, ServerProcess


def missing() -> str | None:
    """The reason why ZooKeeper cannot run here, if there is one."""
    if shutil.which("java") is None:
        return "ZooKeeper needs Java"
    try:
        zookeeper.jars()
    except LocalClusterError as error:
        return str(error)
    return None


class ZooKeeperProcess(ServerProcess):
    """One server. Its data survives ``kill()`` and ``start()``; it is removed with the object."""

    name = "ZooKeeper"
    clean_exit_codes = frozenset({0, 143})

    def __init__(
        self,
        port: int | None = None,
        *,
        tick_ms: int = 200,
        number: int = 1,
        ensemble: Mapping[int, str] | None = None,
        host: str = "127.0.0.1",
        tls: Certificates | None = None,
    ) -> None:
        """``tick_ms``: the shortest session is two ticks, in milliseconds.

        ``ensemble``: the addresses of all servers, for :func:`zookeeper.configure`; this one is
        ``number``. ``tls``: it also listens at ``secure_port``, to whoever has a certificate.
        """
        super().__init__(port)
        self.host = host
        directory = Path(tempfile.mkdtemp(prefix="zookeeper-"))
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        self.secure_port = 0 if tls is None else free_port()
        config = zookeeper.configure(
            directory,
            number,
            host,
            self.port,
            ensemble or {},
            tick_ms=tick_ms,
            more={} if tls is None else _with_tls(directory, self.secure_port, tls),
        )
        self._command = zookeeper.command(config)

    def command(self) -> list[str]:
        return self._command

    def serves(self) -> bool:
        return bool(self.mode())

    def mode(self) -> str:
        """``standalone``, ``leader`` or ``follower``; empty while it does not serve."""
        return zookeeper.mode(self.host, self.port) or ""


def _with_tls(directory: Path, port: int, tls: Certificates) -> dict[str, object]:
    """The settings of a port with TLS for those who have a certificate."""
    keystore = directory / "keystore.pem"
    keystore.write_bytes(Path(tls.server_key).read_bytes() + Path(tls.server).read_bytes())
    return {
        "secureClientPort": port,
        "secureClientPortAddress": "0.0.0.0",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": keystore,
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": tls.ca,
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "need",
    }


class ZooKeeperEnsemble(ServerGroup):
    """Three servers, which serve as long as two of them live."""

    def __init__(self, *, tick_ms: int = 200) -> None:
        ports = [free_port() for _ in range(9)]
        numbers = range(1, 4)
        ensemble = {
            number: f"127.0.0.1:{peer}:{election}"
            for number, peer, election in zip(numbers, ports[3:6], ports[6:], strict=True)
        }
        self.servers = [
            ZooKeeperProcess(port, tick_ms=tick_ms, number=number, ensemble=ensemble)
            for number, port in zip(numbers, ports[:3], strict=True)
        ]

    @property
    def stages(self) -> list[list[ZooKeeperProcess]]:
        return [self.servers]

    @property
    def bootstrap(self) -> str:
        """The addresses for clients: ``host:port,host:port,host:port``."""
        return ",".join(server.bootstrap for server in self.servers)

    @property
    def leader(self) -> ZooKeeperProcess:
        """The server that leads."""
        return next(server for server in self.servers if server.alive and server.mode() == "leader")

    @property
    def followers(self) -> list[ZooKeeperProcess]:
        """The servers that follow it."""
        return [server for server in self.servers if server.alive and server.mode() == "follower"]

    def wait_ready(self) -> None:
        """Wait until all live servers serve."""
        for server in self.servers:
            if server.alive:
                server.wait_ready()
