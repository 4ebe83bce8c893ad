"""A leader lost what its predecessor had: consumers are told where the logs part (KIP-320)."""

import pytest

from qbus import clients
from qbus.aio import Consumer, Producer
from qbus.errors import QbusError
from tests.sdk.faces import AsyncFace
from tests.sdk.ledger import Sent
from tests.sdk.reading import read
from tests.support.fake_cluster import FakeCluster

LogTruncated: type[QbusError] | None = getattr(clients, "LogTruncated", None)
pytestmark = pytest.mark.skipif(LogTruncated is None, reason="truncation is not noticed yet")


async def lose(cluster: FakeCluster, producer: Producer, *, keep: int, write: int) -> None:
    """Elect a leader that has only ``keep`` records, and let it write others after them."""
    cluster.logs["t", 0].truncate(keep)
    cluster.move("t", 0, to=2)
    cluster.publish()
    for number in range(write):
        await (await producer.send("t", b"new %d" % number))


async def prepared(cluster: FakeCluster, producer: Producer) -> None:
    """Ten records, each a batch of its own."""
    sent = Sent(AsyncFace(), producer, "t", 1)
    for _ in range(10):
        await sent.send()
        await producer.flush()


async def test_a_position_beyond_what_is_left_is_told() -> None:
    async with (
        FakeCluster(2) as cluster,
        Producer(cluster.bootstrap, idempotent=False) as producer,
        Consumer(cluster.bootstrap, offset_reset="none", fetch_max_wait_ms=50) as consumer,
    ):
        await prepared(cluster, producer)
        consumer.assign([("t", 0, 0)])
        await read(consumer, 10)
        await lose(cluster, producer, keep=5, write=7)
        assert LogTruncated is not None
        with pytest.raises(LogTruncated) as caught:
            await read(consumer, 1)
        assert "t-0" in str(caught.value)
        consumer.seek("t", 0, 5)
        assert [record.value for record in await read(consumer, 7)] == [
            b"new %d" % number for number in range(7)
        ]


async def test_a_position_within_what_is_left_goes_on() -> None:
    async with (
        FakeCluster(2) as cluster,
        Producer(cluster.bootstrap, idempotent=False) as producer,
        Consumer(
            cluster.bootstrap, offset_reset="none", fetch_max_wait_ms=50, max_poll_records=1
        ) as consumer,
    ):
        await prepared(cluster, producer)
        consumer.assign([("t", 0, 0)])
        await read(consumer, 3)
        await lose(cluster, producer, keep=5, write=2)
        found = [record.value for record in await read(consumer, 4)]
        assert found[-2:] == [b"new 0", b"new 1"]
