"""Apache Kafka as a peer: one node in KRaft's combined mode, with its default settings."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from perf.peers import java
from tests.support.ports import free_port
from tests.support.server_process import ServerProcess

_CLUSTER_ID = "UWJ1cy1wZWVyLWthZmthMQ"
# What one node needs to differ from the defaults: nothing can be replicated.
_SINGLE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT"
    ),
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


def missing() -> str | None:
    """Return why Kafka cannot run here, or None when it can. Fetches its jars at first use."""
    try:
        java.classpath()
    except java.Unavailable as reason:
        return str(reason)
    return None


class KafkaProcess(ServerProcess):
    """A Kafka broker on 127.0.0.1 over ``data_dir``; ``properties`` go over its defaults.

    Raises java.Unavailable when Java or Maven is absent. ``heap`` is that of Kafka's start script.
    ``proxied``: one more port to listen on, and what clients of it are told to connect to instead.
    """

    name = "kafka"
    #: The JVM's own code for a shutdown by SIGTERM.
    clean_exit_codes = frozenset({0, 143})

    def __init__(
        self,
        data_dir: Path,
        properties: Mapping[str, str] | None = None,
        port: int | None = None,
        heap: str = "1G",
        proxied: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(port)
        self.data_dir = data_dir
        self._controller_port = free_port()
        self._properties = properties or {}
        self._heap = heap
        self._proxied = proxied

    @property
    def log_dir(self) -> Path:
        """The directory that holds one directory per partition."""
        return self.data_dir / "log"

    def command(self) -> list[str]:
        """Return the command line of the broker; format its storage before the first start."""
        settings = self._write_settings()
        if not (self.log_dir / "meta.properties").exists():
            self._format(settings)
        return java.command("kafka.Kafka", str(settings), heap=self._heap)

    def _write_settings(self) -> Path:
        controller = f"127.0.0.1:{self._controller_port}"
        listeners = [f"PLAINTEXT://{self.bootstrap}"]
        advertised = list(listeners)
        if self._proxied is not None:
            listeners.append(f"PROXIED://127.0.0.1:{self._proxied[0]}")
            advertised.append(f"PROXIED://127.0.0.1:{self._proxied[1]}")
        settings = {
            **_SINGLE_NODE,
            "listeners": ",".join([*listeners, f"CONTROLLER://{controller}"]),
            "advertised.listeners": ",".join(advertised),
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": str(self.log_dir),
            **self._properties,
        }
        self.data_dir.mkdir(parents=True, exist_ok=True)
        path = self.data_dir / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def _format(self, settings: Path) -> None:
        arguments = ["format", "-t", _CLUSTER_ID, "-c", str(settings)]
        subprocess.run(
            java.command("kafka.tools.StorageTool", *arguments),
            check=True,
            stdout=self._log,
            stderr=self._log,
        )
