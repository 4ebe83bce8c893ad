"""The broker as a process: how it starts, what it says, how it stops, what it still knows then."""

import json
import platform
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from qbus import Admin, Consumer, Producer, __version__
from qbus.clients.types import TopicPartition
from qbus.errors import ErrorCode
from qbus.records import build_batch
from qbus.wire import ApiKey
from qbus.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from qbus.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from qbus.wire.messages.init_producer_id import InitProducerIdRequest
from qbus.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tests.support.raw_client import RawClient, frame

pytestmark = pytest.mark.integration

TOPIC = "process"


def create_topic(client: RawClient) -> None:
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    assert client.ask(ApiKey.CREATE_TOPICS, 5, request).topics[0].error_code == 0


def produce(
    client: RawClient, producer_id: int, epoch: int, sequence: int
) -> PartitionProduceResponse:
    batch = build_batch(
        [(None, b"value", (), time.time_ns() // 1_000_000)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    data = TopicProduceData(
        name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)]
    )
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
    response = client.ask(ApiKey.PRODUCE, 9, request)
    answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
    return answer


def long_poll(max_wait_ms: int) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1000,
        topics=[FetchTopic(topic=TOPIC, partitions=[partition])],
    )


def start_and_fail(*arguments: str) -> str:
    """Run a broker that cannot start; what it says."""
    command = [sys.executable, "-m", "qbus", "broker", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "qbus: " in done.stderr
    return done.stderr


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path):
        said = start_and_fail("--data-dir", str(tmp_path), "--listen", f"127.0.0.1:{free_port()}")
        assert "another broker has it open" in said
        assert str(tmp_path) in said


def test_a_directory_of_another_broker_is_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, "--node-id", "1"):
        pass
    said = start_and_fail(
        "--data-dir", str(tmp_path), "--listen", f"127.0.0.1:{free_port()}", "--node-id", "2"
    )
    assert "belongs to broker 1" in said


def test_the_log_may_be_json(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, "--json") as broker:
        broker.stop()
        lines = [json.loads(line) for line in broker.log_text().splitlines()]
        assert all({"time", "level", "logger", "message"} <= set(line) for line in lines)
        assert any("listens on" in line["message"] for line in lines)
        assert {line["level"] for line in lines} <= {"INFO", "WARNING"}


def test_metrics_are_served(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with BrokerProcess(tmp_path, "--metrics-listen", address) as broker:
        with RawClient(broker.port) as client:
            create_topic(client)
            assert produce(client, -1, -1, -1).error_code == ErrorCode.NONE
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    assert 'qbus_request_seconds_count{api="PRODUCE"} 1.0' in text
    assert "qbus_partitions 1.0" in text
    assert "qbus_request_failures_total 0.0" in text


def scraped(address: str) -> dict[tuple[str, ...], float]:
    """The samples by name and values of labels, as Prometheus' own parser reads them."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_tell_of_topics_groups_and_what_runs(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with BrokerProcess(tmp_path, "--metrics-listen", address) as broker:
        with Producer(broker.bootstrap) as producer:
            for number in range(10):
                producer.send("orders", b"%d" % number).result(30)
            producer.send("visits", b"1").result(30)
        with Consumer(broker.bootstrap) as consumer:
            consumer.assign([("orders", 0, 0)])
            assert next(iter(consumer)).value == b"0"
        with Admin(broker.bootstrap) as admin:
            admin.alter_group_offsets("readers", {TopicPartition("orders", 0): 4})
        samples = scraped(address)
        assert samples["qbus_topic_produced_messages_total", "orders"] == 10
        assert samples["qbus_topic_produced_messages_total", "visits"] == 1
        assert samples["qbus_topic_fetched_bytes_total", "orders"] > 0
        assert samples["qbus_topic_fetched_bytes_total", "visits"] == 0
        assert samples["qbus_group_lag", "readers", "orders"] == 6
        assert samples["qbus_group_lag_unknown_partitions",] == 0
        build = next(name for name in samples if name[0] == "qbus_build_info")
        assert {__version__, platform.python_version()} < set(build)


def test_the_time_that_a_fetch_waits_is_not_counted(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with BrokerProcess(tmp_path, "--metrics-listen", address) as broker:
        with RawClient(broker.port) as client:
            create_topic(client)
            client.send(frame(ApiKey.FETCH, 11, long_poll(1_500)))
            started = time.monotonic()
            assert client.receive_frame() is not None
            assert time.monotonic() - started > 1.2
        samples = scraped(address)
    assert samples["qbus_request_seconds_count", "FETCH"] == 1
    assert samples["qbus_request_seconds_sum", "FETCH"] < 1.0


def test_a_stop_answers_those_who_wait_and_marks_the_logs_as_clean(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, RawClient(broker.port) as client:
        create_topic(client)
        client.send(frame(ApiKey.FETCH, 11, long_poll(60_000)))
        assert client_is_waiting(client)
        started = time.monotonic()
        broker.stop()
        assert time.monotonic() - started < 20, "a long poll does not hold up the stop"
        assert client.receive_frame() is not None, "it is answered instead"
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def client_is_waiting(client: RawClient) -> bool:
    client.sock.settimeout(0.3)
    try:
        client.sock.recv(1)
    except TimeoutError:
        client.sock.settimeout(20)
        return True
    return False


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_an_idempotent_producer_goes_on_where_it_was(tmp_path: Path, how: str) -> None:
    with BrokerProcess(tmp_path) as broker:
        with RawClient(broker.port) as client:
            create_topic(client)
            identity = client.ask(
                ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None)
            )
            first = produce(client, identity.producer_id, identity.producer_epoch, 0)
            assert (first.error_code, first.base_offset) == (ErrorCode.NONE, 0)
        getattr(broker, how)()
        broker.start()
        with RawClient(broker.port) as client:
            again = produce(client, identity.producer_id, identity.producer_epoch, 0)
            assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
            second = produce(client, identity.producer_id, identity.producer_epoch, 1)
            assert (second.error_code, second.base_offset) == (ErrorCode.NONE, 1)
            gap = produce(client, identity.producer_id, identity.producer_epoch, 5)
            assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            other = client.ask(
                ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None)
            )
            assert other.producer_id > identity.producer_id
