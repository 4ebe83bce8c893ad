"""A batch that the disk has corrupted: every way of reading says which, and can go on behind it."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from qbus.aio import Producer
from qbus.clients import ConsumerRecord
from qbus.records import CorruptBatch, iter_batches
from tests.sdk.reading import records
from tests.sdk.sdk_clients import CLIENT_KINDS, SdkClients
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.integration

TOPIC = "t"
BATCHES, RECORDS = 5, 30
CORRUPT = 2
"""The number of the corrupt batch: offsets 60 to 89."""
SOON_S = 20.0


def corrupt(segment: Path) -> None:
    """Change two bytes of the records of a batch in the middle."""
    data = bytearray(segment.read_bytes())
    position = 0
    for number, (_, batch) in enumerate(iter_batches(memoryview(bytes(data)))):
        if number == CORRUPT:
            data[position + 150] ^= 0xFF
            data[position + 151] ^= 0xFF
        position += len(batch)
    segment.write_bytes(data)


async def fill(bootstrap: str) -> None:
    """Produce batches of numbers, each batch after the one before."""
    async with Producer(bootstrap) as producer:
        for batch in range(BATCHES):
            first = batch * RECORDS
            values = [b"%010d" % number for number in range(first, first + RECORDS)]
            await (await producer.send_many(TOPIC, values, partition=0))


@pytest.fixture(scope="module", params=["found by the broker", "found by the client"])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A broker with a corrupt batch, which it looks at when it was started anew."""
    data_dir = tmp_path_factory.mktemp("corrupt")
    with BrokerProcess(data_dir) as broker:
        asyncio.run(fill(broker.bootstrap))
        is_restarted = request.param == "found by the broker"
        if is_restarted:
            broker.stop()
        corrupt(data_dir / f"{TOPIC}-0" / f"{0:020d}.log")
        if is_restarted:
            broker.start()
        yield broker.bootstrap


@pytest.fixture(params=CLIENT_KINDS)
def sdk(request: pytest.FixtureRequest) -> SdkClients:
    return CLIENT_KINDS[request.param]()


async def poll(consumer: Any, found: list[int], count: int) -> None:
    while len(found) < count:
        found += map(number_of, records(await consumer.poll(0.5)))


async def poll_arrow(consumer: Any, found: list[int], count: int) -> None:
    while len(found) < count:
        for batch in await consumer.poll_arrow(0.5):
            found += map(int, batch.column("value").to_pylist())


async def iterate(consumer: Any, found: list[int], count: int) -> None:
    async for record in consumer:
        found.append(number_of(record))
        if len(found) == count:
            return


def number_of(record: ConsumerRecord) -> int:
    return int(record.value or b"")


Read = Callable[[Any, list[int], int], Awaitable[None]]
"""Reads into a list until it has so many numbers."""


async def read_to_damage(
    consumer: Any, read: Read, most: int = BATCHES * RECORDS
) -> tuple[list[int], CorruptBatch]:
    """The records before a corrupt batch; the error has to come soon."""
    found: list[int] = []
    with pytest.raises(CorruptBatch) as caught:
        async with asyncio.timeout(SOON_S):
            await read(consumer, found, most)
    return found, caught.value


@pytest.mark.parametrize("read", [poll, poll_arrow, iterate])
@pytest.mark.parametrize("group", [None, "g"])
async def test_reading_stops_with_an_error_and_goes_on_behind_it(
    bootstrap: str,
    sdk: SdkClients,
    read: Read,
    group: str | None,
) -> None:
    if group is not None:
        group = f"{group}-{sdk.name}-{read.__name__}"
    options = {"group": group, "offset_reset": "earliest", "auto_commit": False}
    async with sdk.consumer(bootstrap, **options) as consumer:
        if group is None:
            consumer.assign([(TOPIC, 0, 0)])
        else:
            consumer.subscribe([TOPIC])
        found, error = await read_to_damage(consumer, read)
        first = CORRUPT * RECORDS
        assert found == list(range(first))
        assert (error.topic, error.partition, error.offset) == (TOPIC, 0, first)
        assert f"{TOPIC}-0 at offset {first}: " in str(error)
        found, error = await read_to_damage(consumer, read)
        assert found == [], "it is said again as long as nobody goes on behind it"
        assert await consumer.seek_past(error) == RECORDS
        found = []
        rest = list(range(first + RECORDS, BATCHES * RECORDS))
        await read(consumer, found, len(rest))
        assert found == rest


async def test_other_partitions_do_not_hide_the_error(tmp_path: Path, sdk: SdkClients) -> None:
    """Records of another partition that never end must not keep the error back."""
    with BrokerProcess(tmp_path) as broker:
        await fill(broker.bootstrap)
        broker.stop()
        corrupt(tmp_path / f"{TOPIC}-0" / f"{0:020d}.log")
        broker.start()
        async with (
            Producer(broker.bootstrap) as producer,
            sdk.consumer(broker.bootstrap, max_poll_records=10) as consumer,
        ):
            await producer.send("busy", b"0", partition=0)
            consumer.assign([(TOPIC, 0, 0), ("busy", 0, 0)])

            async def keep_busy() -> None:
                while True:
                    await asyncio.gather(
                        *[producer.send("busy", b"0", partition=0) for _ in range(100)]
                    )

            busy = asyncio.create_task(keep_busy())
            _, error = await read_to_damage(consumer, poll, most=sys.maxsize)
            busy.cancel()
            assert error.topic == TOPIC
