"""Clients outlive their broker: killed and restarted under load, nothing is lost or doubled."""

import asyncio
from pathlib import Path

import pytest

from qbus.clients import Admin, Consumer, Producer
from tests.compat import targets
from tests.sdk.reading import read, read_topic

pytestmark = pytest.mark.integration


async def test_a_producer_and_a_consumer_go_on_after_a_kill(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with targets.server(request.config.getoption("--target"), tmp_path) as broker:
        async with Admin(broker.bootstrap) as admin:
            await admin.create_topic("t", partitions=2)
        consumer = Consumer(broker.bootstrap, group="g", offset_reset="earliest")
        consumer.subscribe(["t"])
        async with Producer(broker.bootstrap, linger_ms=1, batch_bytes=2000) as producer:
            deliveries = []
            for kills in range(3):
                for number in range(1000):
                    value = b"%d" % (kills * 1000 + number)
                    deliveries.append(await producer.send("t", value, partition=number % 2))
                    if number % 100 == 0:
                        await asyncio.sleep(0.005)
                broker.kill()
                await asyncio.to_thread(broker.start)
            delivered = await asyncio.gather(*deliveries)
        assert len(await read(consumer, 3000)) >= 3000
        await consumer.close()
        records = await read_topic(broker.bootstrap, "t", 3000)
    for partition in range(2):
        assert [r.value for r in records if r.partition == partition] == [
            b"%d" % number for number in range(3000) if number % 2 == partition
        ]
    stored = {record[:3]: record.value for record in records}
    assert [stored[metadata[:3]] for metadata in delivered] == [b"%d" % n for n in range(3000)]


async def test_a_consumer_waits_for_its_broker(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with targets.server(request.config.getoption("--target"), tmp_path) as broker:
        async with Producer(broker.bootstrap) as producer:
            await (await producer.send("t", b"before"))
        async with Consumer(broker.bootstrap, offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            assert (await read(consumer, 1))[0].value == b"before"
            await asyncio.to_thread(broker.stop)
            assert await consumer.poll(0.3) == []
            await asyncio.to_thread(broker.start)
            async with Producer(broker.bootstrap) as producer:
                await producer.send("t", b"after")
            assert (await read(consumer, 1))[0].value == b"after"
