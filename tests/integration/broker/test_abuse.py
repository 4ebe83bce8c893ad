"""Input that no honest client sends: refused, at a bounded cost, and the others never notice."""

import os
import random
import resource
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from struct import pack

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qbus.errors import ErrorCode
from qbus.records import build_batch
from qbus.wire import API, ApiKey, Struct
from qbus.wire.messages.api_versions import ApiVersionsRequest
from qbus.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from qbus.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from qbus.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from qbus.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.broker_process import BrokerProcess
from tests.support.raw_client import RawClient, frame
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

TOPIC = "abuse"
_CONTROL = 0x20


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port) as raw:
        yield raw


@pytest.fixture(autouse=True)
def others_are_served(broker: BrokerProcess) -> Iterator[None]:
    """A client that was connected before the test is still answered after it."""
    with RawClient(broker.port) as honest:
        assert honest.is_served()
        yield
        assert honest.is_served()


@pytest.fixture(scope="module")
def topic(broker: BrokerProcess) -> str:
    with RawClient(broker.port) as raw:
        assert create(raw, TOPIC) == ErrorCode.NONE
    return TOPIC


def create(client: RawClient, name: str) -> int:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)],
        timeout_ms=10_000,
    )
    return int(client.ask(ApiKey.CREATE_TOPICS, 5, request).topics[0].error_code)


def produce(
    client: RawClient, records: bytes | bytearray, topic: str = TOPIC, version: int = 9
) -> int:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=0, records=records)]
            )
        ],
    )
    response = client.ask(ApiKey.PRODUCE, version, request)
    return int(response.responses[0].partition_responses[0].error_code)


def batch(*values: bytes) -> bytearray:
    return build_batch([(None, value, (), 1_700_000_000_000) for value in values])


def resident_mb(broker: BrokerProcess) -> float:
    return float(psutil.Process(broker.pid).memory_info().rss) / 1e6


# Frames


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 2**31 - 1, 101 * 2**20])
def test_an_impossible_length_closes_the_connection(client: RawClient, length: int) -> None:
    client.send(pack(">i", length) + b"and then some")
    assert client.is_closed()


def test_an_unknown_api_closes_the_connection(client: RawClient) -> None:
    client.send_frame(pack(">hhih", 999, 0, 1, -1))
    assert client.is_closed()


def test_an_unknown_version_closes_the_connection(client: RawClient) -> None:
    client.send_frame(pack(">hhih", ApiKey.METADATA, 99, 1, -1))
    assert client.is_closed()


@pytest.mark.parametrize("version", [-1, 99])
def test_an_unknown_version_of_api_versions_is_answered(client: RawClient, version: int) -> None:
    client.send_frame(pack(">hhih", ApiKey.API_VERSIONS, version, 7, -1))
    answer = client.receive_frame()
    assert answer is not None
    assert answer[:6] == pack(">ih", 7, ErrorCode.UNSUPPORTED_VERSION)
    low, high = API[ApiKey.API_VERSIONS].min_version, API[ApiKey.API_VERSIONS].max_version
    assert pack(">hhh", ApiKey.API_VERSIONS, low, high) in answer
    assert client.is_served()


def test_bytes_of_another_protocol_close_the_connection(client: RawClient) -> None:
    client.send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + bytes(100))
    assert client.is_closed()


@pytest.mark.parametrize("count", [2**31 - 1, 1_000_000, -2])
def test_a_lying_count_closes_the_connection(client: RawClient, count: int) -> None:
    client.send_frame(pack(">hhihi", ApiKey.METADATA, 1, 1, -1, count))
    assert client.is_closed()


def test_every_truncation_of_a_request_closes_the_connection(
    broker: BrokerProcess, topic: str
) -> None:
    whole = frame(ApiKey.FETCH, 12, fetch_request(topic))[4:]
    for size in range(1, len(whole)):
        with RawClient(broker.port) as client:
            client.send_frame(whole[:size])
            assert client.is_closed(), size


def fetch_request(topic: str) -> Struct:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1000,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(
    key=st.sampled_from([*ApiKey]),
    version=st.integers(0, 13),
    noise=st.binary(max_size=200),
)
def test_random_bodies_never_stop_the_broker(
    broker: BrokerProcess, key: ApiKey, version: int, noise: bytes
) -> None:
    with RawClient(broker.port) as client:
        client.send_frame(pack(">hhih", key, version, 1, -1) + noise)
    assert broker.alive


def test_a_client_id_that_is_no_text_closes_the_connection(client: RawClient) -> None:
    client.send_frame(pack(">hhih", ApiKey.METADATA, 1, 1, 2) + b"\xff\xfe" + pack(">i", 0))
    assert client.is_closed()


def test_unknown_tags_are_skipped(client: RawClient) -> None:
    header = pack(">hhih", ApiKey.API_VERSIONS, 3, 5, -1) + b"\x01\x63\x03abc"
    client.send_frame(header + b"\x04raw\x021" + b"\x02\x40\x01x\x41\x00")
    answer = client.receive_frame()
    assert answer is not None
    assert answer[:6] == pack(">ih", 5, ErrorCode.NONE)


