"""Transactions: what one producer sent in them, and what consumers of the others read."""

import asyncio
from typing import Any

import confluent_kafka as ck
import pytest
import pytest_asyncio

from qbus.aio import Admin, Producer
from qbus.clients import HangingTransaction, ProducerFenced, TransactionAborted
from qbus.clients.net.connection import Connection
from qbus.clients.types import GroupMetadata, TopicPartition
from qbus.errors import QbusError
from tests.sdk.conftest import create_topic, with_qbus
from tests.sdk.reading import read, records
from tests.sdk.sdk_clients import SdkClients
from tests.support.waiting import eventually

READ_COMMITTED = {"offset_reset": "earliest", "isolation_level": "read_committed"}


class Transactions:
    """One transactional producer of librdkafka; every method blocks until the broker answered."""

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


class TestReading:
    """What transactions of another client left."""

    async def test_aborted_records_are_not_seen(
        self, bootstrap: str, topic: str, sdk: SdkClients, transactions: Transactions
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
        self, bootstrap: str, topic: str, sdk: SdkClients, transactions: Transactions
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
        self, bootstrap: str, topic: str, sdk: SdkClients, transactions: Transactions
    ) -> None:
        await asyncio.to_thread(transactions.abort, b"aborted")
        await asyncio.to_thread(transactions.leave_open, b"open")
        async with sdk.consumer(bootstrap, offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0, None)])
            assert [record.value for record in await read(consumer, 2)] == [b"aborted", b"open"]
        await asyncio.to_thread(transactions.finish)

    async def test_the_end_of_a_reader_of_committed_records_is_before_what_is_open(
        self, bootstrap: str, topic: str, sdk: SdkClients, transactions: Transactions
    ) -> None:
        await asyncio.to_thread(transactions.commit, b"1")
        await asyncio.to_thread(transactions.leave_open, b"2", b"3")
        ends = {}
        for isolation in ("read_committed", "read_uncommitted"):
            async with sdk.consumer(
                bootstrap, offset_reset="earliest", isolation_level=isolation
            ) as consumer:
                consumer.assign([(topic, 0, None)])
                await read(consumer, 1)
                found = await consumer.end_offsets([(topic, 0)])
                ends[isolation] = found[topic, 0]
        await asyncio.to_thread(transactions.finish)
        assert ends == {"read_committed": 2, "read_uncommitted": 4}


