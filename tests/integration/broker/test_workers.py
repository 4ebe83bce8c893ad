"""Several brokers on one machine: what clients, operators and the file system see of them."""

import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path
from urllib.error import HTTPError
from uuid import uuid4

import psutil
import pytest
from confluent_kafka import Consumer as TheirConsumer
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from qbus import Admin, Consumer, Producer
from qbus.errors import ApiError, ErrorCode
from tests.support.broker_process import BrokerProcess
from tests.support.freezing_main import PROGRAM, VARIABLE
from tests.support.ports import free_port
from tests.support.secure_broker import certificates
from tests.support.waiting import wait_until
from tests.support.workers_process import WorkersProcess
from tests.support.zookeeper_process import ZooKeeperProcess

pytestmark = pytest.mark.integration


def fill(bootstrap: str, topic: str, partitions: int, count: int = 200) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic(topic, partitions=partitions)
    with Producer(bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % partitions)


def numbers(bootstrap: str, topic: str, partitions: int, count: int) -> list[int]:
    with Consumer(bootstrap) as consumer:
        consumer.assign([(topic, index, 0) for index in range(partitions)])
        found = []
        for record in consumer:
            found.append(int(record.value or b""))
            if len(found) == count:
                return sorted(found)
    raise AssertionError("the consumer has ended")


def leaders(bootstrap: str, topic: str) -> list[int]:
    with Admin(bootstrap) as admin:
        return [one.leader for one in admin.describe_topic(topic).partitions]


def test_one_address_leads_to_all_and_partitions_are_spread(tmp_path: Path) -> None:
    with WorkersProcess(tmp_path, 2) as broker:
        with Admin(broker.bootstrap) as admin:
            nodes = admin.describe_cluster().nodes
        assert [(node.id, node.port) for node in nodes] == [
            (1, broker.port_of(1)),
            (2, broker.port_of(2)),
        ]
        fill(broker.bootstrap, "orders", 4)
        assert sorted(leaders(broker.bootstrap, "orders")) == [1, 1, 2, 2]
        assert numbers(broker.bootstrap, "orders", 4, 200) == list(range(200))
        assert len(list(tmp_path.glob("orders-*"))) == 2
        assert len(list((tmp_path / "workers/2").glob("orders-*"))) == 2


def test_a_client_from_elsewhere_and_its_group(tmp_path: Path) -> None:
    with WorkersProcess(tmp_path, 3) as broker:
        fill(broker.bootstrap, "orders", 6)
        consumer = TheirConsumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "theirs",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["orders"])
        found: list[int] = []
        while len(found) < 200:
            found += [int(message.value() or b"") for message in consumer.consume(100, 10)]
        consumer.close()
        assert sorted(found) == list(range(200))


def test_all_is_there_after_a_stop_in_order(tmp_path: Path) -> None:
    with WorkersProcess(tmp_path, 2) as broker:
        fill(broker.bootstrap, "orders", 4)
        broker.restart()
        assert numbers(broker.bootstrap, "orders", 4, 200) == list(range(200))
        broker.stop()
        log = broker.log_text()
    assert "closed cleanly" not in log, "logs were closed in order"
    assert not any("Traceback" in line for line in log.splitlines())


def test_ctrl_c_stops_all_in_order(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "qbus",
        "broker",
        "--workers",
        "2",
        "--data-dir",
        str(tmp_path),
    ]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        assert any("brokers listen on" in line for line in process.stderr), "it has ended"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it, to the whole group
        _, rest = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0, rest
    assert "stopping: finishing what was asked" in rest


@pytest.mark.parametrize("number", [1, 2])
def test_a_worker_that_dies_is_started_again(tmp_path: Path, number: int) -> None:
    with WorkersProcess(tmp_path, 2) as broker:
        fill(broker.bootstrap, "orders", 4)
        before = broker.worker_pid(number)
        broker.kill_worker(number)
        wait_until(
            lambda: broker.serves() and broker.worker_pid(number) != before, "another process"
        )
        assert numbers(broker.bootstrap, "orders", 4, 200) == list(range(200))
        assert (
            f"broker {number} has ended (SIGKILL): starting it again at once" in broker.log_text()
        )


