"""A broker that is stopped with care and started again."""

import asyncio
from pathlib import Path

import pytest

from qbus.aio import Producer
from tests.sdk.reading import read
from tests.sdk.sdk_clients import CLIENT_KINDS
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("kind", CLIENT_KINDS)
async def test_a_consumer_waits_for_its_broker(kind: str, tmp_path: Path) -> None:
    sdk = CLIENT_KINDS[kind]()
    with BrokerProcess(tmp_path) as broker:
        async with Producer(broker.bootstrap) as producer:
            await producer.send_and_wait("t", b"before")
        async with sdk.consumer(broker.bootstrap, offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            assert (await read(consumer, 1))[0].value == b"before"
            await asyncio.to_thread(broker.stop)
            assert await consumer.poll(0.3) == []
            await asyncio.to_thread(broker.start)
            async with Producer(broker.bootstrap) as producer:
                await producer.send("t", b"after")
            assert (await read(consumer, 1))[0].value == b"after"
