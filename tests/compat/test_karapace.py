"""Karapace, a schema registry whose schemas lie in a compacted topic, and an Avro client.

Karapace is not on PyPI: QBUS_KARAPACE names a virtual environment that it is installed in, together
with ``confluent-kafka[avro,schemaregistry]``.
"""

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from tests.cluster.faults.targets import Cluster
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.transactions.load import read_committed

from .whole_cluster import PATIENCE, Output, create, kill_leader, running

pytestmark = [pytest.mark.compat, pytest.mark.nightly, pytest.mark.timeout(600)]

_CLIENT = Path(__file__).parent / "avro_client.py"
_TOPIC = "_schemas"
_PYTHON = Path(os.environ.get("QBUS_KARAPACE", "/nowhere"), "bin", "python")


@pytest.fixture
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers."""
    if not _PYTHON.exists():
        pytest.skip("QBUS_KARAPACE names no environment with Karapace")
    with running(request, tmp_path / "cluster") as started:
        yield started


class Registry(Output):
    """A registry, started on entry and killed on exit."""

    def __init__(self, bootstrap: str) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        settings = {
            "BOOTSTRAP_URI": bootstrap,
            "HOST": "127.0.0.1",
            "PORT": str(port),
            "ADVERTISED_HOSTNAME": "127.0.0.1",
            "ADVERTISED_PORT": str(port),
            "KARAPACE_REGISTRY": "true",
            "REPLICATION_FACTOR": "3",
            "TOPIC_NAME": _TOPIC,
            "PRODUCER_ACKS": "all",
            "LOG_LEVEL": "WARNING",
            "WAITING_TIME_BEFORE_ACTING_AS_MASTER_MS": "500",
        }
        env = {f"KARAPACE_{name}": value for name, value in settings.items()}
        super().__init__([str(_PYTHON), "-m", "karapace"], {**os.environ, **env})

    def wait_ready(self) -> None:
        """Wait until it has read its schemas and may write."""
        wait_until(
            lambda: (self.ask("/master_available") or {}).get("master_available"),
            f"a registry\n{self.text()}",
            PATIENCE,
            0.3,
        )

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """The answer; a number for an error, None if nothing answers."""
        request = urllib.request.Request(
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
            method=method or ("GET" if body is None else "POST"),
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None


def avro(whole: Cluster, registry: Registry, first: int, last: int) -> list[Any]:
    """What an Avro client reads after it has sent some more."""
    arguments = (whole.bootstrap, registry.url, "readings", str(first), str(last))
    command = [str(_PYTHON), str(_CLIENT), *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def schema(*fields: str) -> dict[str, str]:
    """A request to register a schema with fields that are strings."""
    named = [{"name": name, "type": "string"} for name in fields]
    return {"schema": json.dumps({"type": "record", "name": "Row", "fields": named})}


def test_schemas_outlive_brokers_and_the_registry(whole: Cluster) -> None:
    create(whole, "readings", 1)
    expected = [{"number": number, "unit": "km"} for number in range(200)]
    with Registry(whole.bootstrap) as registry:
        registry.wait_ready()
        first = registry.ask("/subjects/rows/versions", schema("a", "b"))["id"]
        assert registry.ask("/subjects/rows/versions", schema("a", "b"))["id"] == first
        assert registry.ask("/subjects/rows/versions", schema("a", "b", "c")) == 409
        assert registry.ask("/subjects/rows/versions", schema("a"))["id"] > first
        assert avro(whole, registry, 0, 100) == expected[:100]
        registry.ask("/subjects/gone/versions", schema("x"))
        registry.ask("/subjects/gone", method="DELETE")
        registry.ask("/subjects/gone?permanent=true", method="DELETE")
        killed = kill_leader(whole, _TOPIC)
        wait_until(
            lambda: isinstance(registry.ask("/subjects/more/versions", schema("y")), dict),
            "a registration",
            PATIENCE,
            0.5,
        )
    whole.brokers[killed].start()
    admin = AdminClient({"bootstrap.servers": whole.bootstrap})
    resource = ConfigResource(ConfigResource.Type.TOPIC, _TOPIC)
    assert admin.describe_configs([resource])[resource].result(30)["cleanup.policy"].value == (
        "compact"
    )
    with Registry(whole.bootstrap) as again:
        again.wait_ready()
        assert sorted(again.ask("/subjects")) == ["more", "readings-value", "rows"]
        assert again.ask("/subjects/rows/versions") == [1, 2]
        assert avro(whole, again, 100, 200) == expected
    (records,) = read_committed(whole.bootstrap, _TOPIC, [0]).values()
    assert records
