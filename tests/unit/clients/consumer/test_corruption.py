"""The way past a batch that cannot be read."""

from collections.abc import AsyncIterator

import pytest

from qbus.clients.consumer.corruption import readable_after
from qbus.clients.net.cluster import Cluster
from qbus.clients.types import TopicPartition
from qbus.errors import ApiError, ErrorCode
from qbus.records import HEADER_SIZE, build_batch, read_header
from qbus.records.header import write_header
from qbus.wire import ApiKey
from tests.support.fake_broker import FakeBroker

T = TopicPartition("t", 0)
RECORDS = 30
"""In each batch."""


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as broker:
        yield broker


@pytest.fixture
async def cluster(broker: FakeBroker) -> AsyncIterator[Cluster]:
    cluster = Cluster(broker.bootstrap, "test", 5.0)
    yield cluster
    await cluster.close()


def good(count: int = RECORDS) -> bytes:
    return bytes(build_batch([(None, b"value", (), 0)] * count))


def with_wrong_checksum(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 0xFF])


def with_malformed_records(batch: bytes) -> bytes:
    """A right checksum over records that are none, as a broken producer writes it."""
    made = bytearray(batch)
    made[HEADER_SIZE:] = b"\xff" * (len(made) - HEADER_SIZE)
    write_header(made, read_header(made))
    return bytes(made)


def with_unknown_codec(batch: bytes) -> bytes:
    made = bytearray(batch)
    write_header(made, read_header(made)._replace(attributes=7))
    return bytes(made)


@pytest.mark.parametrize("harm", [with_wrong_checksum, with_malformed_records, with_unknown_codec])
async def test_the_next_batch_that_can_be_read(
    broker: FakeBroker, cluster: Cluster, harm: object
) -> None:
    assert callable(harm)
    for batch in (good(), harm(good()), harm(good()), good()):
        broker.logs[T].append(batch)
    assert await readable_after(cluster, T, RECORDS) == 3 * RECORDS


async def test_a_batch_that_the_broker_refuses(broker: FakeBroker, cluster: Cluster) -> None:
    for _ in range(3):
        broker.logs[T].append(good())
    broker.logs[T].corrupt = range(RECORDS, 2 * RECORDS)
    assert await readable_after(cluster, T, RECORDS) == 2 * RECORDS


async def test_without_a_batch_behind_it_the_end_of_the_log(
    broker: FakeBroker, cluster: Cluster
) -> None:
    broker.logs[T].append(good())
    broker.logs[T].append(with_wrong_checksum(good()))
    assert await readable_after(cluster, T, RECORDS) == 2 * RECORDS


async def test_a_batch_of_many_records_takes_few_requests(
    broker: FakeBroker, cluster: Cluster
) -> None:
    broker.logs[T].append(with_wrong_checksum(good(10_000)))
    broker.logs[T].append(good())
    assert await readable_after(cluster, T, 0) == 10_000
    assert len(broker.asked(ApiKey.FETCH)) < 40


async def test_an_error_of_the_broker_is_raised(broker: FakeBroker, cluster: Cluster) -> None:
    broker.logs[T].append(good())
    broker.logs[T].start = RECORDS
    with pytest.raises(ApiError) as caught:
        await readable_after(cluster, T, 0)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
