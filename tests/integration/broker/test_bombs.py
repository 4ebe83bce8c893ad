"""Batches that are small on the wire and enormous in memory: refused, with bounded memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from qbus.errors import ErrorCode
from qbus.records import Compression, build_batch
from qbus.wire import ApiKey
from qbus.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from qbus.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.bombs import DELAY_HEADER, DELAYED, batch_of_headers, large_batch, swarm
from tests.support.broker_process import BrokerProcess
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.integration

MIB = 1 << 20
PARTITIONS = 20
MOST_GROWN_MB = 200
"""Two batches of 16 MiB at a time, the pieces that they are put together from, and the codecs."""

KINDS = {
    "delayed": {"qbus.delay.enable": "true"},
    "compacted": {"cleanup.policy": "compact"},
    "recompressed": {"compression.type": "snappy"},
}


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port) as raw:
        yield raw


@pytest.fixture(scope="module", autouse=True)
def topics(broker: BrokerProcess) -> None:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=f"bombs-{name}",
                num_partitions=PARTITIONS,
                replication_factor=1,
                configs=[
                    CreatableTopicConfig(name=key, value=value) for key, value in pairs.items()
                ],
            )
            for name, pairs in KINDS.items()
        ],
        timeout_ms=10_000,
    )
    with RawClient(broker.port) as raw:
        answer = raw.ask(ApiKey.CREATE_TOPICS, 5, request)
    assert [one.error_code for one in answer.topics] == [0] * len(KINDS)


def produce(client: RawClient, kind: str, *batches: bytes) -> list[tuple[int, int]]:
    """Produce a batch to each of the first partitions: error codes and offsets."""
    data = [PartitionProduceData(index=i, records=one) for i, one in enumerate(batches)]
    topic = TopicProduceData(name=f"bombs-{kind}", partition_data=data)
    request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[topic])
    answers = client.ask(ApiKey.PRODUCE, 9, request).responses[0].partition_responses
    return [(int(one.error_code), int(one.base_offset)) for one in answers]


def peak_mb(broker: BrokerProcess) -> float:
    """The most memory that the process had so far."""
    for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1e3
    raise AssertionError("the system does not say")


REFUSED = (ErrorCode.MESSAGE_TOO_LARGE, -1)


@pytest.mark.parametrize("kind", KINDS)
def test_bombs_are_refused_with_bounded_memory(
    broker: BrokerProcess, client: RawClient, kind: str
) -> None:
    honest = bytes(build_batch([(b"k", b"v", (), 1_700_000_000_000)]))
    before = peak_mb(broker)
    [(_, first)] = produce(client, kind, honest)
    for codec in (Compression.GZIP, Compression.LZ4, Compression.ZSTD):
        bomb = large_batch(codec, 40 * MIB)
        assert len(bomb) < 600_000
        assert produce(client, kind, bomb) == [REFUSED], codec
    bomb = large_batch(Compression.GZIP, 40 * MIB, DELAYED)
    assert produce(client, kind, *[bomb] * PARTITIONS) == [REFUSED] * PARTITIONS
    if kind != "recompressed":  # where no record is looked at
        assert produce(client, kind, batch_of_headers(4_000_000)) == [REFUSED]
        assert produce(client, kind, *[batch_of_headers(1_000_000)] * 10) == [REFUSED] * 10
    if kind == "delayed":
        assert produce(client, kind, swarm(1_000_000, headers=[DELAY_HEADER])) == [REFUSED]
    assert produce(client, kind, honest) == [(0, first + 1)]
    assert peak_mb(broker) < before + MOST_GROWN_MB
    with RawClient(broker.port) as other:
        assert other.is_served()
