"""The containers of docker/: the file's content, and a run where there is a Docker engine."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qbus import Consumer, Producer
from qbus.cli.broker.command import broker
from qbus.config import BrokerConfig
from qbus.testing import QbusContainer
from tests.support.tools import skip_because_of

pytestmark = pytest.mark.integration

DOCKER = Path(__file__).parents[2] / "docker"
COMPOSE = DOCKER / "compose.yaml"


def engine_missing() -> str | None:
    """The reason why containers cannot run here, if there is one."""
    if shutil.which("docker") is None:
        return "no Docker engine: there is no 'docker' on the PATH"
    done = subprocess.run(["docker", "info"], capture_output=True, text=True, check=False)
    return f"no Docker engine: {done.stderr.strip()}" if done.returncode else None


@pytest.fixture(scope="module")
def document() -> Any:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return yaml.safe_load(COMPOSE.read_text())


def test_three_zookeepers_and_three_brokers(document: Any) -> None:
    numbers = (1, 2, 3)
    names = [f"zookeeper-{n}" for n in numbers] + [f"broker-{n}" for n in numbers]
    assert list(document["services"])[:6] == names
    for n in numbers:
        zookeeper = document["services"][f"zookeeper-{n}"]
        assert zookeeper["environment"]["ZOO_MY_ID"] == n
        assert re.findall(r"server\.(\d)", zookeeper["environment"]["ZOO_SERVERS"]) == list("123")
        assert zookeeper["healthcheck"]["test"]


def test_brokers_have_valid_settings(document: Any) -> None:
    known = {option for parameter in broker.params for option in parameter.opts}
    for n in (1, 2, 3):
        service = document["services"][f"broker-{n}"]
        command, *options = service["command"]
        given = dict(option.split("=", 1) for option in options)
        assert command == "broker"
        assert given.keys() <= known
        assert given["--node-id"] == str(n)
        assert given["--advertise"] == f"SASL_SSL://broker-{n}:{9091 + n}"
        assert given["--listen"] == f"SASL_SSL://0.0.0.0:{9091 + n}"
        assert f"127.0.0.1:{9091 + n}:{9091 + n}" in service["ports"]
        needs = {"certificates", "zookeeper-1", "zookeeper-2", "zookeeper-3"}
        assert set(service["depends_on"]) == needs


def test_brokers_are_open_to_nobody(document: Any) -> None:
    settings = tomllib.loads((DOCKER / document["configs"]["broker"]["file"]).read_text())
    references = ("sasl.inter.broker.password", "zookeeper.digest")
    assert all(settings[name].startswith("file:/etc/qbus/tls/") for name in references)
    (listen,) = (
        option.removeprefix("--listen=")
        for option in document["services"]["broker-1"]["command"]
        if option.startswith("--listen=")
    )
    stated = {name: value for name, value in settings.items() if name not in references}
    config = BrokerConfig(
        {
            **stated,
            "listeners": listen,
            "advertised.listeners": "SASL_SSL://broker-1:9092",
            "sasl.inter.broker.password": "secret",
            "zookeeper.digest": "qbus:secret",
        }
    )
    assert config.authenticates
    assert config.metrics_authenticates
    assert settings["zookeeper.connect"].count(",") == 2


def test_processes_are_confined(document: Any) -> None:
    services = {
        name: service
        for name, service in document["services"].items()
        if service["image"] != "zookeeper:3.9"
    }
    assert len(services) == 7
    for service in services.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    for file in ("Dockerfile", "spark.Dockerfile"):
        text = (DOCKER / file).read_text()
        assert re.search(r"(?m)^USER (qbus|spark)$", text)
        assert "--require-hashes" in text


def test_nothing_is_copied_into_what_is_read_only(document: Any) -> None:
    """Compose mounts files; contents and variables it would copy, and be refused."""
    assert not document.get("secrets")
    for config in document["configs"].values():
        assert list(config) == ["file"]
        assert (DOCKER / config["file"]).is_file()


def test_passwords_are_made_once(document: Any, tmp_path: Path) -> None:
    service = document["services"]["certificates"]
    (script,) = service["command"]
    script = script.replace("/etc/qbus/tls", str(tmp_path)).replace("$$", "$")
    script = script.replace("python3", sys.executable).replace("qbus tls", "echo made:")
    shell, option = service["entrypoint"]
    made = []
    for _ in range(2):
        subprocess.run([shell, option, script], check=True)
        made.append({path.name: path.read_text() for path in tmp_path.iterdir()})
    assert made[0] == made[1]
    assert made[0].keys() == {"broker.password", "zookeeper.digest"}
    assert made[0]["zookeeper.digest"].startswith("qbus:")
    assert min(map(len, made[0].values())) > 30
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    properties = (DOCKER / document["configs"]["client"]["file"]).read_text()
    assert "sasl.password=file:/etc/qbus/tls/broker.password\n" in properties


def test_spark_has_two_workers_of_one_master(document: Any) -> None:
    services = document["services"]
    assert list(services)[6:9] == ["spark-master", "spark-worker-1", "spark-worker-2"]
    main, *options = services["spark-master"]["command"]
    assert main == "org.apache.spark.deploy.master.Master"
    assert {"--host=spark-master", "--port=7077"} <= set(options)
    for name in list(services)[7:9]:
        main, *_, master = services[name]["command"]
        assert main == "org.apache.spark.deploy.worker.Worker"
        assert master == "spark://spark-master:7077"
        # Executors write what the driver commits: both see the same files.
        assert services[name]["volumes"] == services["spark-master"]["volumes"]
    assert (DOCKER / "spark.Dockerfile").exists()
    assert services["spark-master"]["build"]["dockerfile"] == "docker/spark.Dockerfile"


def test_all_that_is_stored_is_in_volumes(document: Any) -> None:
    used = {
        volume.partition(":")[0]
        for service in document["services"].values()
        for volume in service["volumes"]
    }
    assert used == set(document["volumes"])


@pytest.fixture(scope="module")
def compose() -> Iterator[Any]:
    skip_because_of(engine_missing())
    containers = pytest.importorskip("testcontainers.compose")
    with containers.DockerCompose(str(DOCKER), "compose.yaml", build=True, wait=True) as running:
        yield running


@pytest.mark.timeout(900)
def test_the_composed_cluster_serves_clients(compose: Any) -> None:
    def qbus(*arguments: str) -> Any:
        told, _, _ = compose.exec_in_container(["qbus", *arguments, "--json"], "broker-1")
        return json.loads(told)

    brokers = qbus("cluster", "status")["brokers"]
    assert [(one["id"], one["up"]) for one in brokers] == [(1, True), (2, True), (3, True)]
    assert qbus("topic", "create", "t", "--partitions", "3")["replication_factor"] == 3


def test_a_broker_in_a_container_for_tests() -> None:
    """What users' tests do: the image of docker/Dockerfile, with its port mapped."""
    skip_because_of(engine_missing())
    build = ["docker", "build", "-q", "-f", str(DOCKER / "Dockerfile"), "-t", "qbus", "."]
    subprocess.run(build, cwd=DOCKER.parent, check=True)
    with QbusContainer(options={"num.partitions": "3"}) as broker:
        with Producer(broker.bootstrap) as producer:
            producer.send_and_wait("orders", b"1")
            assert len(producer.partitions("orders")) == 3
        with Consumer(broker.bootstrap, offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            assert next(iter(consumer)).value == b"1"
