"""A real ZooKeeper, one server or an ensemble of three, out of the jars that come with PySpark."""

import shutil
import socket
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from qbus.local_cluster import zookeeper
from qbus.local_cluster.layout import LocalClusterError

from .ports import free_port
from .server_process import ServerProcess

_JVM = (
    "-Xms32m",
    "-Xmx160m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.apache.logging.log4j.level=WARN",
)


def missing() -> str | None:
    """Why no ZooKeeper can be started here, if so."""
    if shutil.which("java") is None:
        return "ZooKeeper needs Java"
    try:
        zookeeper.jars()
    except LocalClusterError as error:
        return str(error)
    return None


class ZooKeeperProcess(ServerProcess):
    """One server. What it stores outlives ``kill()`` and ``start()``, not the object."""

    name = "ZooKeeper"
    clean_exit_codes = frozenset({0, 143})

    def __init__(
        self,
        port: int | None = None,
        *,
        tick_ms: int = 200,
        number: int = 1,
        ensemble: Sequence[str] = (),
        host: str = "127.0.0.1",
    ) -> None:
        """``tick_ms``: sessions may be as short as two ticks, in milliseconds.

        ``ensemble``: the lines about all of its servers, of which this is the one with ``number``.
        """
        super().__init__(port)
        self.host = host
        directory = Path(tempfile.mkdtemp(prefix="zookeeper-"))
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        (directory / "myid").write_text(f"{number}\n")
        self._config = directory / "zoo.cfg"
        settings = {
            "dataDir": directory,
            "clientPort": self.port,
            "clientPortAddress": host,
            "tickTime": tick_ms,
            "initLimit": 10_000 // tick_ms,
            "syncLimit": 5_000 // tick_ms,
            "maxSessionTimeout": 60_000,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
        }
        lines = [f"{key}={value}" for key, value in settings.items()]
        self._config.write_text("\n".join([*lines, *ensemble, ""]))

    def command(self) -> list[str]:
        classpath = ":".join(map(str, zookeeper.jars()))
        return ["java", *_JVM, "-cp", classpath, zookeeper.MAIN_CLASS, str(self._config)]

    def serves(self) -> bool:
        return bool(self.mode())

    def mode(self) -> str:
        """``standalone``, ``leader`` or ``follower``; empty while it does not serve."""
        for line in self.ask("srvr").splitlines():
            name, _, value = line.partition(": ")
            if name == "Mode":
                return value
        return ""

    def ask(self, word: str) -> str:
        """The answer to one of ZooKeeper's four-letter words; empty when there is none."""
        try:
            with socket.create_connection((self.host, self.port), 1.0) as connection:
                connection.settimeout(2.0)
                connection.sendall(word.encode())
                answer = b""
                while data := connection.recv(65_536):
                    answer += data
        except OSError:
            return ""
        return answer.decode()


class ZooKeeperEnsemble:
    """Three servers that keep going while two of them live."""

    def __init__(self, *, tick_ms: int = 200) -> None:
        ports = [free_port() for _ in range(9)]
        numbers = range(1, 4)
        lines = [
            f"server.{number}=127.0.0.1:{peer}:{election}"
            for number, peer, election in zip(numbers, ports[3:6], ports[6:], strict=True)
        ]
        self.servers = [
            ZooKeeperProcess(port, tick_ms=tick_ms, number=number, ensemble=lines)
            for number, port in zip(numbers, ports[:3], strict=True)
        ]

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
        """Wait until all that live serve."""
        for server in self.servers:
            if server.alive:
                server.wait_ready()

    def __enter__(self) -> Self:
        try:
            for server in self.servers:
                server.start(wait=False)
            self.wait_ready()
        except BaseException:
            self._reap()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._reap()

    def _reap(self) -> None:
        for server in self.servers:
            if server.alive:
                server.kill()
