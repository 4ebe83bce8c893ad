"""Connections are cut in the middle of frames, again and again, at random points in both ways."""

import asyncio
import random

import pytest

from qbus.clients import TopicPartition
from tests.sdk.conftest import PARTITIONS
from tests.sdk.ledger import MARGIN, Seen, Sent
from tests.sdk.reading import read_topic, records
from tests.sdk.sdk_clients import SdkClients
from tests.support.fault_proxy import FaultProxy
from tests.support.seeds import new_seed
from tests.support.waiting import eventually

COUNT = 2_000
CUTS = 20


each_face_and_server_once = pytest.mark.parametrize(
    ("server", "sdk"),
    [("qbus", "aio"), ("qbus", "blocking"), ("kafka", "aio")],
    indirect=True,
    scope="session",
)


async def cut_at_random(
    proxy: FaultProxy, chance: random.Random, until: asyncio.Event, *, up: int, down: int
) -> None:
    """``CUTS`` of them one after the other, each in the next ``up`` or ``down`` bytes."""
    while proxy.cuts < CUTS and not until.is_set():
        direction, reach = chance.choice(((proxy.to_server, up), (proxy.to_client, down)))
        if not direction.will_cut:
            direction.cut_after(chance.randrange(reach), reset=chance.random() < 0.5)
        await asyncio.sleep(chance.uniform(0.01, 0.04))
    proxy.heal()


FIRST_SEED = new_seed()
SEEDS = pytest.mark.parametrize(
    "seed",
    [
        FIRST_SEED,
        *(pytest.param(FIRST_SEED + more, marks=pytest.mark.nightly) for more in range(1, 20)),
    ],
)
"""One seed, a new one each time unless QBUS_SEED says which; at night twenty."""


@SEEDS
@each_face_and_server_once
async def test_a_producer_loses_doubles_and_reorders_nothing(
    proxy: FaultProxy, proxied_topic: str, sdk: SdkClients, seed: int
) -> None:
    print("seed", seed)
    chance, done = random.Random(seed), asyncio.Event()
    options = {"batch_bytes": 2_000, "retry_backoff_ms": 10, "retry_backoff_max_ms": 50}
    async with sdk.producer(proxy.bootstrap, **options) as producer:
        sent = Sent(sdk, producer, proxied_topic, PARTITIONS)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(cut_at_random(proxy, chance, done, up=20_000, down=2_000))
            while proxy.cuts < CUTS:
                for _ in range(20):
                    await sent.send(size=chance.randrange(100))
                await asyncio.sleep(0.005)
            done.set()
        await sent.check_delivered(MARGIN)
    stored = await read_topic(proxy.bootstrap, proxied_topic, len(sent))
    await sent.audit(stored, MARGIN)
    assert len(stored) == len(sent)


@SEEDS
@each_face_and_server_once
async def test_a_consumer_skips_nothing(
    proxy: FaultProxy, proxied_topic: str, sdk: SdkClients, seed: int
) -> None:
    print("seed", seed)
    chance, done = random.Random(seed), asyncio.Event()
    seen = Seen()
    options = {"offset_reset": "earliest", "partition_max_bytes": 4_000}
    async with sdk.producer(proxy.bootstrap, batch_bytes=2_000) as producer:
        sent = Sent(sdk, producer, proxied_topic, PARTITIONS)
        for _ in range(COUNT):
            await sent.send(size=50)
        await producer.flush()
    async with sdk.consumer(proxy.bootstrap, group=proxied_topic, **options) as consumer:
        consumer.subscribe([proxied_topic])
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(cut_at_random(proxy, chance, done, up=1_000, down=30_000))
            while seen.count < COUNT:
                seen.add(records(await consumer.poll(0.2)))
            done.set()
    seen.check_none_skipped()
    assert proxy.cuts > 3


async def test_a_cut_answer_is_asked_for_again(
    proxy: FaultProxy, proxied_topic: str, sdk: SdkClients
) -> None:
    """The broker has the record, the producer is not told: it asks again and is told the same."""
    async with sdk.producer(proxy.bootstrap) as producer:
        before = await producer.send(proxied_topic, b"before", partition=0)
        assert (await sdk.result(before)).offset == 0
        proxy.to_client.cut_after(1)
        delivery = await producer.send(proxied_topic, b"once", partition=0)
        assert (await sdk.result(delivery)).offset == 1
        assert proxy.cuts == 1
    stored = await read_topic(proxy.bootstrap, proxied_topic, 2)
    assert [record.value for record in stored] == [b"before", b"once"]


async def test_a_commit_whose_answer_is_cut_is_made(
    proxy: FaultProxy, proxied_topic: str, sdk: SdkClients
) -> None:
    async with sdk.producer(proxy.bootstrap) as producer:
        await producer.send(proxied_topic, b"v", partition=0)
    async with sdk.consumer(
        proxy.bootstrap, group=proxied_topic, offset_reset="earliest", auto_commit=False
    ) as consumer:
        consumer.subscribe([proxied_topic])
        while not records(await consumer.poll(0.2)):
            pass
        proxy.to_client.cut_after(1)
        await consumer.commit()
        await eventually(lambda: proxy.cuts == 1)
    partition = TopicPartition(proxied_topic, 0)
    async with sdk.consumer(proxy.bootstrap, group=proxied_topic) as later:
        assert (await later.committed([partition]))[partition].offset == 1