def test_a_worker_that_stands_still_for_longer_than_its_session_is_left_out_and_starts_anew(
    tmp_path: Path,
) -> None:
    freeze = {VARIABLE: "8"}
    session = ("-o", "zookeeper.session.timeout.ms=2000")
    broker = WorkersProcess(tmp_path, 2, *session, env=freeze)
    broker.program = PROGRAM
    with broker:
        fill(broker.bootstrap, "orders", 4)
        frozen = broker.worker_pid(2)
        os.kill(frozen, signal.SIGUSR1)
        with Admin(broker.bootstrap) as admin:
            wait_until(
                lambda: [node.id for node in admin.describe_cluster().nodes] == [1],
                "a cluster without it",
            )
        assert psutil.pid_exists(frozen), "its process lives"
        wait_until(lambda: broker.serves() and broker.worker_pid(2) != frozen, "a new one")
        assert numbers(broker.bootstrap, "orders", 4, 200) == list(range(200))
        log = broker.log_text()
    assert "its process lives, and has said nothing for the session time-out" in log
    assert "nothing is acknowledged until it is known" in log
    assert "broker 2 has ended (exit code 1): starting it again at once" in log


def test_the_hub_is_started_again_and_the_workers_with_it(tmp_path: Path) -> None:
    with WorkersProcess(tmp_path, 2) as broker:
        fill(broker.bootstrap, "orders", 4)
        before = broker.hub_pid()
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: broker.log_text().count("serves again") >= 2, "both serve again")
        wait_until(lambda: sorted(leaders(broker.bootstrap, "orders")) == [1, 1, 2, 2], "leaders")
        assert broker.hub_pid() != before
        assert numbers(broker.bootstrap, "orders", 4, 200) == list(range(200))


def test_nothing_outlives_the_supervisor(tmp_path: Path) -> None:
    with WorkersProcess(tmp_path, 2) as broker:
        fill(broker.bootstrap, "orders", 4)
        broker.kill()
        broker.wait_for_children()
        broker.start()
        assert numbers(broker.bootstrap, "orders", 4, 200) == list(range(200))


def test_a_worker_that_cannot_start_stops_the_others_and_says_why(tmp_path: Path) -> None:
    broker = WorkersProcess(tmp_path, 2)
    with BrokerProcess(tmp_path / "other", port=broker.port_of(2)):
        done = subprocess.run(
            broker.command(), capture_output=True, text=True, timeout=30, check=False
        )
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{broker.port_of(2)}" in done.stderr
    assert "broker 2 could not start" in done.stderr
    assert "Traceback" not in done.stderr


