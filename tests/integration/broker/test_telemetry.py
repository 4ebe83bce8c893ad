"""Metrics that clients push (KIP-714), among the broker's own: those of librdkafka and of Java."""

import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest
from prometheus_client.parser import text_string_to_metric_families

from perf.peers import java, kafka
from qbus import Admin, ConfigKind, Producer
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

INTERVAL_MS = 300
Shown = dict[tuple[str, str], float]


class World:
    """A broker that wants metrics, and what it shows of them."""

    def __init__(self, broker: BrokerProcess, address: str) -> None:
        self.bootstrap = broker.bootstrap
        self._address = address

    def shown(self, client_id: str) -> Shown:
        """The latest values of a client, by metric and attributes."""
        with urllib.request.urlopen(f"http://{self._address}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return {
            (sample.labels["metric"], sample.labels["of"]): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "qbus_client_metric" and sample.labels["client_id"] == client_id
        }


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    address = f"127.0.0.1:{free_port()}"
    with BrokerProcess(
        tmp_path,
        "--metrics-listen",
        address,
        "-o",
        "telemetry.metrics=org.apache.kafka.",
        "-o",
        f"telemetry.push.interval.ms={INTERVAL_MS}",
    ) as broker:
        with Producer(broker.bootstrap) as producer:
            producer.send_many("t", [b"x"] * 10).result(10)
        yield World(broker, address)


def test_librdkafka_pushes_its_metrics_and_takes_them_back_when_it_is_closed(
    world: World,
) -> None:
    consumer = ck.Consumer(
        {
            "bootstrap.servers": world.bootstrap,
            "client.id": "rd",
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["t"])

    def polled() -> Shown:
        consumer.poll(0.1)
        return world.shown("rd")

    shown = wait_until(polled, "what librdkafka pushes")
    assert all(metric.startswith("org.apache.kafka.consumer.") for metric, _ in shown)
    consumer.close()
    wait_until(lambda: not world.shown("rd"), "the last push")


def test_a_client_can_be_told_to_push_nothing_any_more(world: World) -> None:
    producer = ck.Producer({"bootstrap.servers": world.bootstrap, "client.id": "rd"})
    producer.produce("t", b"1")

    def pushed() -> Shown:
        producer.poll(0.1)
        return world.shown("rd")

    wait_until(pushed, "what librdkafka pushes")
    with Admin(world.bootstrap) as admin:
        admin.alter_config(ConfigKind.BROKER, "", set={"telemetry.metrics": "nothing.such"})
    wait_until(lambda: not world.shown("rd"), "the values to be forgotten")
    producer.flush(10)


def test_java_s_client_pushes_its_metrics(world: World) -> None:
    skip_because_of(kafka.missing())
    command = java.command(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server",
        world.bootstrap,
        "--topic",
        "t",
        "--from-beginning",
        "--command-property",
        "client.id=jvm",
        options=java.SHORT_RUN_OPTIONS,
    )
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as client:
        try:
            name = "org.apache.kafka.consumer.fetch.manager.records.consumed.total"
            shown = wait_until(
                lambda: {of: v for (metric, of), v in world.shown("jvm").items() if metric == name},
                "what Java's consumer pushes",
                timeout=60,
            )
            wait_until(lambda: 10.0 in world.shown("jvm").values(), "the records it read", 30)
        finally:
            client.terminate()
    assert shown
