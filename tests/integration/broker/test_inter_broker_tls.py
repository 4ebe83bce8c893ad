"""Brokers that reach one another by a listener of their own, with certificates on both sides."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from tests.support import zookeeper_process
from tests.support.certificates import Certificates
from tests.support.ports import free_port
from tests.support.qbus_cluster import NODES, QbusCluster
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration


class Mutual(QbusCluster):
    """Clients come in plain text, brokers by INSIDE, as the user that their certificate names."""

    def __init__(self, directory: Path, certificates: Certificates) -> None:
        super().__init__(directory / "data")
        self.certificates = certificates
        self.keystores: dict[int, Path] = {}
        for node, broker in self.brokers.items():
            self.keystores[node] = directory / f"broker-{node}.pem"
            self.keystores[node].write_bytes(certificates.server("broker").read_bytes())
            broker.options = (
                *broker.options,
                *("--listen", f"INSIDE://127.0.0.1:{free_port()}"),
                *("-o", "listener.security.protocol.map=INSIDE:SSL"),
                *("-o", "inter.broker.listener.name=INSIDE"),
                *("-o", "listener.name.inside.ssl.client.auth=required"),
                *("-o", f"listener.name.inside.ssl.keystore.location={self.keystores[node]}"),
                *("-o", f"listener.name.inside.ssl.truststore.location={certificates.ca}"),
                *("-o", "listener.name.inside.ssl.principal.mapping.rules=RULE:^CN=(.*)$/$1/"),
                *("-o", "super.users=User:broker"),
                *("-o", "allow.everyone.if.no.acl.found=true"),
                *("-o", "zookeeper.session.timeout.ms=4000"),
            )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mutual]:
    skip_because_of(zookeeper_process.missing())
    directory = tmp_path_factory.mktemp("mutual")
    with Mutual(directory, Certificates(directory / "ca")) as cluster:
        yield cluster


def create(cluster: Mutual, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(topic, 3, 3, config={"min.insync.replicas": "3"})
    wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == 3, "three brokers", 30)
    admin.create_topics([new])[topic].result(30)


def produce(cluster: Mutual, topic: str, count: int) -> None:
    """All is acknowledged by all three replicas."""
    failed: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer = ck.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(topic, b"%d" % number * 1000, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert failed == []


def test_replicas_follow_through_their_own_listener(cluster: Mutual) -> None:
    create(cluster, "replicated")
    produce(cluster, "replicated", 500)
    for broker in cluster.brokers.values():
        assert "INSIDE://" in broker.log_text()
    metadata = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=10)
    ports = {broker.port for broker in cluster.brokers.values()}
    assert {one.port for one in metadata.brokers.values()} == ports  # none of INSIDE


def test_a_registration_has_both(cluster: Mutual) -> None:
    client = KazooClient(cluster.zookeeper_address)
    client.start()
    try:
        data, _ = client.get("/qbus/brokers/ids/1")
    finally:
        client.stop()
        client.close()
    registration = json.loads(data)
    assert registration["listener_security_protocol_map"] == {
        "PLAINTEXT": "PLAINTEXT",
        "INSIDE": "SSL",
    }
    assert (registration["host"], registration["port"]) == ("127.0.0.1", cluster.brokers[1].port)


def test_certificates_are_renewed_one_broker_after_the_other(cluster: Mutual) -> None:
    create(cluster, "renewed")
    for node in NODES:
        cluster.certificates.replace(cluster.keystores[node], cluster.certificates.server("broker"))
        cluster.brokers[node].send_signal(signal.SIGHUP)
        produce(cluster, "renewed", 50)
    cluster.brokers[2].kill()
    cluster.brokers[2].start()
    create(cluster, "after")
    produce(cluster, "after", 50)
