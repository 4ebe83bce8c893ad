"""The consumer: everything from the position on, once, in order, wherever the broker fails."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from qbus.clients import (
    EARLIEST,
    LATEST,
    Consumer,
    ConsumerRecord,
    NoOffset,
    OffsetAndMetadata,
    TopicPartition,
)
from qbus.clients.consumer import consumer as consumer_module
from qbus.errors import ApiError, ConfigError, ErrorCode, QbusError
from qbus.records import CorruptBatch, TimestampType, build_batch
from qbus.wire import ApiKey
from tests.support.fake_broker import FakeBroker, Hangup
from tests.support.polling import flat

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def store(broker: FakeBroker, values: Iterable[bytes], partition: int = 0) -> None:
    batch = build_batch([(None, value, (), 5) for value in values])
    broker.logs["t", partition].append(bytes(batch))
    broker._appended.set()


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def read(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    for _ in range(500):
        found += [record.value for record in flat(await consumer.poll(0.05))]
        if len(found) >= count:
            return found
    raise AssertionError(f"{len(found)} of {count} records")


def consumer_of(broker: FakeBroker, **options: Any) -> Consumer:
    options.setdefault("fetch_max_wait_ms", 20)
    return Consumer(broker.bootstrap, **options)


@pytest.mark.parametrize("max_records", [0, -1])
async def test_a_poll_for_no_records_is_refused(max_records: int) -> None:
    async with FakeBroker() as broker, consumer_of(broker) as consumer:
        with pytest.raises(ConfigError, match=f"at least 1 record, not {max_records}"):
            await consumer.poll(0.1, max_records=max_records)


async def test_a_record_has_everything() -> None:
    async with FakeBroker() as broker, consumer_of(broker) as consumer:
        broker.logs["t", 0].append(bytes(build_batch([(b"k", b"v", (("h", None),), 5)])))
        consumer.assign([("t", 0, 0)])
        records: list[ConsumerRecord] = []
        while not records:
            records = flat(await consumer.poll(0.05))
        assert records == [("t", 0, 0, 5, b"k", b"v", (("h", None),), TimestampType.CREATE_TIME)]
        assert consumer.position("t", 0) == 1


@pytest.mark.parametrize(
    ("offset", "expected"), [(0, 5), (3, 2), (EARLIEST, 5), (LATEST, 0), (5, 0), (None, 5)]
)
async def test_assigned_partitions_are_read_from_their_offsets(
    offset: int | None, expected: int
) -> None:
    async with FakeBroker() as broker, consumer_of(broker, offset_reset="earliest") as consumer:
        store(broker, numbers(5))
        consumer.assign([("t", 0, offset)])
        assert await read(consumer, expected) == numbers(5)[5 - expected :]
        while consumer.position("t", 0) is None:
            await consumer.poll(0.01)
        store(broker, [b"new"])
        assert await read(consumer, 1) == [b"new"]


async def test_every_partition_of_a_topic_and_records_that_come_later() -> None:
    async with FakeBroker({"t": 3}) as broker, consumer_of(broker) as consumer:
        consumer.subscribe(["t"])
        while len(consumer.assignment) < 3 or None in [consumer.position("t", i) for i in range(3)]:
            await consumer.poll(0.02)
        assert consumer.assignment == [("t", 0), ("t", 1), ("t", 2)]
        for partition in range(3):
            store(broker, numbers(10), partition)
        assert sorted(map(str, await read(consumer, 30))) == sorted(map(str, numbers(10) * 3))
        store(broker, [b"later"], 2)
        assert await read(consumer, 1) == [b"later"]


async def test_batches_by_partition() -> None:
    async with FakeBroker({"t": 2}) as broker, consumer_of(broker) as consumer:
        store(broker, numbers(3), 0)
        store(broker, numbers(4), 1)
        consumer.assign([("t", 0, 0), ("t", 1, 0)])
        found: dict[int, list[bytes | None]] = {0: [], 1: []}
        while sum(map(len, found.values())) < 7:
            for batch in await consumer.poll(0.05):
                assert batch.topic == "t"
                found[batch.partition] += [record.value for record in batch]
        assert found == {0: numbers(3), 1: numbers(4)}


async def test_a_poll_returns_at_most_max_records_and_loses_none() -> None:
    async with FakeBroker({"t": 2}) as broker, consumer_of(broker, max_poll_records=7) as consumer:
        for partition in range(2):
            store(broker, numbers(50), partition)
        consumer.assign([("t", 0, 0), ("t", 1, 0)])
        seen: dict[int, list[bytes | None]] = {0: [], 1: []}
        while sum(map(len, seen.values())) < 100:
            records = flat(await consumer.poll(0.05))
            assert len(records) <= 7
            for record in records:
                seen[record.partition].append(record.value)
        assert seen == {0: numbers(50), 1: numbers(50)}


async def test_iterating_polls_the_group_regularly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with FakeBroker({"t": 1}) as broker, consumer_of(broker, max_poll_records=7) as consumer:
        store(broker, numbers(20))
        consumer.assign([("t", 0, 0)])
        values: list[bytes | None] = []
        given: list[int] = []
        run = consumer._coordinator.run

        async def counted() -> None:
            given.append(len(values))
            await run()

        monkeypatch.setattr(consumer._coordinator, "run", counted)
        monkeypatch.setattr(consumer_module, "TURN", 0.0)  # as for a slow user
        async for record in consumer:
            values.append(record.value)
            if len(values) == 20:
                break
        assert values == numbers(20)
        assert sorted(set(given)) == [0, 7, 14]


async def test_the_next_reader_continues_after_the_last_record_of_a_loop() -> None:
    async with FakeBroker() as broker, consumer_of(broker, max_poll_records=7) as consumer:
        store(broker, numbers(30))
        consumer.assign([("t", 0, 0)])
        seen: list[bytes | None] = []
        while len(seen) < 30:
            async for record in consumer:
                seen.append(record.value)
                if len(seen) % 5 == 3:
                    break
            seen += [record.value for record in flat(await consumer.poll(5.0, 2))]
        assert seen == numbers(30)


async def test_a_loop_yields_nothing_of_a_partition_paused_inside_it() -> None:
    async with FakeBroker({"t": 2}) as broker, consumer_of(broker) as consumer:
        store(broker, numbers(20), 0)
        store(broker, numbers(20), 1)
        consumer.assign([("t", 0, 0), ("t", 1, 0)])
        seen: list[tuple[int, bytes | None]] = []
        async for record in consumer:
            seen.append((record.partition, record.value))
            if len(seen) == 3:
                consumer.pause([TopicPartition("t", record.partition)])
            if len(seen) == 23:
                consumer.resume(consumer.paused)
            if len(seen) == 40:
                break
        one, other = seen[0][0], seen[3][0]
        assert seen[:3] + seen[23:] == [(one, value) for value in numbers(20)]
        assert seen[3:23] == [(other, value) for value in numbers(20)]


async def test_a_loop_continues_after_records_polled_inside_it() -> None:
    async with FakeBroker() as broker, consumer_of(broker, max_poll_records=7) as consumer:
        store(broker, numbers(30))
        consumer.assign([("t", 0, 0)])
        seen: list[bytes | None] = []
        async for record in consumer:
            seen.append(record.value)
            if len(seen) == 3:
                seen += [inner.value for inner in flat(await consumer.poll(5.0, 4))]
            if len(seen) == 10:
                inner_loop = aiter(consumer)
                seen += [(await anext(inner_loop)).value for _ in range(5)]
            if len(seen) >= 30:
                break
        assert seen == numbers(30)


async def test_a_loop_may_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeBroker() as broker, consumer_of(broker) as consumer:
        store(broker, numbers(5))
        consumer.assign([("t", 0, 0)])
        runs, closed = consumer._runs, []

        async def watched() -> AsyncIterator[Iterator[ConsumerRecord]]:
            try:
                async for run in runs():
                    yield run
            finally:
                closed.append(True)

        monkeypatch.setattr(consumer, "_runs", watched)
        async with aclosing(aiter(consumer)) as records:
            assert (await anext(records)).value == b"0"
        assert closed == [True]
        assert [record async for record in records] == []
        assert await read(consumer, 4) == numbers(5)[1:]


async def test_a_poll_keeps_to_its_time_out() -> None:
    async with FakeBroker() as broker, consumer_of(broker) as consumer:
        broker.handlers[ApiKey.METADATA] = lambda _: asyncio.sleep(60)
        consumer.assign([("t", 0, 0)])
        async with asyncio.timeout(1.0):
            assert await consumer.poll(0.02) == []
            assert await consumer.poll(0) == []


async def test_seeking_drops_what_was_fetched() -> None:
    async with FakeBroker() as broker, consumer_of(broker, max_poll_records=1) as consumer:
        store(broker, numbers(5))
        consumer.assign([("t", 0, 3)])
        assert await read(consumer, 1) == [b"3"]
        consumer.seek("t", 0, 1)
        assert await read(consumer, 1) == [b"1"]
        consumer.seek("t", 0, EARLIEST)
        assert await read(consumer, 2) == [b"0", b"1"]
        with pytest.raises(QbusError):
            consumer.seek("t", 9, 0)


@pytest.mark.parametrize(("reset", "expected"), [("earliest", b"0"), ("latest", b"new")])
async def test_an_offset_that_is_gone_is_reset(reset: Any, expected: bytes) -> None:
    async with FakeBroker() as broker, consumer_of(broker, offset_reset=reset) as consumer:
        store(broker, numbers(5))
        consumer.assign([("t", 0, 100)])
        for _ in range(20):
            if (consumer.position("t", 0) or 100) < 100:
                break
            records = flat(await consumer.poll(0.02))
            if records:
                assert records[0].value == expected
                return
        store(broker, [b"new"])
        assert (await read(consumer, 1))[0] == expected


async def test_without_offset_reset_a_deleted_offset_is_an_error() -> None:
    async with FakeBroker() as broker, consumer_of(broker, offset_reset="none") as consumer:
        consumer.assign([("t", 0, 100)])
        with pytest.raises(NoOffset, match="t-0"):
            await read(consumer, 1)
        consumer.assign([("t", 0, None)])
        with pytest.raises(NoOffset):
            await read(consumer, 1)


async def test_records_before_damage_are_read_and_no_others() -> None:
    async with FakeBroker() as broker, consumer_of(broker) as consumer:
        store(broker, numbers(2))
        store(broker, numbers(2))
        damaged = bytearray(broker.logs["t", 0].batches[1])
        damaged[-1] ^= 1
        broker.logs["t", 0].batches[1] = bytes(damaged)
        consumer.assign([("t", 0, 0)])
        assert await read(consumer, 2) == numbers(2)
        for _ in range(2):
            with pytest.raises(CorruptBatch, match="t-0 at offset 2"):
                await read(consumer, 1)
        assert consumer.position("t", 0) == 2


@pytest.mark.parametrize("what", ["hang up", ErrorCode.NOT_LEADER_OR_FOLLOWER])
async def test_what_passes_is_tried_again(what: str | ErrorCode) -> None:
    async with FakeBroker() as broker, consumer_of(broker) as consumer:
        store(broker, numbers(5))
        honest = broker.fetch
        failures = 3

        async def fetch(request: Any) -> Any:
            nonlocal failures
            failures -= 1
            if failures < 0:
                return await honest(request)
            if what == "hang up":
                raise Hangup
            response = broker._fetched(request)
            response.responses[0].partitions[0].error_code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return response

        broker.handlers[ApiKey.FETCH] = fetch
        consumer.assign([("t", 0, 0)])
        assert await read(consumer, 5) == numbers(5)
        assert len(broker.asked(ApiKey.METADATA)) > 1, "the leader may have moved"


async def test_what_does_not_pass_is_told() -> None:
    async with FakeBroker() as broker, consumer_of(broker) as consumer:

        def refuse(request: Any) -> Any:
            response = broker._fetched(request)
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            response.responses[0].partitions[0].error_code = int(code)
            return response

        broker.handlers[ApiKey.FETCH] = refuse
        consumer.assign([("t", 0, 0)])
        with pytest.raises(ApiError, match="t-0") as caught:
            await read(consumer, 1)
        assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_fetching_goes_on_while_the_user_works() -> None:
    async with FakeBroker() as broker, consumer_of(broker) as consumer:
        store(broker, numbers(5))
        consumer.assign([("t", 0, 0)])
        await read(consumer, 5)
        store(broker, [b"next"])
        await asyncio.sleep(0.1)
        assert [record.value for record in flat(await consumer.poll(0))] == [b"next"]


async def test_offsets_are_committed_and_found_again() -> None:
    async with FakeBroker() as broker:
        store(broker, numbers(5))
        async with consumer_of(broker, group="g", auto_commit=False) as consumer:
            consumer.assign([("t", 0, 0)])
            await read(consumer, 5)
            await consumer.commit({P0: OffsetAndMetadata(3)})
            assert await consumer.committed() == {P0: OffsetAndMetadata(3)}
            assert await consumer.committed([P1]) == {}
        async with consumer_of(broker, group="g", auto_commit=False) as consumer:
            consumer.assign([("t", 0, None)])
            assert await read(consumer, 2) == [b"3", b"4"]
            await consumer.commit()
        assert broker.committed == {("g", "t", 0): 5}


async def test_an_offset_to_commit_may_be_a_number_and_a_partition_a_pair() -> None:
    async with FakeBroker() as broker, consumer_of(broker, group="g") as consumer:
        consumer.assign([("t", 0, 0)])
        await consumer.commit({("t", 0): 3})
        assert broker.committed == {("g", "t", 0): 3}
        await consumer.commit_nowait({P0: 4})
        assert broker.committed == {("g", "t", 0): 4}
        with pytest.raises(TypeError, match=r"an offset is a number or an .*, not str"):
            await consumer.commit({P0: "4"})  # type: ignore[dict-item]
        with pytest.raises(TypeError):
            consumer.commit_nowait({P0: None})  # type: ignore[dict-item]


async def test_a_partition_that_is_given_twice_is_refused() -> None:
    async with FakeBroker() as broker, consumer_of(broker) as consumer:
        consumer.assign([P0, P1])
        with pytest.raises(TypeError, match="which partition: t-0, or 1"):
            consumer.seek(P0, 1, 5)
        with pytest.raises(TypeError, match="which partition: t-0, or 1"):
            consumer.position(P0, 1)


async def test_automatic_commits_cover_what_polls_returned() -> None:
    async with FakeBroker() as broker:
        store(broker, numbers(5))
        consumer = consumer_of(broker, group="g", auto_commit_interval_ms=10, max_poll_records=2)
        async with consumer:
            consumer.assign([("t", 0, 0)])
            assert len(await read(consumer, 2)) == 2
            await asyncio.sleep(0.02)
            assert len(flat(await consumer.poll(0))) == 2
            await asyncio.sleep(0.02)
            assert broker.committed == {("g", "t", 0): 2}, "not what is still being worked on"
        assert broker.committed == {("g", "t", 0): 4}


async def test_an_error_inside_the_block_commits_nothing() -> None:
    async with FakeBroker() as broker:
        store(broker, numbers(5))
        with contextlib.suppress(RuntimeError):
            async with consumer_of(broker, group="g") as consumer:
                consumer.assign([("t", 0, 0)])
                await read(consumer, 5)
                raise RuntimeError
        assert broker.committed == {}


async def test_without_a_group_there_is_nothing_to_commit_to() -> None:
    async with FakeBroker() as broker, consumer_of(broker) as consumer:
        with pytest.raises(ConfigError):
            await consumer.commit()
        with pytest.raises(ConfigError):
            await consumer.committed([P0])


async def test_ends_of_partitions() -> None:
    async with FakeBroker({"t": 2}) as broker, consumer_of(broker) as consumer:
        store(broker, numbers(5), 1)
        assert await consumer.partitions("t") == [P0, P1]
        assert await consumer.end_offsets([P0, P1]) == {P0: 0, P1: 5}
        assert await consumer.beginning_offsets([P1]) == {P1: 0}
        with pytest.raises(ApiError):
            await consumer.partitions("missing")


async def test_a_subscription_and_an_assignment_exclude_each_other() -> None:
    async with FakeBroker() as broker, consumer_of(broker) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(QbusError, match="subscribed"):
            consumer.assign([("t", 0, 0)])


async def test_a_topic_that_appears_later_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qbus.clients.consumer.coordinator._REFRESH_INTERVAL", 0.02)
    async with FakeBroker({}) as broker, consumer_of(broker, offset_reset="earliest") as consumer:
        broker.topics.clear()
        consumer.subscribe(["t"])
        assert await consumer.poll(0.05) == []
        broker.topics["t"] = 1
        store(broker, numbers(3))
        assert await read(consumer, 3) == numbers(3)


def test_options_are_checked() -> None:
    reset: Any = "middle"
    with pytest.raises(ConfigError):
        Consumer("127.0.0.1:1", offset_reset=reset)
    with pytest.raises(ConfigError, match="consumer_timeout_ms is above 0, not 0"):
        Consumer("127.0.0.1:1", consumer_timeout_ms=0)


async def test_a_paused_partition_does_not_block_the_others() -> None:
    async with (
        FakeBroker({"t": 2}) as broker,
        consumer_of(broker, prefetch_bytes=2000, max_poll_records=1) as consumer,
    ):
        for partition in range(2):
            store(broker, [bytes(1500), bytes(1500)], partition)
        consumer.assign([("t", 0, 0), ("t", 1, 0)])
        first = (await read_records(consumer, 1))[0].partition
        consumer.pause([TopicPartition("t", first)])
        store(broker, [b"later"], 1 - first)
        others = await read_records(consumer, 3)
        assert {record.partition for record in others} == {1 - first}
        consumer.resume([TopicPartition("t", first)])
        (rest,) = await read_records(consumer, 1)
        assert (rest.partition, rest.offset) == (first, 1)


async def read_records(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    for _ in range(500):
        found += flat(await consumer.poll(0.05))
        if len(found) >= count:
            return found
    raise AssertionError(f"{len(found)} of {count} records")
