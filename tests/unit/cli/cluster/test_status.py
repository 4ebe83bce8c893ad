"""How the cluster in a directory is asked, and how its Spark is shown."""

from pathlib import Path

import pytest

from qbus.cli.cluster.status import gather, spark_status
from qbus.cli.failures import Failure
from qbus.cli.targets import Target
from qbus.local_cluster import Layout
from qbus.local_cluster.settings import ClusterSettings, SparkSettings
from qbus.security.client import ClientSecurity
from tests.unit.cli.security_fakes import failure

SETTINGS = SparkSettings(7077, 8080, (7001, 7002))
TOLD = {
    "workers": [
        {"port": 7001, "state": "ALIVE", "cores": 2, "coresused": 1},
        {"port": 7002, "state": "DEAD", "cores": 2, "coresused": 0},
    ],
    "activeapps": [{"id": "app-1", "name": "stats", "cores": 1, "user": "someone"}],
}


def pid(kind: str, number: int) -> int | None:
    return {"spark-master": 10, "spark-worker": 20}[kind] + number


def test_the_masters_status_is_joined_with_the_processes() -> None:
    status = spark_status(SETTINGS, TOLD, pid)
    assert (status["master"]["up"], status["master"]["pid"]) == (True, 11)
    assert status["master"]["page"] == "http://127.0.0.1:8080"
    shown = [(w["id"], w["up"], w["pid"], w["cores"], w["cores_used"]) for w in status["workers"]]
    assert shown == [(1, True, 21, 2, 1), (2, False, 22, None, None)]
    assert status["applications"] == [{"id": "app-1", "name": "stats", "cores": 1}]


def test_a_master_that_does_not_serve_leaves_all_down() -> None:
    status = spark_status(SETTINGS, None, lambda kind, number: None)
    assert not status["master"]["up"]
    assert not any(worker["up"] for worker in status["workers"])
    assert status["applications"] == []


@pytest.mark.parametrize(("secure", "user"), [(True, "admin"), (False, None)])
async def test_the_cluster_in_a_directory_is_asked_as_its_own_administrator(
    secure: bool, user: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A context may be for another cluster, whose password is none of this one's business."""
    layout = Layout(tmp_path)
    ClusterSettings(1, 9192, (2181,), secure=secure).write(layout.settings)
    layout.client_properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.username=admin\nsasl.password=of-this-one\n"
    )
    other = ClientSecurity(
        protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="somebody",
        sasl_password="of-another",
    )
    asked = []

    def administration(target: Target) -> None:
        asked.append(target)
        raise Failure("that is enough")

    monkeypatch.setattr("qbus.cli.cluster.status.administration", administration)
    monkeypatch.setattr("qbus.cli.cluster.status.mode", lambda *_: None)
    await gather(tmp_path, None, Target("elsewhere:1", other))
    (target,) = asked
    assert target.bootstrap == "127.0.0.1:9192"
    assert (target.security and target.security.sasl_username) == user


@pytest.mark.parametrize("command", ["status", "wait"])
@pytest.mark.parametrize("value", ["http://127.0.0.1:2181", "", "zk1/bus,zk2:2181/bus"])
def test_an_address_that_is_none_of_zookeepers_is_refused_by_its_option(
    command: str, value: str
) -> None:
    said = failure(["cluster", command, "--zookeeper", value], 2)
    assert f"Invalid value for '--zookeeper': {value!r}: expected host:port,.../chroot" in said
