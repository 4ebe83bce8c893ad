"""The steps of docs/security-migration.md with three brokers, while others produce."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from qbus.local_cluster.ports import listens
from qbus.security.trial_ca import TrialAuthority, local_hosts
from tests.support import zookeeper_process
from tests.support.numbered_load import Load, read_all
from tests.support.ports import free_ports
from tests.support.server_process import ServerProcess
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until
from tests.support.zookeeper_process import ZooKeeperProcess

pytestmark = [pytest.mark.integration, pytest.mark.nightly, pytest.mark.timeout(600)]

NODES = 3
PASSWORD = "a long random word"
PATIENCE = 60.0


class StagedBroker(ServerProcess):
    """A broker whose settings change from one start to the next."""

    name = "qbus"

    def __init__(
        self, directory: Path, number: int, ports: tuple[int, int], zookeeper: str
    ) -> None:
        super().__init__(ports[0], {"PYTHONUNBUFFERED": "1"})
        self.open_port, self.closed_port = ports
        self._file = directory / f"{number}.toml"
        self._fixed: dict[str, object] = {
            "node.id": number,
            "log.dirs": str(directory / f"data-{number}"),
            "zookeeper.connect": zookeeper,
            "default.replication.factor": NODES,
            "min.insync.replicas": 2,
            "group.initial.rebalance.delay.ms": 0,
        }

    def configure(self, **settings: object) -> None:
        """State the settings of the next start; dots are two underscores."""
        changing = {name.replace("__", "."): value for name, value in settings.items()}
        lines = [f"{json.dumps(k)} = {json.dumps(v)}" for k, v in (self._fixed | changing).items()]
        self._file.write_text("\n".join(lines))

    def command(self) -> list[str]:
        return [sys.executable, "-m", "qbus", "broker", "--config", str(self._file)]

    def serves(self) -> bool:
        return all(
            listens(port)
            for port, name in ((self.open_port, "PLAINTEXT"), (self.closed_port, "SASL_SSL"))
            if f"{name}://" in self._file.read_text()
        )


class Cluster:
    """Three such brokers, and the files of those who connect."""

    def __init__(self, directory: Path, zookeeper: str) -> None:
        self.directory = directory
        ports = free_ports(2 * NODES)
        pairs = zip(ports[:NODES], ports[NODES:], strict=True)
        self.brokers = [
            StagedBroker(directory, number, pair, zookeeper) for number, pair in enumerate(pairs, 1)
        ]
        authority = TrialAuthority.create(directory / "ca.pem", directory / "ca.key")
        certificate, key = authority.issue("broker", local_hosts())
        (directory / "broker.pem").write_bytes(certificate + key)
        self.open = ",".join(f"127.0.0.1:{broker.open_port}" for broker in self.brokers)
        self.closed = ",".join(f"127.0.0.1:{broker.closed_port}" for broker in self.brokers)

    def properties(self, user: str, password: str = PASSWORD) -> dict[str, str]:
        return {
            "bootstrap.servers": self.closed,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": str(self.directory / "ca.pem"),
        }

    def file(self, user: str) -> str:
        path = self.directory / f"{user}.properties"
        path.write_text("".join(f"{k}={v}\n" for k, v in self.properties(user).items()))
        return str(path)

    def configure(self, listeners: tuple[str, ...], **settings: object) -> None:
        secured = {
            "ssl__keystore__location": str(self.directory / "broker.pem"),
            "ssl__truststore__location": str(self.directory / "ca.pem"),
            "sasl__mechanism__inter__broker__protocol": "SCRAM-SHA-256",
            "sasl__inter__broker__username": "broker",
            "sasl__inter__broker__password": PASSWORD,
            "super__users": "User:admin",
        }
        for broker in self.brokers:
            ports = {"PLAINTEXT": broker.open_port, "SASL_SSL": broker.closed_port}
            stated = [f"{name}://127.0.0.1:{ports[name]}" for name in listeners]
            more = secured if "SASL_SSL" in listeners else {}
            broker.configure(listeners=stated, **more, **settings)

    def roll(self, *connection: str) -> None:
        """Restart one broker after the other, as the page on clusters says."""
        for broker in self.brokers:
            broker.restart()
            wait_until(lambda: self.is_whole(connection), "all replicas in sync", PATIENCE, 0.3)

    def is_whole(self, connection: tuple[str, ...]) -> bool:
        status = qbus("cluster", "status", *connection)
        return len(status["brokers"]) == NODES and not (
            status["under_replicated"] or status["offline"]
        )


def qbus(*arguments: str) -> Any:
    """Run a command that must succeed, with what it prints as JSON."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("QBUS_")}
    done = subprocess.run(
        [sys.executable, "-m", "qbus", *arguments, "--json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    skip_because_of(zookeeper_process.missing())
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeperProcess())
        made = Cluster(tmp_path, f"{zookeeper.bootstrap}/qbus")
        made.configure(("PLAINTEXT",))
        for broker in made.brokers:
            stack.enter_context(broker)
        yield made


def test_a_cluster_becomes_a_closed_one_under_load(cluster: Cluster) -> None:
    in_the_clear = ("--bootstrap", cluster.open)
    qbus("topic", "create", "orders", "--partitions", "3", *in_the_clear)
    loads = [load := Load(cluster.open, "orders", 0.02)]
    load.start()

    both = ("PLAINTEXT", "SASL_SSL")
    everybody = {"allow__everyone__if__no__acl__found": True}
    cluster.configure(both, inter__broker__listener__name="PLAINTEXT", **everybody)
    cluster.roll(*in_the_clear)
    first = ("--command-config", cluster.file("broker"))
    for user in ("admin", "shop", "billing"):
        qbus("user", "add", user, "--password", PASSWORD, *first)
    admin = ("--command-config", cluster.file("admin"))
    everything = ["--topic", "*", "--group", "*", "--transactional-id", "*", "--cluster"]
    allow = ("acl", "add", "--operation", "all", *everything, *admin, "--principal")
    qbus(*allow, "User:*")
    shop, billing = ("--principal", "User:shop"), ("--principal", "User:billing")
    qbus("acl", "add", *shop, "--producer", "--topic", "orders", *admin)
    qbus("acl", "add", *billing, "--consumer", "--topic", "orders", "--group", "reader", *admin)

    cluster.configure(both, inter__broker__listener__name="SASL_SSL")
    cluster.roll(*admin)
    loads.append(load := Load(cluster.closed, "orders", 0.02, cluster.properties("shop")))
    load.start()
    wait_until(lambda: load.acknowledged, "a record of who logs in", PATIENCE)

    qbus(*allow, "User:ANONYMOUS")
    qbus("acl", "remove", "--principal", "User:*", *admin)
    time.sleep(2.0)
    loads[0].stop()

    cluster.configure(("SASL_SSL",))
    cluster.roll(*admin)
    qbus("acl", "remove", "--principal", "User:ANONYMOUS", *admin)
    time.sleep(2.0)
    load.stop()
    assert [one.failed for one in loads] == [[], []]
    written = sorted(number for one in loads for number in one.acknowledged)
    properties = cluster.properties("billing")
    assert sorted(read_all(cluster.closed, "orders", len(written), properties)) == written
