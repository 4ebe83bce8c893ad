"""Every client produces with all that it knows, and what it sent comes back byte for byte."""

import time
from collections.abc import Sequence

import pytest

from qbus.errors import ErrorCode

from .clients import Client, ClientError
from .records import START_MS, Record, Stored, numbered
from .selection import clients_with, with_each_compression

pytestmark = pytest.mark.compat


def assert_stored(found: Sequence[Stored], sent: Sequence[Record]) -> None:
    """Check offsets from 0 on, keys, values, headers, and the timestamps that were given."""
    assert [one.offset for one in found] == list(range(len(sent)))
    for one, record in zip(found, sent, strict=True):
        expected = record
        if record.timestamp is None:
            expected = record._replace(timestamp=one.record.timestamp)
        assert one.record == expected


@with_each_compression("produce", "consume")
def test_round_trip(client: Client, compression: str, topic: str, reference: Client) -> None:
    sent = client.sendable
    client.produce(topic, sent, compression=compression)
    assert_stored(client.consume(topic, 0, 0, len(sent)), sent)
    assert_stored(reference.consume(topic, 0, 0, len(sent)), sent)


@with_each_compression("consume")
def test_reads_what_others_compressed(
    client: Client, compression: str, topic: str, reference: Client
) -> None:
    sent = client.readable
    reference.produce(topic, sent, compression=compression)
    assert_stored(client.consume(topic, 0, 0, len(sent)), sent)


OTHER_CODEC = {
    "none": "zstd",
    "gzip": "uncompressed",
    "snappy": "gzip",
    "lz4": "snappy",
    "zstd": "lz4",
}


@with_each_compression("produce", "consume")
def test_a_topic_with_a_codec_of_its_own(
    client: Client, compression: str, name: str, reference: Client
) -> None:
    """The broker compresses anew; no client sees a difference."""
    reference.create_topic(name, config={"compression.type": OTHER_CODEC[compression]})
    sent = client.sendable
    client.produce(name, sent, compression=compression)
    assert_stored(client.consume(name, 0, 0, len(sent)), sent)
    assert_stored(reference.consume(name, 0, 0, len(sent)), sent)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@clients_with("produce")
def test_acks(client: Client, acks: str, topic: str, reference: Client) -> None:
    sent = client.sendable
    offsets = client.produce(topic, sent, acks=acks)
    if offsets is not None and acks != "0":
        assert offsets == list(range(len(sent)))
    assert_stored(reference.consume(topic, 0, 0, len(sent)), sent)


@with_each_compression("produce")
def test_idempotence(client: Client, compression: str, topic: str, reference: Client) -> None:
    sent = [record._replace(timestamp=None) for record in numbered(500)]
    client.produce(topic, sent, compression=compression, idempotent=True)
    client.produce(topic, sent, compression=compression, idempotent=True)
    assert_stored(reference.consume(topic, 0, 0, 1000), [*sent, *sent])


@pytest.mark.parametrize("size", [900_000, 5_000_000])
@clients_with("produce", "consume")
def test_large_record(client: Client, size: int, name: str, reference: Client) -> None:
    reference.create_topic(name, config={"max.message.bytes": "10000000"})
    sent = [Record(b"large", b"x" * size), Record(b"small", b"behind it")]
    client.produce(name, sent)
    assert_stored(client.consume(name, 0, 0, 2), sent)


@clients_with("produce")
def test_too_large_record_is_refused(client: Client, name: str, reference: Client) -> None:
    reference.create_topic(name, config={"max.message.bytes": "1000"})
    with pytest.raises(ClientError) as refusal:
        client.produce(name, [Record(None, b"x" * 2000)])
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE
    client.produce(name, [Record(None, b"small")])
    assert reference.bounds(name, 0) == (0, 1)


# kcat cannot give a timestamp.
@clients_with("produce", but_not=("kcat",))
def test_timestamp_out_of_bounds_is_refused(client: Client, name: str, reference: Client) -> None:
    reference.create_topic(name, config={"message.timestamp.before.max.ms": "60000"})
    with pytest.raises(ClientError) as refusal:
        client.produce(name, [Record(None, b"old", (), START_MS)])
    assert refusal.value.code == ErrorCode.INVALID_TIMESTAMP
    assert reference.bounds(name, 0) == (0, 0)


@clients_with("produce")
def test_partitions_are_apart(client: Client, name: str, reference: Client) -> None:
    reference.create_topic(name, 3)
    for partition in range(3):
        client.produce(name, [Record(None, b"%d" % partition)], partition=partition)
    for partition in range(3):
        (found,) = reference.consume(name, partition, 0, 1)
        assert found.record.value == b"%d" % partition


@clients_with("produce")
def test_broker_sets_timestamps_when_told_to(client: Client, name: str, reference: Client) -> None:
    reference.create_topic(name, config={"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    client.produce(name, client.sendable, compression=client.compressions[-1])
    after = int(time.time() * 1000)
    for found in reference.consume(name, 0, 0, len(client.sendable)):
        assert found.record.timestamp is not None
        assert before <= found.record.timestamp <= after


@clients_with("produce")
def test_producing_creates_the_topic(client: Client, name: str, reference: Client) -> None:
    client.produce(name, [Record(None, b"first")])
    (found,) = reference.consume(name, 0, 0, 1)
    assert found.record.value == b"first"
