"""Reading what transactions left, written by another client's transactional producer."""

import asyncio

import confluent_kafka as ck
import pytest_asyncio

from tests.sdk.conftest import with_kafka
from tests.sdk.reading import read, records
from tests.sdk.sdk_clients import SdkClients

pytestmark = with_kafka  # Qbus has no transactions yet

READ_COMMITTED = {"offset_reset": "earliest", "isolation_level": "read_committed"}


class Transactions:
    """One transactional producer; every method blocks until the broker has answered."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = ck.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 0}
        )
        self._producer.init_transactions(30)

    def commit(self, *values: bytes) -> None:
        self.leave_open(*values)
        self._producer.commit_transaction(30)

    def abort(self, *values: bytes) -> None:
        self.leave_open(*values)
        self._producer.abort_transaction(30)

    def leave_open(self, *values: bytes) -> None:
        self._producer.begin_transaction()
        for value in values:
            self._producer.produce(self._topic, value, partition=0)
        self._producer.flush(30)

    def finish(self) -> None:
        self._producer.commit_transaction(30)


@pytest_asyncio.fixture
async def transactions(bootstrap: str, topic: str) -> Transactions:
    return await asyncio.to_thread(Transactions, bootstrap, topic)


async def test_aborted_records_are_not_seen(
    bootstrap: str, topic: str, sdk: SdkClients, transactions: Transactions
) -> None:
    await asyncio.to_thread(transactions.commit, b"1", b"2")
    await asyncio.to_thread(transactions.abort, b"never")
    await asyncio.to_thread(transactions.abort, b"nor this", b"nor that")
    await asyncio.to_thread(transactions.commit, b"3")
    async with sdk.consumer(bootstrap, **READ_COMMITTED) as consumer:
        consumer.assign([(topic, 0, None)])
        assert [record.value for record in await read(consumer, 3)] == [b"1", b"2", b"3"]
        await consumer.poll(0.2)
        assert consumer.position(topic, 0) == 10  # six records and four markers


async def test_a_consumer_waits_for_open_transactions(
    bootstrap: str, topic: str, sdk: SdkClients, transactions: Transactions
) -> None:
    await asyncio.to_thread(transactions.commit, b"1")
    await asyncio.to_thread(transactions.leave_open, b"2")
    async with sdk.consumer(bootstrap, **READ_COMMITTED) as consumer:
        consumer.assign([(topic, 0, None)])
        assert [record.value for record in await read(consumer, 1)] == [b"1"]
        assert records(await consumer.poll(0.3)) == []
        await asyncio.to_thread(transactions.finish)
        assert [record.value for record in await read(consumer, 1)] == [b"2"]


async def test_uncommitted_records_are_seen_by_default(
    bootstrap: str, topic: str, sdk: SdkClients, transactions: Transactions
) -> None:
    await asyncio.to_thread(transactions.abort, b"aborted")
    await asyncio.to_thread(transactions.leave_open, b"open")
    async with sdk.consumer(bootstrap, offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0, None)])
        assert [record.value for record in await read(consumer, 2)] == [b"aborted", b"open"]
    await asyncio.to_thread(transactions.finish)
