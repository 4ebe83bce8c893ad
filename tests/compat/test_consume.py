"""Every client reads from where it asks, by offset or by time, and as records come."""

import threading

import pytest

from .clients import Client
from .records import START_MS, Record, numbered
from .selection import clients_with

pytestmark = pytest.mark.compat

EARLIEST = -2


@clients_with("consume")
def test_starts_in_the_middle_of_a_batch(client: Client, topic: str, reference: Client) -> None:
    sent = numbered(10)
    reference.produce(topic, sent, compression="lz4")
    found = client.consume(topic, 0, 7, 3)
    assert [(one.offset, one.record) for one in found] == list(enumerate(sent))[7:]


@clients_with("consume")
def test_reads_many_batches_in_order(client: Client, topic: str, reference: Client) -> None:
    sent = numbered(3_000, size=1_000)
    reference.produce(topic, sent)
    found = client.consume(topic, 0, 0, len(sent))
    assert [(one.offset, one.record.value) for one in found] == [
        (offset, record.value) for offset, record in enumerate(sent)
    ]


@clients_with("consume")
def test_earliest_is_behind_deleted_records(client: Client, topic: str, reference: Client) -> None:
    reference.produce(topic, numbered(10))
    reference.delete_records(topic, 0, 4)
    found = client.consume(topic, 0, EARLIEST, 6)
    assert [one.offset for one in found] == [4, 5, 6, 7, 8, 9]


@clients_with("consume")
def test_an_offset_out_of_range_is_reset(client: Client, topic: str, reference: Client) -> None:
    reference.produce(topic, numbered(10))
    reference.delete_records(topic, 0, 4)
    (found,) = client.consume(topic, 0, 1, 1)
    assert found.offset == 4


@clients_with("consume")
def test_waits_for_records_to_come(client: Client, topic: str, reference: Client) -> None:
    late = threading.Timer(1.0, reference.produce, (topic, [Record(None, b"late")]))
    late.start()
    (found,) = client.consume(topic, 0, 0, 1)
    late.join()
    assert found.record.value == b"late"


@clients_with("bounds")
def test_bounds(client: Client, topic: str, reference: Client) -> None:
    assert client.bounds(topic, 0) == (0, 0)
    reference.produce(topic, numbered(10))
    reference.delete_records(topic, 0, 4)
    assert client.bounds(topic, 0) == (4, 10)


@clients_with("offset_for_time")
def test_seeks_by_time(client: Client, topic: str, reference: Client) -> None:
    reference.produce(topic, numbered(5))
    reference.produce(
        topic, [record._replace(timestamp=START_MS + 9_000) for record in numbered(5)]
    )
    assert client.offset_for_time(topic, 0, START_MS - 1) == 0
    assert client.offset_for_time(topic, 0, START_MS) == 0
    assert client.offset_for_time(topic, 0, START_MS + 2_000) == 2
    assert client.offset_for_time(topic, 0, START_MS + 2_001) == 3
    assert client.offset_for_time(topic, 0, START_MS + 4_001) == 5
    assert client.offset_for_time(topic, 0, START_MS + 9_001) == (
        -1 if client.tells_no_offset else 10
    )
