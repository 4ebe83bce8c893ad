"""A worker of Kafka Connect in distributed mode, and the REST API that it serves."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perf.peers import java
from perf.peers.maven import Artifact
from tests.support.ports import free_port
from tests.support.waiting import wait_until

from .whole_cluster import PATIENCE, Output, jars_or_skip

_ARTIFACTS = tuple(
    Artifact("org.apache.kafka", name, java.KAFKA_VERSION)
    for name in ("connect-runtime", "connect-file", "connect-mirror")
) + (Artifact("org.slf4j", "slf4j-simple", "1.7.36"),)
_MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
_SETTINGS = {
    "group.id": "workers",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "offset.storage.partitions": "3",
    "status.storage.topic": "connect-status",
    "status.storage.partitions": "2",
    "offset.flush.interval.ms": "1000",
    "exactly.once.source.support": "enabled",
    "consumer.isolation.level": "read_committed",
    "connector.client.config.override.policy": "All",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "1000",
}


# Unknown so far, while the group rebalances, without a leader, or starting.
_NOT_YET = {404, 409, 500, 503}


class Worker(Output):
    """A worker, started on entry and killed on exit; it serves when ``wait_ready`` returns."""

    def __init__(
        self, bootstrap: str, directory: Path, name: str, connector: Artifact | None = None
    ) -> None:
        """``connector``: one to have beside Kafka's own."""
        self._port = free_port()
        folder, artifacts = f"connect-{java.KAFKA_VERSION}", _ARTIFACTS
        if connector is not None:
            folder = f"{folder}-{connector.name}-{connector.version}"
            artifacts = (*artifacts, connector)
        jars = jars_or_skip(folder, artifacts)
        settings = {
            **_SETTINGS,
            "bootstrap.servers": bootstrap,
            "listeners": f"http://127.0.0.1:{self._port}",
            "plugin.discovery": "service_load",  # all are on the class path
        }
        path = directory / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        options = java.SHORT_RUN_OPTIONS
        super().__init__(java.command(_MAIN, str(path), heap="512M", options=options, jars=jars))

    def wait_ready(self) -> None:
        """Wait until it has joined its group."""
        wait_until(lambda: self._answers("/connectors"), f"a worker\n{self.text()}", PATIENCE, 0.2)

    def put(self, name: str, settings: Mapping[str, str]) -> None:
        """Create or change a connector."""
        wait_until(
            lambda: self._answers(f"/connectors/{name}/config", settings),
            f"the connector {name}",
            PATIENCE,
            0.5,
        )

    def wait_running(self, name: str) -> None:
        """Wait until a connector and its tasks run."""

        def runs() -> bool:
            status = self._answers(f"/connectors/{name}/status") or {}
            states = [one["state"] for one in status.get("tasks", ())]
            assert "FAILED" not in states, status
            return bool(states) and set(states) == {"RUNNING"}

        wait_until(runs, f"{name} to run", PATIENCE, 0.3)

    def offsets(self, name: str) -> Any:
        """The offsets of a connector, as the worker knows them."""
        return (self._answers(f"/connectors/{name}/offsets") or {}).get("offsets")

    def _answers(self, path: str, body: Mapping[str, str] | None = None) -> Any:
        """The answer, or None while the worker or its leader does not answer yet."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method="GET" if body is None else "PUT",
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return json.load(response) or True
        except urllib.error.HTTPError as error:
            if error.code not in _NOT_YET:
                raise AssertionError(error.read()) from None
            return None
        except OSError:
            return None
