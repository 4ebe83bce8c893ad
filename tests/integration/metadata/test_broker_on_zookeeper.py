"""One broker with its metadata in ZooKeeper, driven by a foreign client."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from qbus.metadata.zookeeper import find_brokers
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until
from tests.support.zookeeper_process import ZooKeeperProcess

from .sessions import kazoo_client

pytestmark = pytest.mark.integration

GROUP, TOPIC, PARTITIONS = "readers", "events", 3
SESSION_MS = 4_000


class Bus:
    """A broker on ZooKeeper, and its clients."""

    def __init__(self, zookeeper: ZooKeeperProcess, directory: Path) -> None:
        self.address = f"{zookeeper.bootstrap}/{uuid4()}/bus"
        self.broker = BrokerProcess(
            directory,
            *("--zookeeper", self.address),
            *("-o", f"zookeeper.session.timeout.ms={SESSION_MS}"),
            *("-o", "zookeeper.connection.timeout.ms=10000"),
            *("-o", "group.initial.rebalance.delay.ms=0"),
            *("--node-id", "7"),
        )

    def create_topic(self, topic: str = TOPIC) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)

    def produce(self, *values: str) -> None:
        self.begin_to_produce(*values)()

    def begin_to_produce(self, *values: str) -> Callable[[], None]:
        """Send records; the result waits for all acknowledgements."""
        errors: list[object] = []
        producer = ck.Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 5})
        for value in values:
            producer.produce(TOPIC, value, on_delivery=lambda error, _: errors.append(error))

        def finish() -> None:
            assert producer.flush(60) == 0
            assert errors == [None] * len(values)

        return finish

    def consume(self, count: int) -> list[str]:
        """Continue reading as the group, and commit."""
        consumer = ck.Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
            }
        )
        consumer.subscribe([TOPIC])
        values: list[str] = []

        def have_come() -> bool:
            messages = consumer.consume(count - len(values), 0.2)
            values.extend(str(m.value() or b"", "utf-8") for m in messages if not m.error())
            return len(values) >= count

        try:
            wait_until(have_come, f"{count} records", 60)
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        return values


@pytest.fixture
def bus(zookeeper: ZooKeeperProcess, tmp_path: Path) -> Iterator[Bus]:
    bus = Bus(zookeeper, tmp_path / "broker")
    with bus.broker:
        yield bus


@pytest.fixture
def znodes(zookeeper: ZooKeeperProcess, bus: Bus) -> Iterator[KazooClient]:
    with kazoo_client(bus.address) as client:
        yield client


def numbers(first: int, after: int) -> list[str]:
    return [str(number) for number in range(first, after)]


def test_znodes_are_as_kafkas_tools_expect(bus: Bus, znodes: KazooClient) -> None:
    bus.create_topic()
    bus.produce(*numbers(0, 30))
    assert sorted(bus.consume(30)) == sorted(numbers(0, 30))

    def read(path: str) -> bytes:
        data, _ = znodes.get(path)
        return bytes(data)

    def document(path: str) -> dict[str, object]:
        parsed = json.loads(read(path))
        assert isinstance(parsed, dict)
        return parsed

    assert len(str(document("/cluster/id")["id"])) == 22
    broker = document("/brokers/ids/7")
    assert broker["endpoints"] == [f"PLAINTEXT://{bus.broker.bootstrap}"]
    assert (broker["host"], broker["port"]) == ("127.0.0.1", bus.broker.port)
    assert document("/controller")["brokerid"] == 7
    assert int(read("/controller_epoch")) == 1
    assert document(f"/brokers/topics/{TOPIC}")["partitions"] == {"0": [7], "1": [7], "2": [7]}
    for partition in range(PARTITIONS):
        state = document(f"/brokers/topics/{TOPIC}/partitions/{partition}/state")
        assert (state["leader"], state["isr"]) == (7, [7])
    committed = [
        int(read(f"/consumers/{GROUP}/offsets/{TOPIC}/{partition}"))
        for partition in znodes.get_children(f"/consumers/{GROUP}/offsets/{TOPIC}")
    ]
    assert sum(committed) == 30, "offsets are plain integers"
    for path in ("/brokers/ids/7", "/controller"):
        assert znodes.exists(path).owner_session_id != 0, "gone with the broker"
    assert asyncio.run(find_brokers(f"zk://{bus.address}", 10)) == [("127.0.0.1", bus.broker.port)]
    assert not (bus.broker.data_dir / "metadata.db").exists()


def test_groups_go_on_where_they_were_after_a_restart(bus: Bus, znodes: KazooClient) -> None:
    bus.create_topic()
    bus.produce(*numbers(0, 20))
    read = bus.consume(20)
    bus.broker.restart()
    bus.produce(*numbers(20, 40))
    read += bus.consume(20)
    bus.broker.kill()
    assert znodes.exists("/brokers/ids/7"), "the session of a broker that was killed goes on"
    bus.broker.start()
    bus.produce(*numbers(40, 60))
    read += bus.consume(20)
    assert sorted(read) == sorted(numbers(0, 60)), "everything once"
    assert int(znodes.get("/controller_epoch")[0]) == 3


def test_an_id_is_given_once(bus: Bus, tmp_path: Path) -> None:
    second = BrokerProcess(
        tmp_path / "second",
        *("--zookeeper", bus.address, "--node-id", "7"),
        *("-o", "zookeeper.session.timeout.ms=1000"),
    )
    done = subprocess.run(second.command(), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "node.id=7: a broker with this id is running" in done.stderr
    bus.create_topic()


def test_without_a_zookeeper_it_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "qbus", "broker", "--data-dir", str(tmp_path)]
    options = ["--listen", "127.0.0.1:0", "-o", "zookeeper.connection.timeout.ms=300"]
    done = subprocess.run(
        [*command, *options, "--zookeeper", "127.0.0.1:1/bus"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "no ZooKeeper answers at 127.0.0.1:1/bus" in done.stderr
    assert "Traceback" not in done.stderr


def test_it_goes_on_when_zookeeper_was_away(server: ZooKeeperProcess, tmp_path: Path) -> None:
    bus = Bus(server, tmp_path / "broker")
    with bus.broker:
        bus.create_topic()
        bus.produce(*numbers(0, 10))
        read = bus.consume(10)
        server.kill()
        wait_until(lambda: "suspended" in bus.broker.log_text(), "the broker notices")
        finish = bus.begin_to_produce(*numbers(10, 20))
        server.start()
        wait_until(lambda: bus.broker.log_text().count(": connected") == 2, "the session to go on")
        finish()
        bus.create_topic("another")
        bus.produce(*numbers(20, 30))
        read += bus.consume(20)
        assert sorted(read) == sorted(numbers(0, 30))


def test_it_starts_anew_when_its_session_has_ended(
    server: ZooKeeperProcess, tmp_path: Path
) -> None:
    """The same process registers again under a new epoch, with all its data."""
    bus = Bus(server, tmp_path / "broker")
    with bus.broker:
        bus.create_topic()
        bus.produce(*numbers(0, 10))
        pid = bus.broker.pid
        bus.broker.send_signal(signal.SIGSTOP)
        with kazoo_client(bus.address) as client:
            wait_until(lambda: client.exists("/brokers/ids/7") is None, "the session to end")
            bus.broker.send_signal(signal.SIGCONT)
            wait_until(lambda: client.exists("/brokers/ids/7"), "the broker to come back")
            assert client.get("/brokers/epochs/7")[1].version == 1
        bus.broker.wait_ready()
        bus.produce(*numbers(10, 20))
        assert sorted(bus.consume(20)) == sorted(numbers(0, 20))
        assert bus.broker.pid == pid


def test_it_waits_for_a_zookeeper_that_forgot_it(server: ZooKeeperProcess, tmp_path: Path) -> None:
    bus = Bus(server, tmp_path / "broker")
    with bus.broker:
        bus.create_topic()
        bus.produce(*numbers(0, 10))
        bus.broker.send_signal(signal.SIGSTOP)
        with kazoo_client(bus.address) as client:
            wait_until(lambda: client.exists("/brokers/ids/7") is None, "the session to end")
        bus.broker.send_signal(signal.SIGCONT)
        wait_until(lambda: "restarting the broker" in bus.broker.log_text(), "the broker to notice")
        server.kill()
        server.start()
        bus.broker.wait_ready()
        bus.produce(*numbers(10, 20))
        assert sorted(bus.consume(20)) == sorted(numbers(0, 20))


def test_a_left_over_registration_does_not_delay_the_start(bus: Bus, znodes: KazooClient) -> None:
    bus.create_topic()
    bus.produce(*numbers(0, 10))
    before = znodes.get("/brokers/ids/7")[1].ephemeralOwner
    bus.broker.kill()
    bus.broker.start()
    assert znodes.get("/brokers/ids/7")[1].ephemeralOwner != before
    assert "waiting for the end of its session" not in bus.broker.log_text()
    bus.produce(*numbers(10, 20))
    assert sorted(bus.consume(20)) == sorted(numbers(0, 20))


def test_a_data_directory_of_kafka_is_refused_untouched(
    zookeeper: ZooKeeperProcess, tmp_path: Path
) -> None:
    (tmp_path / "__cluster_metadata-0").mkdir()
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=abc\nnode.id=1\n")
    before = sorted(tmp_path.rglob("*"))
    address = f"{zookeeper.bootstrap}/{uuid4()}"
    command = [sys.executable, "-m", "qbus", "broker", "--data-dir", str(tmp_path)]

    done = subprocess.run(
        [*command, "--listen", "127.0.0.1:0", "--zookeeper", address],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1, done.stderr
    said = f"{tmp_path} holds data of Apache Kafka (cluster abc), and ZooKeeper at {address} has no"
    assert said in done.stderr
    assert sorted(tmp_path.rglob("*")) == before
    with kazoo_client(zookeeper.bootstrap) as client:
        assert client.get_children(f"/{address.partition('/')[2]}") == []
