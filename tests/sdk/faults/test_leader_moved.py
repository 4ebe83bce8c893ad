"""Partitions move to other brokers, of which clients learn by refusals, hints and metadata."""

import asyncio
import itertools

import pytest

from qbus.aio import Consumer, Producer
from tests.sdk.ledger import MARGIN, Seen, Sent
from tests.sdk.reading import read, records
from tests.sdk.sdk_clients import AsyncClients
from tests.support.fake_cluster import FakeCluster

PARTITIONS = 3
hints = pytest.mark.parametrize("gives_hints", [True, False], ids=["hints", "no hints"])


async def move_about(cluster: FakeCluster, until: asyncio.Event) -> None:
    """Move one partition after the other between the brokers; metadata follows a bit later."""
    for turn in itertools.count():
        if until.is_set():
            return
        partition = turn % PARTITIONS
        leader = cluster.leader_of("t", partition)
        assert leader is not None
        cluster.move("t", partition, to=3 - leader.node_id)
        await asyncio.sleep(0.03)
        cluster.publish()
        await asyncio.sleep(0.03)


@hints
async def test_a_producer_follows(gives_hints: bool) -> None:
    done = asyncio.Event()
    async with (
        FakeCluster(2, {"t": PARTITIONS}) as cluster,
        Producer(cluster.bootstrap, batch_bytes=500) as producer,
    ):
        cluster.gives_hints = gives_hints
        sent = Sent(AsyncClients(), producer, "t", PARTITIONS)
        async with asyncio.TaskGroup() as tasks:
            moving = tasks.create_task(move_about(cluster, done))
            for _ in range(60):
                for _ in range(30):
                    await sent.send()
                await asyncio.sleep(0.02)
            await producer.flush()
            done.set()
            await moving
        await sent.check_delivered(MARGIN)
        for partition, values in sent.values.items():
            assert cluster.logs["t", partition].values() == values


@hints
async def test_a_consumer_follows(gives_hints: bool) -> None:
    done, seen = asyncio.Event(), Seen()
    async with (
        FakeCluster(2, {"t": PARTITIONS}) as cluster,
        Producer(cluster.bootstrap) as producer,
        Consumer(cluster.bootstrap, offset_reset="earliest", fetch_max_wait_ms=100) as consumer,
    ):
        cluster.gives_hints = gives_hints
        consumer.assign([("t", partition, None) for partition in range(PARTITIONS)])
        sent = Sent(AsyncClients(), producer, "t", PARTITIONS)
        async with asyncio.TaskGroup() as tasks:
            moving = tasks.create_task(move_about(cluster, done))
            for _ in range(30):
                for _ in range(30):
                    await sent.send()
                seen.add(records(await consumer.poll(0.05)))
            done.set()
            await moving
        while seen.count < len(sent):
            seen.add(await read(consumer, 1))
    seen.check_none_skipped()


async def test_keyless_records_leave_a_partition_without_a_leader() -> None:
    """Keyless records go to other partitions; records that already have a partition wait."""
    async with (
        FakeCluster(2, {"t": 2}) as cluster,
        Producer(
            cluster.bootstrap, batch_bytes=200, request_timeout_ms=500, delivery_timeout_ms=2_000
        ) as producer,
    ):
        cluster.move("t", 1, to=2)
        cluster.publish()
        for partition in (0, 1):
            await (await producer.send("t", b"before", partition=partition))
        await cluster.kill(2)
        await producer.send("t", b"lost", partition=1)
        await asyncio.sleep(0.5)  # by which the producer knows
        deliveries = [await producer.send("t", b"%d" % number) for number in range(100)]
        places = await asyncio.wait_for(asyncio.gather(*deliveries), MARGIN)
        assert {place.partition for place in places} == {0}


async def test_a_producer_follows_a_hint_though_the_metadata_lags() -> None:
    """The hint in the refusal suffices; no broker's metadata knows the new leader (KIP-951)."""
    async with FakeCluster(2) as cluster, Producer(cluster.bootstrap) as producer:
        await (await producer.send("t", b"before"))
        cluster.move("t", 0, to=2)
        delivery = await producer.send("t", b"after")
        assert (await asyncio.wait_for(delivery, MARGIN)).offset == 1
