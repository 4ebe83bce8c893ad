"""The broker dies by SIGKILL and comes back, under load: nothing is lost, doubled or reordered."""

import asyncio

from qbus.aio import Consumer, Producer
from tests.sdk.conftest import PARTITIONS
from tests.sdk.ledger import MARGIN, Seen, Sent
from tests.sdk.reading import read_topic, records
from tests.sdk.sdk_clients import AsyncClients
from tests.sdk.servers import Server
from tests.support.fault_proxy import FaultProxy
from tests.support.waiting import eventually

KILLS = {"qbus": 3, "kafka": 1}


async def load(sent: Sent, until: asyncio.Event) -> None:
    """Send until told to stop, a few hundred records a second."""
    while not until.is_set():
        for _ in range(20):
            await sent.send()
        await asyncio.sleep(0.02)


async def consume(consumer: Consumer, seen: Seen, until: asyncio.Event) -> None:
    while not until.is_set():
        seen.add(records(await consumer.poll(0.2)))


async def kill_and_restart(server: Server) -> None:
    server.proxied_process.kill()
    await asyncio.sleep(0.2)
    await asyncio.to_thread(server.proxied_process.start)


async def test_a_producer_and_a_consumer_go_on(
    server: Server, proxy: FaultProxy, proxied_topic: str
) -> None:
    seen, enough, stopped = Seen(), asyncio.Event(), asyncio.Event()
    consumer = Consumer(proxy.bootstrap, group=proxied_topic, offset_reset="earliest")
    async with (
        Producer(proxy.bootstrap, batch_bytes=2_000, compression="lz4") as producer,
        consumer,
    ):
        consumer.subscribe([proxied_topic])
        sent = Sent(AsyncClients(), producer, proxied_topic, PARTITIONS)
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(load(sent, enough))
            tasks.create_task(consume(consumer, seen, stopped))
            for _ in range(KILLS[server.name]):
                await asyncio.sleep(0.5)
                await kill_and_restart(server)
            await asyncio.sleep(0.5)
            enough.set()
            await sending
            await producer.flush()
            await eventually(lambda: seen.count == len(sent), MARGIN)
            stopped.set()
        stored = await read_topic(proxy.bootstrap, proxied_topic, len(sent))
        outcomes = await sent.audit(stored, MARGIN)
    assert not [outcome for outcome in outcomes.values() if isinstance(outcome, BaseException)]
    assert len(stored) == len(sent)
    seen.check_none_skipped()
