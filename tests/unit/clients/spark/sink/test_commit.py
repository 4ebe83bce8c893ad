"""Each batch of a query is published once, wherever its driver dies and whoever else is at it."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest

from qbus.clients import TopicPartition
from qbus.clients.spark.sink.history import StagingLost
from qbus.clients.spark.sink.ledger import GROUP_PREFIX
from qbus.clients.spark.sink.plan import TargetChanged
from qbus.records import read_header
from qbus.wire import ApiKey
from tests.support.fake_broker import FakeBroker
from tests.support.spark_staging import (
    ROW_PARTITIONS,
    STAGING,
    T0,
    T1,
    driver,
    published,
    sink_broker,
    stage,
)
from tests.support.waiting import eventually

ROWS = {T0: ["a", "b", "c"], T1: ["d", "e"]}
ALL = ["a", "b", "c", "d", "e"]
WRITES = {ApiKey.INIT_PRODUCER_ID, ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT}
"""A driver that dies between two of them leaves the same behind, wherever it was."""
GROUP = (f"{GROUP_PREFIX}q", STAGING, 0)


class Stop:
    """Halts a broker's client at one of its requests: before it is done, or before its answer."""

    def __init__(
        self, broker: FakeBroker, at: int, *, is_done: bool, apis: Collection[ApiKey] | None = None
    ) -> None:
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        self._left = at
        self._is_done = is_done
        self._broker = broker
        self._honest = dict(broker.handlers)
        for api in apis or set(broker.handlers) - {ApiKey.API_VERSIONS}:
            broker.handlers[api] = self._stopping(broker.handlers[api])

    def remove(self) -> None:
        """Let others through; whoever is halted stays so."""
        self._broker.handlers.update(self._honest)

    def _stopping(self, handler: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
        async def handle(request: Any) -> Any:
            self._left -= 1
            is_here = self._left == 0
            if is_here and not self._is_done:
                await self._halt()
            response = handler(request)
            if isinstance(response, Awaitable):
                response = await response
            if is_here and self._is_done:
                await self._halt()
            return response

        return handle

    async def _halt(self) -> None:
        self.reached.set()
        await self.go_on.wait()


async def until(stop: Stop, work: "asyncio.Task[None]") -> bool:
    """Whether ``stop`` was reached before ``work`` was done."""
    halted = asyncio.ensure_future(stop.reached.wait())
    await asyncio.wait([halted, work], return_when=asyncio.FIRST_COMPLETED)
    halted.cancel()
    return stop.reached.is_set()


async def commit(broker: FakeBroker, batch: int, rows: dict[TopicPartition, list[str]]) -> None:
    """What a driver that has just started does with newly staged rows."""
    staged = stage(broker, rows)
    async with driver(broker) as committer:
        await committer.commit("q", batch, staged)


def forget_producers(broker: FakeBroker) -> None:
    for log in broker.logs.values():
        log._known.clear()


async def test_staged_batches_are_published_in_order() -> None:
    async with sink_broker() as broker:
        await commit(broker, 0, ROWS)
        assert broker.logs["t", 0].values() == [b"a", b"b", b"c"]
        assert broker.logs["t", 1].values() == [b"d", b"e"]


async def test_batches_follow_under_one_producer() -> None:
    async with sink_broker() as broker:
        for number in range(3):
            await commit(broker, number, ROWS)
        headers = [read_header(batch) for batch in broker.logs["t", 0].batches]
        assert len({header.producer_id for header in headers}) == 1
        assert [header.base_sequence for header in headers] == list(range(9))
        assert published(broker) == sorted(ALL * 3)


async def test_a_batch_that_is_published_is_passed_over() -> None:
    async with sink_broker() as broker:
        await commit(broker, 4, ROWS)
        await commit(broker, 4, {T0: ["again"]})
        await commit(broker, 3, {T0: ["older"]})
        assert published(broker) == ALL


async def test_an_empty_batch_writes_no_manifest() -> None:
    async with sink_broker() as broker:
        await commit(broker, 0, {})
        assert broker.logs[STAGING, 0].end == 0
        await commit(broker, 1, ROWS)
        assert published(broker) == ALL


async def test_published_timestamps_are_the_original_ones() -> None:
    async with sink_broker() as broker, driver(broker) as committer:
        await committer.commit("q", 0, stage(broker, ROWS, shift=777))
        header = read_header(broker.logs["t", 0].batches[0])
        assert (header.base_timestamp, header.max_timestamp) == (1000, 1000)


@pytest.mark.parametrize("is_remembered", [True, False], ids=["remembered", "forgotten"])
async def test_a_driver_may_die_after_any_write(is_remembered: bool) -> None:
    """The next one publishes all of the batch once: its rows, or the dead one's."""
    at, died = 0, 0
    while died == at:
        at += 1
        async with sink_broker() as broker:
            stop = Stop(broker, at, is_done=True, apis=WRITES)
            first = asyncio.create_task(commit(broker, 7, {T0: ["a", "b"], T1: ["c"]}))
            if await until(stop, first):
                died += 1
                stop.remove()
                first.cancel()
                await asyncio.gather(first, return_exceptions=True)
            stop.remove()
            if not is_remembered:
                forget_producers(broker)
            await commit(broker, 7, {T0: ["A", "B"], T1: ["C"]})
            await commit(broker, 8, {T1: ["x"]})
            assert "".join(published(broker)) in {"abcx", "ABCx"}, f"killed after write {at}"
    assert died > 5


@pytest.mark.parametrize(
    ("before", "apis"),
    [({}, None), ({T0: ["w"]}, WRITES)],
    ids=["in its first batch", "later"],
)
async def test_an_old_driver_that_returns_does_no_harm(
    before: dict[TopicPartition, list[str]], apis: Collection[ApiKey] | None
) -> None:
    """It was halted, another did its batch, and later on the next: it does no harm."""
    at, halted = 0, 0
    while halted == at:
        at += 1
        async with sink_broker() as broker:
            await commit(broker, 0, before)
            stop = Stop(broker, at, is_done=False, apis=apis)
            first = asyncio.create_task(commit(broker, 1, {T0: ["a", "b"], T1: ["c"]}))
            is_halted = await until(stop, first)
            if is_halted:
                halted += 1
                stop.remove()
                await commit(broker, 1, {T0: ["A", "B"], T1: ["C"]})
                if before:
                    await commit(broker, 2, {T0: ["x"]})
            stop.remove()
            stop.go_on.set()
            await asyncio.gather(first, return_exceptions=True)
            await commit(broker, 3, {T0: ["y"]})
            others = ["w", "x", "y"] if before and is_halted else [*before.get(T0, []), "y"]
            found = published(broker)
            assert [value for value in found if value in "wxy"] == others, f"at request {at}"
            rows = "".join(value for value in found if value not in "wxy")
            assert rows in {"abc", "ABC"}, f"halted at request {at}"
    assert halted > 4


async def test_two_drivers_at_once_publish_one_batch() -> None:
    async with sink_broker() as broker:
        await asyncio.gather(
            *(commit(broker, 0, {T0: [name] * 3, T1: [name] * 2}) for name in "xyz")
        )
        assert "".join(published(broker)) in {"xxxxx", "yyyyy", "zzzzz"}


async def test_queries_do_not_disturb_each_other() -> None:
    async with sink_broker() as broker:
        first, second = stage(broker, {T0: ["a"]}), stage(broker, {T0: ["b"]})
        async with driver(broker) as one, driver(broker) as other:
            await asyncio.gather(one.commit("q", 0, first), other.commit("p", 0, second))
        assert published(broker) == ["a", "b"]


async def test_rows_of_tasks_that_did_not_commit_are_never_published() -> None:
    async with sink_broker() as broker:
        stage(broker, {T0: ["failed attempt"]})
        staged = stage(broker, ROWS)
        stage(broker, {T0: ["speculative attempt"]})
        async with driver(broker) as committer:
            await committer.commit("q", 0, staged)
        assert published(broker) == ALL


async def test_connections_may_break_all_the_time() -> None:
    async with sink_broker() as broker:
        staged = stage(broker, ROWS)
        async with driver(broker) as committer:
            work = asyncio.create_task(committer.commit("q", 0, staged))
            while not work.done():
                broker.hangup()
                await asyncio.sleep(0.02)
            await work
        assert published(broker) == ALL


async def test_manifests_too_large_for_a_record_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qbus.clients.spark.sink.manifest.split.__defaults__", (50,))
    async with sink_broker() as broker:
        await commit(broker, 0, ROWS)
        assert broker.logs[STAGING, 0].end > 5
        await commit(broker, 0, ROWS)
        await commit(broker, 1, ROWS)
        assert published(broker) == sorted(ALL * 2)


async def test_staged_rows_that_have_aged_out_are_named() -> None:
    async with sink_broker() as broker:
        staged = stage(broker, ROWS)
        for index in range(1, ROW_PARTITIONS + 1):
            log = broker.logs[STAGING, index]
            log.start, log.batches = log.end, []
        async with driver(broker) as committer:
            with pytest.raises(StagingLost, match=r"retention\.ms of staging"):
                await committer.commit("q", 0, staged)


async def test_a_manifest_that_has_aged_out_unpublished_is_an_error() -> None:
    async with sink_broker() as broker:
        await commit(broker, 0, ROWS)
        broker.noted[GROUP] = broker.noted[GROUP].replace("published", "bound")
        broker.logs[STAGING, 0].start = broker.logs[STAGING, 0].end
        with pytest.raises(StagingLost, match="batch 0 was being published"):
            await commit(broker, 1, ROWS)
        assert published(broker) == ALL


async def test_after_a_long_pause_a_query_continues_with_a_new_producer() -> None:
    async with sink_broker() as broker:
        await commit(broker, 0, ROWS)
        log = broker.logs[STAGING, 0]
        log.start, log.batches = log.end, []
        await commit(broker, 0, ROWS)
        await commit(broker, 1, ROWS)
        assert published(broker) == sorted(ALL * 2)


async def test_a_query_continues_with_a_new_staging_topic() -> None:
    async with sink_broker() as broker:
        for batch in range(3):
            await commit(broker, batch, ROWS)
        for partition in range(ROW_PARTITIONS + 1):
            broker.logs.pop((STAGING, partition), None)
        for batch in (2, 3):
            await commit(broker, batch, ROWS)
        assert published(broker) == sorted(ALL * 4)
        assert len(broker.logs[STAGING, 0].values()) == 1


async def test_a_topic_that_is_deleted_meanwhile_is_named() -> None:
    async with sink_broker() as broker:
        staged = stage(broker, ROWS)
        async with driver(broker) as committer:
            honest = broker.handlers[ApiKey.PRODUCE]

            def delete(request: Any) -> Any:
                if request.topic_data[0].name == "t":
                    broker.topics.pop("t", None)
                    return _refused(request)
                return honest(request)

            broker.handlers[ApiKey.PRODUCE] = delete
            with pytest.raises(TargetChanged, match="Create t again"):
                await committer.commit("q", 0, staged)
        broker.handlers[ApiKey.PRODUCE] = honest
        broker.topics["t"] = 2
        await commit(broker, 0, {T0: ["newly staged"]})
        assert published(broker) == ALL


async def test_a_partition_that_is_gone_before_all_is_decided_is_named() -> None:
    async with sink_broker() as broker:
        staged = stage(broker, ROWS)
        broker.topics["t"] = 1
        async with driver(broker) as committer:
            with pytest.raises(TargetChanged, match=r"batch 0 .*nothing of the batch is published"):
                await committer.commit("q", 0, staged)
        assert published(broker) == []


async def test_a_target_that_lost_records_is_an_error() -> None:
    async with sink_broker() as broker:
        await commit(broker, 0, ROWS)
        log = broker.logs["t", 0]
        log.truncate(1)
        for known in log._known.values():
            while len(known) > 1:
                known.pop()
        with pytest.raises(TargetChanged, match="lost acknowledged records"):
            await commit(broker, 1, ROWS)


async def test_the_group_shows_how_far_the_query_is() -> None:
    async with sink_broker() as broker:
        await commit(broker, 3, ROWS)
        await eventually(lambda: '"state":"published"' in broker.noted[GROUP])
        assert '"batch":3' in broker.noted[GROUP]


def _refused(request: Any) -> Any:
    from qbus.errors import ErrorCode
    from qbus.wire.messages.produce import (
        PartitionProduceResponse,
        ProduceResponse,
        TopicProduceResponse,
    )

    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(
                        index=part.index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    )
                    for part in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