def test_data_that_a_broker_uses_are_not_used_twice(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path):
        done = subprocess.run(
            WorkersProcess(tmp_path, 2).command(),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.returncode == 1
    assert "another broker has it open" in done.stderr


def test_replicas_of_a_partition_need_machines(tmp_path: Path) -> None:
    with WorkersProcess(tmp_path, 2) as broker, Admin(broker.bootstrap) as admin:
        with pytest.raises(ApiError, match="2 replicas need as many machines") as refused:
            admin.create_topic("orders", partitions=1, replication_factor=2)
        assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def scrape(address: str) -> dict[tuple[str, str | None], float]:
    """The values of samples by their names and brokers, read as strictly as Prometheus might."""
    request = urllib.request.Request(
        f"http://{address}/metrics", headers={"Accept": "application/openmetrics-text"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, sample.labels.get("broker")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_of_all_at_one_address(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with WorkersProcess(tmp_path, 2, "--metrics-listen", address) as broker:
        fill(broker.bootstrap, "orders", 4)
        broker.kill_worker(2)
        wait_until(lambda: "broker 2 serves again" in broker.log_text(), "broker 2")
        values = scrape(address)
    assert values["qbus_worker_up", "1"] == values["qbus_worker_up", "2"] == 1
    assert values["qbus_worker_restarts_total", "1"] == 0
    assert values["qbus_worker_restarts_total", "2"] == 1
    assert values["qbus_produced_messages_total", "1"] == 100
    assert values["process_resident_memory_bytes", "1"] > 0
    assert {broker for _, broker in values} == {"1", "2"}


def test_certificates_say_who_may_read_metrics_of_all(tmp_path: Path) -> None:
    made, port = certificates(), free_port()
    settings = {
        "metrics.listen": f"https://127.0.0.1:{port}",
        "authorizer.class.name": "acl",
        "super.users": "User:CN=client;User:ANONYMOUS",
        "ssl.certificate.location": made.server,
        "ssl.key.location": made.server_key,
        "listener.name.metrics.ssl.truststore.location": made.ca,
        "listener.name.metrics.ssl.client.auth": "required",
    }
    options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    with WorkersProcess(tmp_path, 2, *options):
        assert status(port, made.client, made.client_key)[0] == 200
        assert b'qbus_worker_up{broker="2"} 1.0' in status(port, made.client, made.client_key)[1]
        assert status(port, made.server, made.server_key)[0] == 403


def status(port: int, certificate: str, key: str) -> tuple[int, bytes]:
    """What somebody with a certificate is answered who asks for metrics, and with what."""
    context = ssl.create_default_context(cafile=certificates().ca)
    context.load_cert_chain(certificate, key)
    try:
        with urllib.request.urlopen(f"https://localhost:{port}/metrics", context=context) as page:
            return page.status, page.read()
    except HTTPError as error:
        with error:
            return error.code, b""


def test_lines_of_the_log_name_their_process(tmp_path: Path) -> None:
    with WorkersProcess(tmp_path, 2, "--json") as broker:
        broker.stop()
        lines = [json.loads(line) for line in broker.log_text().splitlines()]
    assert {"broker 1", "broker 2", None} <= {line.get("process") for line in lines}


def test_from_one_to_two_and_back(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as alone:
        fill(alone.bootstrap, "orders", 4)
    with WorkersProcess(tmp_path, 2) as broker:
        assert leaders(broker.bootstrap, "orders") == [1, 1, 1, 1]
        assert numbers(broker.bootstrap, "orders", 4, 200) == list(range(200))
        move(broker.bootstrap, {0: 1, 1: 2, 2: 1, 3: 2})
        assert leaders(broker.bootstrap, "orders") == [1, 2, 1, 2]
        assert numbers(broker.bootstrap, "orders", 4, 200) == list(range(200))
    with BrokerProcess(tmp_path) as alone:
        assert "worker 2 is not started, and holds 2 partitions" in alone.log_text()
    with WorkersProcess(tmp_path, 2) as broker:
        move(broker.bootstrap, {1: 1, 3: 1})
    with BrokerProcess(tmp_path) as alone:
        assert numbers(alone.bootstrap, "orders", 4, 200) == list(range(200))
        assert "is not started" not in alone.log_text()


def move(bootstrap: str, targets: dict[int, int]) -> None:
    """Move partitions of the topic; return once they are where they shall be."""
    with Admin(bootstrap) as admin:
        admin.alter_reassignments({("orders", index): [node] for index, node in targets.items()})
        wait_until(lambda: not admin.list_reassignments(), "the end of the moves")


def test_on_zookeeper_replicas_are_on_different_machines(
    tmp_path: Path, zookeeper: ZooKeeperProcess
) -> None:
    servers = f"{zookeeper.bootstrap}/{uuid4()}"
    with (
        WorkersProcess(tmp_path / "a", 2, "--zookeeper", servers) as one,
        WorkersProcess(tmp_path / "b", 2, "--zookeeper", servers, "--node-id", "11"),
        Admin(one.bootstrap) as admin,
    ):
        wait_until(lambda: len(admin.describe_cluster().nodes) == 4, "all to know each other")
        admin.create_topic("orders", partitions=12, replication_factor=2)
        for partition in admin.describe_topic("orders").partitions:
            assert {node > 10 for node in partition.replicas} == {True, False}, "one on each"
        with pytest.raises(ApiError, match="3 replicas need as many machines, there are 2"):
            admin.create_topic("more", partitions=1, replication_factor=3)
        with pytest.raises(ApiError, match=r"brokers \[11, 12\] run on one machine"):
            admin.alter_reassignments({("orders", 0): [11, 12]})
        with Producer(one.bootstrap) as producer:
            for number in range(200):
                producer.send("orders", b"%d" % number, partition=number % 12)
        one.kill_all()
        one.start()
        assert numbers(one.bootstrap, "orders", 12, 200) == list(range(200))
