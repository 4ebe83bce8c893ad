"""Transactions under cuts and kills: read is what was told to be committed, once and in order."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from qbus.aio import Consumer, Producer
from qbus.clients import RequestTimedOut, TransactionAborted, TransactionFailed
from tests.sdk.conftest import PARTITIONS, with_qbus
from tests.sdk.reading import read, records
from tests.sdk.servers import Server
from tests.support.fault_proxy import FaultProxy
from tests.support.seeds import new_seed

from .test_broker_killed import kill_and_restart
from .test_cut_connections import SEEDS, cut_at_random

TRANSACTIONS = 60
QUICK: dict[str, Any] = {"linger_ms": 0, "retry_backoff_ms": 10, "retry_backoff_max_ms": 50}


class Rollback(Exception):  # noqa: N818 - what the work decides
    """Ends a transaction without a commit."""


class Work:
    """Transactions one after another, some of which are rolled back, and what was told of each."""

    def __init__(self, producer: Producer, topic: str, chance: random.Random) -> None:
        self._producer = producer
        self._topic = topic
        self._chance = chance
        self.committed: list[tuple[int, bytes]] = []
        self.outcomes: Counter[str] = Counter()

    async def run(self, until: asyncio.Event) -> None:
        while self.outcomes.total() < TRANSACTIONS or not until.is_set():
            number = self.outcomes.total()
            sent = [
                (self._chance.randrange(PARTITIONS), b"%d-%d" % (number, index))
                for index in range(self._chance.randrange(1, 8))
            ]
            outcome = await self._transact(sent)
            self.outcomes[outcome] += 1
            if outcome == "committed":
                self.committed += sent

    async def _transact(self, sent: list[tuple[int, bytes]]) -> str:
        try:
            async with self._producer.transaction():
                for partition, value in sent:
                    await self._producer.send(self._topic, value, partition=partition)
                if self._chance.random() < 0.2:
                    raise Rollback
        except Rollback:
            return "rolled back"
        except TransactionAborted:
            return "aborted"
        except RequestTimedOut:
            return await self._ask_again()
        return "committed"

    async def _ask_again(self) -> str:
        while True:
            try:
                await self._producer.commit_transaction()
            except TransactionAborted:
                return "aborted"
            except RequestTimedOut:
                continue
            return "committed"


async def check(bootstrap: str, topic: str, work: Work) -> None:
    """All of what was committed is read, nothing else, and nothing stays open."""
    assert work.outcomes["committed"] > TRANSACTIONS / 3, work.outcomes
    async with Consumer(
        bootstrap, offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.subscribe([topic])
        found = await read(consumer, len(work.committed))
        found += records(await consumer.poll(0.5))
        places = await consumer.partitions(topic)
        stable = await consumer.end_offsets(places)
    for partition in range(PARTITIONS):
        expected = [value for where, value in work.committed if where == partition]
        assert [one.value for one in found if one.partition == partition] == expected
    async with Consumer(bootstrap) as plain:
        assert await plain.end_offsets(places) == stable


@SEEDS
@with_qbus
async def test_connections_that_are_cut(proxy: FaultProxy, proxied_topic: str, seed: int) -> None:
    print("seed", seed)
    chance, done = random.Random(seed), asyncio.Event()
    async with Producer(proxy.bootstrap, transactional_id=proxied_topic, **QUICK) as producer:
        work = Work(producer, proxied_topic, random.Random(seed + 1))
        async with asyncio.TaskGroup() as tasks:
            working = tasks.create_task(work.run(done))
            await cut_at_random(proxy, chance, asyncio.Event(), up=3_000, down=1_500)
            done.set()
            await working
    print(work.outcomes)
    await check(proxy.bootstrap, proxied_topic, work)


@with_qbus
async def test_a_broker_that_is_killed(
    server: Server, proxy: FaultProxy, proxied_topic: str
) -> None:
    seed = new_seed()
    print("seed", seed)
    done = asyncio.Event()
    async with Producer(proxy.bootstrap, transactional_id=proxied_topic, **QUICK) as producer:
        work = Work(producer, proxied_topic, random.Random(seed))
        async with asyncio.TaskGroup() as tasks:
            working = tasks.create_task(work.run(done))
            for _ in range(3):
                await asyncio.sleep(0.5)
                await kill_and_restart(server)
            done.set()
            await working
    print(work.outcomes)
    await check(proxy.bootstrap, proxied_topic, work)


@with_qbus
async def test_a_producer_that_starts_again_ends_what_it_left(
    proxy: FaultProxy, proxied_topic: str
) -> None:
    """Whoever died in a transaction has written nothing of it, and holds up nobody for long."""
    first = Producer(proxy.bootstrap, transactional_id=proxied_topic, **QUICK)
    await first.begin_transaction()
    await first.send_and_wait(proxied_topic, b"left", partition=0)
    async with (
        Producer(proxy.bootstrap, transactional_id=proxied_topic, **QUICK) as second,
        Consumer(
            proxy.bootstrap, offset_reset="earliest", isolation_level="read_committed"
        ) as consumer,
    ):
        async with second.transaction():
            await second.send(proxied_topic, b"1", partition=0)
        consumer.assign([(proxied_topic, 0, None)])
        assert [one.value for one in await read(consumer, 1)] == [b"1"]
    with pytest.raises(TransactionFailed):
        await first.commit_transaction()
    await first.close()