class InBlocks:
    """A producer of either face, whose transactions are entered as its own face does."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._transaction = producer.transaction()

    async def __aenter__(self) -> Any:
        if hasattr(self._transaction, "__aenter__"):
            await self._transaction.__aenter__()
        else:
            await asyncio.to_thread(self._transaction.__enter__)
        return self._producer

    async def __aexit__(self, *exc: object) -> None:
        if hasattr(self._transaction, "__aexit__"):
            await self._transaction.__aexit__(*exc)
        else:
            await asyncio.to_thread(self._transaction.__exit__, *exc)


async def committed_values(
    bootstrap: str, topic: str, sdk: SdkClients, count: int
) -> list[bytes | None]:
    async with sdk.consumer(bootstrap, **READ_COMMITTED) as consumer:
        consumer.subscribe([topic])
        found = await read(consumer, count) if count else []
        found += records(await consumer.poll(0.3))
        return [record.value for record in found]


async def fail_in(producer: Any, topic: str, *values: bytes) -> None:
    async with InBlocks(producer):
        for value in values:
            await producer.send_and_wait(topic, value, partition=0)
        raise ZeroDivisionError


class TestProducing:
    """Transactions of our own producer."""

    async def test_what_is_committed_is_read_and_what_is_aborted_is_not(
        self, bootstrap: str, topic: str, sdk: SdkClients, name: str
    ) -> None:
        async with sdk.producer(bootstrap, transactional_id=name, linger_ms=0) as producer:
            async with InBlocks(producer):
                await producer.send(topic, b"1", partition=0)
                await producer.send_many(topic, [b"2", b"3"], partition=0)
            with pytest.raises(ZeroDivisionError):
                await fail_in(producer, topic, b"never")
            async with InBlocks(producer):
                await producer.send(topic, b"4", partition=0)
            with pytest.raises(QbusError, match="inside of a transaction"):
                await producer.send(topic, b"outside")
        values = await committed_values(bootstrap, topic, sdk, 4)
        assert values == [b"1", b"2", b"3", b"4"]

    async def test_many_transactions_over_many_partitions(
        self, bootstrap: str, topic: str, sdk: SdkClients, name: str
    ) -> None:
        async with sdk.producer(bootstrap, transactional_id=name, linger_ms=0) as producer:
            for number in range(30):
                async with InBlocks(producer):
                    await producer.send_many(
                        topic, [b"%d" % number] * 20, keys=[b"%d" % key for key in range(20)]
                    )
        values = await committed_values(bootstrap, topic, sdk, 600)
        assert sorted(values, key=str) == sorted([b"%d" % n for n in range(30)] * 20, key=str)

    async def test_a_later_producer_fences_this_one_and_aborts_what_it_left(
        self, bootstrap: str, topic: str, sdk: SdkClients, name: str
    ) -> None:
        async with (
            sdk.producer(bootstrap, transactional_id=name, linger_ms=0) as first,
            sdk.producer(bootstrap, transactional_id=name, linger_ms=0) as second,
        ):
            await first.begin_transaction()
            await first.send_and_wait(topic, b"left open", partition=0)
            await second.init_transactions()
            with pytest.raises(ProducerFenced):
                await first.commit_transaction()
            async with InBlocks(second):
                await second.send(topic, b"1", partition=0)
        assert await committed_values(bootstrap, topic, sdk, 1) == [b"1"]

    async def test_producers_with_other_ids_do_not_disturb_each_other(
        self, bootstrap: str, topic: str, sdk: SdkClients, name: str
    ) -> None:
        async def work(number: int) -> None:
            async with sdk.producer(
                bootstrap, transactional_id=f"{name}-{number}", linger_ms=0
            ) as producer:
                for _ in range(10):
                    async with InBlocks(producer):
                        await producer.send(topic, b"%d" % number, partition=number % 3)

        await asyncio.gather(*map(work, range(6)))
        values = await committed_values(bootstrap, topic, sdk, 60)
        assert sorted(values, key=str) == sorted([b"%d" % n for n in range(6)] * 10, key=str)

    @with_qbus  # Kafka looks every ten seconds
    async def test_a_transaction_that_takes_too_long_is_aborted(
        self, bootstrap: str, topic: str, sdk: SdkClients, name: str
    ) -> None:
        """Some coordinators answer as if another producer had come: that is fatal."""
        async with sdk.producer(
            bootstrap, transactional_id=name, transaction_timeout_ms=1000, linger_ms=0
        ) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"late", partition=0)
            async with Admin(bootstrap) as admin:

                async def is_over() -> bool:
                    return (await admin.describe_transaction(name)).state != "Ongoing"

                await eventually(is_over, 40)
            with pytest.raises((TransactionAborted, ProducerFenced)):
                await producer.commit_transaction()
        assert await committed_values(bootstrap, topic, sdk, 0) == []

    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    async def test_read_process_write(
        self, bootstrap: str, topic: str, sdk: SdkClients, name: str, protocol: str
    ) -> None:
        """Each record is processed once, though every third transaction fails after its sends."""
        target = f"{name}-out"
        await create_topic(bootstrap, target)
        async with Producer(bootstrap) as plain:
            await (await plain.send_many(topic, [b"%d" % n for n in range(200)], partition=0))
        rounds = 0
        async with (
            sdk.producer(bootstrap, transactional_id=name, linger_ms=0) as producer,
            sdk.consumer(
                bootstrap,
                group=name,
                group_protocol=protocol,
                auto_commit=False,
                max_poll_records=20,
                **READ_COMMITTED,
            ) as consumer,
        ):
            consumer.subscribe([topic])
            done = 0
            while done < 200:
                rounds += 1
                polled = records(await consumer.poll(1.0))
                if not polled:
                    continue
                try:
                    async with InBlocks(producer):
                        for record in polled:
                            await producer.send(target, record.value)
                        await producer.send_offsets(consumer)
                        if rounds % 3 == 0:
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    consumer.seek_to_committed()
                else:
                    done += len(polled)
        assert rounds > 10
        values = await committed_values(bootstrap, target, sdk, 200)
        assert sorted(int(value or b"") for value in values) == list(range(200))
        async with Admin(bootstrap) as admin:
            committed = await admin.committed_offsets(name)
        assert committed[TopicPartition(topic, 0)].offset == 200

    async def test_offsets_of_an_aborted_transaction_are_not_committed(
        self, bootstrap: str, topic: str, sdk: SdkClients, name: str
    ) -> None:
        async with sdk.producer(bootstrap, transactional_id=name) as producer:
            await producer.begin_transaction()
            await producer.send_offsets({(topic, 0): 5}, name)
            await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.send_offsets({(topic, 0): 9}, GroupMetadata(name))
            await producer.abort_transaction()
        async with Admin(bootstrap) as admin:
            assert (await admin.committed_offsets(name))[TopicPartition(topic, 0)].offset == 5


class TestVersion1:
    """A producer that does as with coordinators of transaction version 1 (Kafka before 4.0)."""

    @pytest.fixture(autouse=True)
    def without_features(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Connection, "feature", lambda *_: 0)

    async def test_commits_and_aborts(
        self, bootstrap: str, topic: str, sdk: SdkClients, name: str
    ) -> None:
        async with sdk.producer(bootstrap, transactional_id=name, linger_ms=0) as producer:
            for number in range(6):
                if number % 3 == 2:
                    with pytest.raises(ZeroDivisionError):
                        await fail_in(producer, topic, b"never", b"nor this")
                    continue
                async with InBlocks(producer):
                    await producer.send_many(topic, [b"%d" % number] * 5, partition=0)
                    await producer.send(topic, b"%d" % number, partition=1)
                    await producer.send_offsets({(topic, 0): number}, name)
        values = await committed_values(bootstrap, topic, sdk, 24)
        assert sorted(values, key=str) == sorted([b"%d" % n for n in (0, 1, 3, 4)] * 6, key=str)
        async with Admin(bootstrap) as admin:
            committed = await admin.committed_offsets(name)
        assert committed[TopicPartition(topic, 0)].offset == 4

    async def test_a_later_producer_fences_this_one(
        self, bootstrap: str, topic: str, sdk: SdkClients, name: str
    ) -> None:
        async with (
            sdk.producer(bootstrap, transactional_id=name, linger_ms=0) as first,
            sdk.producer(bootstrap, transactional_id=name, linger_ms=0) as second,
        ):
            await first.begin_transaction()
            await first.send_and_wait(topic, b"left open", partition=0)
            async with InBlocks(second):
                await second.send(topic, b"1", partition=0)
            with pytest.raises(ProducerFenced):
                await first.commit_transaction()
        assert await committed_values(bootstrap, topic, sdk, 1) == [b"1"]


class TestAdministration:
    async def test_transactions_are_listed_and_described(
        self, bootstrap: str, topic: str, sdk: SdkClients, name: str
    ) -> None:
        async with (
            sdk.producer(bootstrap, transactional_id=name, linger_ms=0) as producer,
            sdk.admin(bootstrap) as admin,
        ):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"1", partition=2)
            (listed,) = [
                one
                for one in await admin.list_transactions(states=["Ongoing"])
                if one.transactional_id == name
            ]
            described = await admin.describe_transaction(name)
            assert described.state == listed.state == "Ongoing"
            assert described.producer_id == listed.producer_id
            assert described.coordinator == listed.coordinator
            assert described.partitions == ((topic, 2),)
            assert described.timeout_ms == 60_000
            assert described.start_time is not None
            same = await admin.list_transactions(pattern=name, producer_ids=[listed.producer_id])
            assert same == [listed]
            lasting = await admin.list_transactions(pattern=name, min_duration_ms=600_000)
            assert lasting == []
            await producer.commit_transaction()

            async def is_complete() -> bool:
                state: str = (await admin.describe_transaction(name)).state
                return state == "CompleteCommit"

            await eventually(is_complete)
            assert (await admin.describe_transaction(name)).partitions == ()

    async def test_fencing_aborts_what_is_open(
        self, bootstrap: str, topic: str, sdk: SdkClients, name: str
    ) -> None:
        async with (
            sdk.producer(bootstrap, transactional_id=name, linger_ms=0) as producer,
            sdk.admin(bootstrap) as admin,
        ):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"never", partition=0)
            await admin.fence_producers([name])
            with pytest.raises(ProducerFenced):
                await producer.commit_transaction()
        assert await committed_values(bootstrap, topic, sdk, 0) == []

    async def test_a_transaction_with_a_coordinator_does_not_hang(
        self, bootstrap: str, topic: str, sdk: SdkClients, name: str
    ) -> None:
        async with (
            sdk.producer(bootstrap, transactional_id=name, linger_ms=0) as producer,
            sdk.admin(bootstrap) as admin,
        ):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"1", partition=0)
            places = [(topic, index) for index in range(3)]
            assert await admin.find_hanging_transactions(places, max_timeout_ms=0) == []
            (producers,) = [
                states for states in (await admin.describe_producers(places)).values() if states
            ]
            assert producers[0].transaction_start == 0
            await producer.commit_transaction()

    async def test_one_is_aborted_past_its_coordinator(
        self, bootstrap: str, topic: str, sdk: SdkClients, name: str
    ) -> None:
        """As is done with one that hangs: its partition alone hears of it."""
        place = TopicPartition(topic, 0)
        async with (
            sdk.producer(bootstrap, transactional_id=name, linger_ms=0) as producer,
            sdk.admin(bootstrap) as admin,
            sdk.consumer(bootstrap, **READ_COMMITTED) as consumer,
        ):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"never", partition=0)
            (state,) = (await admin.describe_producers([place]))[place]
            assert (await consumer.end_offsets([place]))[place] == 0
            await admin.abort_transaction(
                HangingTransaction(
                    topic=topic,
                    partition=0,
                    start_offset=state.transaction_start,
                    producer_id=state.producer_id,
                    producer_epoch=state.epoch,
                    coordinator_epoch=state.coordinator_epoch,
                    last_timestamp=state.last_timestamp,
                )
            )
            assert (await consumer.end_offsets([place]))[place] == 2
            (state,) = (await admin.describe_producers([place]))[place]
            assert state.transaction_start == -1
            await producer.abort_transaction()
        assert await committed_values(bootstrap, topic, sdk, 0) == []
