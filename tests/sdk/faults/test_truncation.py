"""A leader lost what its predecessor had: consumers are told where the logs part (KIP-320)."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from qbus.aio import Consumer, Producer
from qbus.clients.errors import LogTruncated
from tests.sdk.ledger import Sent
from tests.sdk.reading import read
from tests.sdk.sdk_clients import AsyncClients
from tests.support.fake_cluster import FakeCluster


async def lose(cluster: FakeCluster, producer: Producer, *, keep: int, write: int) -> None:
    """Elect a leader that has only ``keep`` records, and let it write others after them."""
    cluster.logs["t", 0].truncate(keep)
    cluster.move("t", 0, to=2)
    cluster.publish()
    for number in range(write):
        await (await producer.send("t", b"new %d" % number))


async def prepared(cluster: FakeCluster, producer: Producer, count: int) -> None:
    """Send ``count`` records, each in its own batch."""
    sent = Sent(AsyncClients(), producer, "t", 1)
    for _ in range(count):
        await sent.send()
        await producer.flush()


Scene = tuple[FakeCluster, Producer, Consumer]


@pytest_asyncio.fixture
async def scene() -> AsyncIterator[Scene]:
    async with (
        FakeCluster(2) as cluster,
        Producer(cluster.bootstrap, idempotent=False) as producer,
        Consumer(cluster.bootstrap, offset_reset="none", fetch_max_wait_ms=50) as consumer,
    ):
        yield cluster, producer, consumer


async def test_a_position_beyond_the_truncation_raises_an_error(scene: Scene) -> None:
    cluster, producer, consumer = scene
    await prepared(cluster, producer, 10)
    consumer.assign([("t", 0, 0)])
    await read(consumer, 10)
    await lose(cluster, producer, keep=5, write=7)
    with pytest.raises(LogTruncated) as caught:
        await read(consumer, 1)
    assert "t-0" in str(caught.value)
    assert caught.value.diverging_offset == 5
    consumer.seek("t", 0, 5)
    assert [record.value for record in await read(consumer, 7)] == [
        b"new %d" % number for number in range(7)
    ]


async def test_a_position_below_the_truncation_goes_on(scene: Scene) -> None:
    cluster, producer, consumer = scene
    await prepared(cluster, producer, 5)
    consumer.assign([("t", 0, 0)])
    await read(consumer, 5)
    await lose(cluster, producer, keep=5, write=2)
    assert [record.value for record in await read(consumer, 2)] == [b"new 0", b"new 1"]
