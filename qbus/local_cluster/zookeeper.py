"""Configures, runs and queries Apache ZooKeeper; its jars come with PySpark."""

import re
import socket
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from qbus.extras import lacks
from qbus.local_cluster.java import java, pyspark_home
from qbus.local_cluster.layout import LocalClusterError

#: ZooKeeper 3.9 runs on Java 8 and later (its administrator's guide).
OLDEST_JAVA = 8
_MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

TICK_MS = 500  # the shortest session is two ticks
_ANSWER_LIMIT = 1 << 16
_JARS = (
    "zookeeper*",
    "slf4j-api*",
    "log4j-api*",
    "log4j-core*",
    "log4j-slf4j2*",
    "netty-*",
    "metrics-core*",
    "snappy-java*",
)
_JVM = (
    "-Xms32m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.apache.logging.log4j.level=WARN",
    # Servers that could not reach each other ask again in 2 s at most, by default in a minute.
    "-Dzookeeper.fastleader.maxNotificationInterval=2000",
)


def command(config: Path) -> list[str]:
    """The command line of a server. Raises LocalClusterError if Java or the jars are missing."""
    classpath = ":".join(map(str, jars()))
    return [java("ZooKeeper", OLDEST_JAVA), *_JVM, "-cp", classpath, _MAIN_CLASS, str(config)]


def configure(
    directory: Path,
    number: int,
    host: str,
    port: int,
    ensemble: Mapping[int, str],
    *,
    tick_ms: int = TICK_MS,
    more: Mapping[str, object] = MappingProxyType({}),
) -> Path:
    """Write the configuration of server ``number`` to ``directory``, where its data is, too.

    ``ensemble``: ``host:peer-port:election-port`` of each server, by number; empty for a single
    server. ``more``: further settings. Return the path of the configuration.
    """
    settings: dict[str, object] = {
        "dataDir": directory,
        "clientPort": port,
        "clientPortAddress": host,
        "tickTime": tick_ms,
        "initLimit": 10_000 // tick_ms,
        "syncLimit": 5_000 // tick_ms,
        "maxSessionTimeout": 60_000,
        "maxClientCnxns": 0,
        "autopurge.purgeInterval": 1,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "srvr,mntr,ruok,stat",
    }
    settings |= {f"server.{other}": address for other, address in ensemble.items()}
    settings |= more
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "myid").write_text(f"{number}\n")
    config = directory / "zoo.cfg"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return config


def mode(host: str, port: int, timeout: float = 1.0) -> str | None:
    """``standalone``, ``leader`` or ``follower``; None while the server does not serve."""
    try:
        with socket.create_connection((host, port), timeout) as connection:
            connection.settimeout(timeout)
            connection.sendall(b"srvr")
            answer = connection.recv(_ANSWER_LIMIT, socket.MSG_WAITALL)
    except OSError:
        return None
    found = re.search(rb"^Mode: (\w+)", answer, re.MULTILINE)
    return found[1].decode() if found else None


def jars() -> list[Path]:
    """The jars of ZooKeeper and its dependencies. Raises LocalClusterError without PySpark."""
    home = pyspark_home()
    if home is not None:
        directory = home / "jars"
        found = [jar for pattern in _JARS for jar in sorted(directory.glob(f"{pattern}.jar"))]
        if any(jar.name.startswith("zookeeper-") for jar in found):
            return found
    raise LocalClusterError(lacks("ZooKeeper's jars come with pyspark, which is missing", "spark"))