def test_software_names_are_checked(client: RawClient) -> None:
    request = ApiVersionsRequest(client_software_name="bad name!", client_software_version="1")
    response = client.ask(ApiKey.API_VERSIONS, 3, request)
    assert response.error_code == ErrorCode.INVALID_REQUEST


# Names


@pytest.mark.parametrize(
    "name", ["..", ".", "", "../../etc", "a/b", "/abs", "a\0b", "x" * 250, "spa ce", "ü"]
)
def test_topic_names_stay_inside_the_directory(
    broker: BrokerProcess, client: RawClient, name: str
) -> None:
    before = sorted(path.name for path in broker.data_dir.parent.iterdir())
    assert create(client, name) == ErrorCode.INVALID_TOPIC_EXCEPTION
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
    )
    answer = client.ask(ApiKey.METADATA, 4, asked)
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert ErrorCode(produce(client, batch(b"x"), name)) in {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert sorted(path.name for path in broker.data_dir.parent.iterdir()) == before


# Records


def flipped(data: bytearray, position: int) -> bytearray:
    data[position] ^= 1
    return data


@pytest.mark.parametrize("position", [17, 21, 30, 57, 61, -1])
def test_a_flipped_bit_is_refused(client: RawClient, topic: str, position: int) -> None:
    assert produce(client, flipped(batch(b"value"), position)) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_another_magic_is_refused(client: RawClient, topic: str, magic: int) -> None:
    data = batch(b"value")
    data[16] = magic
    assert ErrorCode(produce(client, data)) in {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }


def test_no_records_at_all_are_refused(client: RawClient, topic: str) -> None:
    code = ErrorCode(produce(client, b""))
    assert code in {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}


def test_two_batches_are_refused(client: RawClient, topic: str) -> None:
    assert produce(client, batch(b"1") + batch(b"2")) == ErrorCode.INVALID_RECORD


def test_a_truncated_batch_is_refused(client: RawClient, topic: str) -> None:
    data = batch(b"value")
    for size in (1, 12, 60, 61, len(data) - 1):
        assert produce(client, data[:size]) == ErrorCode.CORRUPT_MESSAGE


def test_a_control_batch_is_refused(client: RawClient, topic: str) -> None:
    from qbus.records import crc32c

    data = batch(b"value")
    data[22] |= _CONTROL
    data[17:21] = pack(">I", crc32c(data[21:]))
    assert produce(client, data) == ErrorCode.INVALID_RECORD


def test_an_oversized_batch_is_refused(client: RawClient, topic: str) -> None:
    assert produce(client, batch(os.urandom(2 << 20))) == ErrorCode.MESSAGE_TOO_LARGE


def test_no_refused_record_was_stored(client: RawClient, topic: str) -> None:
    assert produce(client, batch(b"first")) == ErrorCode.NONE
    response = client.ask(ApiKey.FETCH, 11, fetch_request(topic))
    assert response.responses[0].partitions[0].high_watermark == 1


# Many and slow


def raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def test_five_thousand_idle_connections_cost_little(
    broker: BrokerProcess, record_property: Callable[[str, object], None]
) -> None:
    raise_file_limit()
    before = resident_mb(broker)
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(broker.port)) for _ in range(5000)]
        assert random.choice(clients).is_served()
        assert clients[-1].is_served()
        each = (resident_mb(broker) - before) * 1e6 / len(clients)
    record_property("bytes_per_idle_connection", round(each))
    print(f"{each:.0f} bytes for each idle connection")
    assert each < 20_000


def test_five_hundred_slow_requests_cost_what_they_sent_and_time_out(
    broker: BrokerProcess,
) -> None:
    raise_file_limit()
    before = resident_mb(broker)
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(broker.port)) for _ in range(500)]
        for client in clients:
            client.send(pack(">i", 99 << 20) + b"slowly")
        with RawClient(broker.port) as honest:
            assert honest.is_served()
        assert resident_mb(broker) - before < 50
        assert all(client.is_closed() for client in clients)


def test_a_client_that_never_reads_costs_bounded_memory(broker: BrokerProcess, topic: str) -> None:
    before = resident_mb(broker)
    with RawClient(broker.port, timeout=1.0, receive_buffer=4096) as deaf:
        request = frame(ApiKey.METADATA, 1, MetadataRequest(topics=None))
        sent = 0
        try:
            while sent < 200_000_000:
                deaf.send(request * 1000)
                sent += 1000 * len(request)
        except TimeoutError:
            pass
        assert sent < 100_000_000, "the broker stops reading from who does not read"
        with RawClient(broker.port) as honest:
            assert honest.is_served()
        assert resident_mb(broker) - before < 50


def test_memory_comes_back_after_large_requests(broker: BrokerProcess, topic: str) -> None:
    before = resident_mb(broker)
    for _ in range(5):
        with RawClient(broker.port) as client:
            produce(client, batch(os.urandom(30 << 20)))
    wait_until(lambda: resident_mb(broker) - before < 40, "memory given back")


def test_no_other_directory_was_created(broker: BrokerProcess, tmp_path: Path) -> None:
    names = {path.name for path in broker.data_dir.iterdir() if path.is_dir()}
    assert names == {f"{TOPIC}-0"}
