"""Micro-batches that tasks write in transactions: committed once, wherever the driver dies."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from qbus.clients import Producer, TopicPartition
from qbus.clients.prepared import PreparedTransaction
from qbus.clients.spark.options import OptionError
from qbus.clients.spark.sink.commit import TransactionsLost
from qbus.clients.spark.sink.ledger import GROUP_PREFIX
from qbus.clients.spark.sink.manifest import NOBODY, Manifest, decode, encode
from qbus.clients.spark.sink.options import SinkOptions
from qbus.clients.spark.sink.task import TaskOutput, TaskWriter
from qbus.errors import ErrorCode, QbusError
from qbus.wire import ApiKey
from qbus.wire.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from tests.support.fake_broker import FakeBroker
from tests.support.fake_transactions import FakeTransactions
from tests.support.spark_staging import STAGING, T0, driver, published, sink_broker, stage

WRITES = (ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT, ApiKey.END_TXN)
BOOKMARK = (f"{GROUP_PREFIX}q", STAGING, 0)


class World:
    """A broker with a coordinator, and tasks that fill transactions."""

    def __init__(self, broker: FakeBroker, version: int = 2) -> None:
        self.broker = broker
        self.coordinator = FakeTransactions(broker, version)
        self._tasks = 0

    async def task(self, *values: bytes) -> PreparedTransaction:
        """What a task hands over that has written ``values``."""
        self._tasks += 1
        async with Producer(
            self.broker.bootstrap, transactional_id=f"task-{self._tasks}", linger_ms=0
        ) as producer:
            await producer.begin_transaction()
            await producer.send_many("t", values, partition=0)
            prepared = await producer.transactions.hand_over()
        assert prepared is not None
        return prepared

    async def commit(self, batch: int, *prepared: PreparedTransaction) -> None:
        """What a driver does that has just started."""
        async with driver(self.broker) as committer:
            await committer.commit("q", batch, [], prepared)

    @property
    def committed(self) -> list[bytes | None]:
        """The values of all committed transactions."""
        return sorted((value for values in self.coordinator.committed for value in values), key=str)


@pytest.mark.parametrize("version", [1, 2])
async def test_what_tasks_have_written_is_committed_by_the_driver(version: int) -> None:
    async with sink_broker() as broker:
        world = World(broker, version)
        tasks = [await world.task(b"a", b"b"), await world.task(b"c")]
        assert world.committed == []
        await world.commit(0, *tasks)
        assert world.committed == [b"a", b"b", b"c"]
        await world.commit(1, await world.task(b"d"))
        assert world.committed == [b"a", b"b", b"c", b"d"]
        assert world.coordinator.aborted == []


async def test_a_batch_that_is_committed_already_is_aborted_when_it_comes_again() -> None:
    async with sink_broker() as broker:
        world = World(broker)
        await world.commit(4, await world.task(b"a"))
        await world.commit(4, await world.task(b"again"))
        await world.commit(3, await world.task(b"older"))
        assert world.committed == [b"a"]
        assert world.coordinator.aborted == [[b"again"], [b"older"]]


def stop(world: World, at: int, *, is_done: bool) -> asyncio.Event:
    """Halt the driver at one of its writes, before it is done or before its answer."""
    reached = asyncio.Event()
    left = at

    def stopping(handler: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
        async def handle(request: Any) -> Any:
            nonlocal left
            left -= 1
            is_here = left == 0
            response = handler(request) if is_done or not is_here else None
            if is_here:
                reached.set()
                await asyncio.Event().wait()
            return response

        return handle

    for api in WRITES:
        world.broker.handlers[api] = stopping(world.broker.handlers[api])
    return reached


@pytest.mark.parametrize("is_done", [True, False], ids=["done", "not done"])
@pytest.mark.parametrize("version", [1, 2])
async def test_a_driver_may_die_at_any_write(version: int, is_done: bool) -> None:
    """The next one commits the rows of the dead one, or those of the repeated tasks."""
    at, died = 0, 0
    while died == at:
        at += 1
        async with sink_broker() as broker:
            world = World(broker, version)
            await world.commit(0, await world.task(b"before"))
            tasks = [await world.task(b"a"), await world.task(b"b")]
            honest = dict(broker.handlers)
            reached = stop(world, at, is_done=is_done)
            dying = asyncio.ensure_future(world.commit(1, *tasks))
            halted = asyncio.ensure_future(reached.wait())
            await asyncio.wait([halted, dying], return_when=asyncio.FIRST_COMPLETED)
            died += reached.is_set()
            for task in (halted, dying):
                task.cancel()
            await asyncio.gather(halted, dying, return_exceptions=True)
            broker.handlers.update(honest)
            await world.commit(1, await world.task(b"a"), await world.task(b"b"))
            await world.commit(2, await world.task(b"after"))
            assert world.committed == sorted([b"before", b"a", b"b", b"after"], key=str)
    assert at > 5


async def test_a_batch_whose_transactions_are_gone_stops_the_query() -> None:
    async with sink_broker() as broker:
        world = World(broker)
        prepared = await world.task(b"a")
        world.coordinator.time_out(prepared.transactional_id)
        for _ in range(2):
            with pytest.raises(TransactionsLost, match=r"batch 0 of query q .* aborted"):
                await world.commit(0, prepared)
        assert '"state":"bound"' in broker.noted[BOOKMARK]


async def test_a_query_may_change_between_staging_and_transactions() -> None:
    async with sink_broker() as broker:
        world = World(broker)
        await world.commit(0, await world.task(b"1"))
        async with driver(broker) as committer:
            await committer.commit("q", 1, stage(broker, {T0: ["2", "3"]}))
        await world.commit(2, await world.task(b"4"))
        async with driver(broker) as committer:
            await committer.commit("q", 3, stage(broker, {T0: ["5"]}))
        assert published(broker) == ["1", "2", "3", "4", "5"]


async def test_without_a_query_the_transactions_are_committed_at_once() -> None:
    async with sink_broker() as broker:
        world = World(broker)
        task = await world.task(b"a")
        async with driver(broker) as committer:
            await committer.publish("q", [], [task])
        assert world.committed == [b"a"]
        assert broker.logs[STAGING, 0].end == 0


async def test_a_failed_batch_is_aborted_and_may_be_so_twice() -> None:
    async with sink_broker() as broker:
        world = World(broker)
        task = await world.task(b"a")
        async with driver(broker) as committer:
            await committer.abort([task])
            await committer.abort([task])
        assert (world.committed, world.coordinator.aborted) == ([], [[b"a"]])


async def test_a_task_without_rows_hands_nothing_over() -> None:
    async with sink_broker() as broker:
        FakeTransactions(broker)
        async with Producer(broker.bootstrap, transactional_id="x") as producer:
            await producer.begin_transaction()
            assert await producer.transactions.hand_over() is None
            with pytest.raises(QbusError, match="handed over"):
                await producer.begin_transaction()
            with pytest.raises(QbusError, match="handed over"):
                await producer.commit_transaction()


def test_a_manifest_names_its_transactions() -> None:
    manifest = Manifest(
        query="q",
        batch=3,
        attempt="x",
        previous=2,
        producer=NOBODY,
        staged=(),
        sequences={TopicPartition("t", 0): 5},
        ends={},
        topic_ids={},
        transactions=(PreparedTransaction("a", 1, 2, True), PreparedTransaction("b", 3, 4, False)),
    )
    assert decode(encode(manifest)) == manifest
    assert b'"version":2' in encode(manifest)


def test_the_options() -> None:
    cluster = {"kafka.bootstrap.servers": "h:1"}
    assert SinkOptions.of(cluster).is_staged
    found = SinkOptions.of({**cluster, "qbus.transactions": "true"})
    assert (found.is_staged, found.transaction_timeout_ms) == (False, 900_000)
    shorter = {"qbus.transactions": "true", "kafka.transaction.timeout.ms": "60000"}
    assert SinkOptions.of({**cluster, **shorter}).transaction_timeout_ms == 60_000
    both = {"qbus.transactions": "true", "qbus.exactly.once": "false"}
    with pytest.raises(OptionError, match=r"qbus\.transactions"):
        SinkOptions.of({**cluster, **both})


class TestTask:
    """What a task does with its rows."""

    @staticmethod
    def options(broker: FakeBroker) -> SinkOptions:
        return SinkOptions.of(
            {"kafka.bootstrap.servers": broker.bootstrap, "topic": "t", "qbus.transactions": "true"}
        )

    @staticmethod
    def without_limits(broker: FakeBroker) -> None:
        broker.handlers[ApiKey.DESCRIBE_CONFIGS] = lambda _: DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=None
                )
            ]
        )

    async def test_its_rows_go_to_their_topic_at_once_and_are_committed_later(self) -> None:
        async with sink_broker() as broker:
            world = World(broker)
            self.without_limits(broker)
            rows = pa.record_batch({"value": [b"a", b"b"], "key": [b"1", b"2"]})
            output = await asyncio.to_thread(TaskWriter(self.options(broker), "x").write, [rows])
            assert output.staged == ()
            assert output.prepared is not None
            assert output.prepared.transactional_id == "x"
            assert published(broker) == ["a", "b"]
            assert world.committed == []
            await world.commit(0, output.prepared)
            assert world.committed == [b"a", b"b"]

    async def test_a_row_that_cannot_be_written_aborts_the_others(self) -> None:
        async with sink_broker() as broker:
            world = World(broker)
            self.without_limits(broker)

            def rows() -> Iterator[pa.RecordBatch]:
                yield pa.record_batch({"value": [b"a" * 2_000_000]})
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await asyncio.to_thread(TaskWriter(self.options(broker), "x").write, rows())
            assert (world.committed, world.coordinator.aborted) == ([], [[b"a" * 2_000_000]])

    async def test_without_rows_there_is_nothing_to_commit(self) -> None:
        async with sink_broker() as broker:
            FakeTransactions(broker)
            output = await asyncio.to_thread(TaskWriter(self.options(broker), "x").write, [])
            assert output == TaskOutput()
