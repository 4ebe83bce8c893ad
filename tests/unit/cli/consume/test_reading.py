"""Where reading starts, when it ends, and what a group is told of it."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any
from uuid import UUID

import pytest

from qbus.cli.consume import reading
from qbus.cli.consume.reading import Reading
from qbus.cli.consume.selection import Selection
from qbus.cli.failures import Failure
from qbus.cli.parameters import Position
from qbus.cli.targets import Target
from qbus.clients.errors import TopicDeleted
from qbus.clients.types import (
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionRecords,
    TopicPartition,
)
from qbus.clock import SystemClock
from qbus.errors import ApiError, ErrorCode
from qbus.records import ConsumerRecord, CorruptBatch, TimestampType

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
EARLIEST, LATEST = Position("earliest"), Position("latest")
T = Selection.parse(["t"])


class FakeConsumer:
    """A consumer of a topic whose partitions hold records from ``first`` to ``end``."""

    def __init__(self, first: dict[TopicPartition, int], end: dict[TopicPartition, int]) -> None:
        self.first, self.end = first, end
        self.times: dict[int, int] = {}
        self.options: dict[str, Any] = {}
        self.subscribed: list[str] = []
        self.positions: dict[TopicPartition, int | None] = {}
        self.group: dict[TopicPartition, int] = {}
        self.committed_offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self.commit_error: ApiError | None = None
        self.topic_id: UUID | None = None
        self.closed_with: bool | None = None
        self.batch_size = 2
        self.paused: set[TopicPartition] = set()
        self.asked_for_ends = 0
        self.damaged: list[CorruptBatch] = []
        self.unreachable: set[str] = set()

    def __call__(self, bootstrap: str, **options: Any) -> "FakeConsumer":
        self.options = options
        return self

    async def partitions(self, topic: str) -> list[TopicPartition]:
        if topic in self.unreachable:
            self.unreachable.clear()
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE)
        return sorted(p for p in self.first if p.topic == topic)

    async def beginning_offsets(self, of: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        if "its start" in self.unreachable:
            self.unreachable.clear()
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE)
        return {p: self.first[p] for p in of}

    async def end_offsets(self, of: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked_for_ends += 1
        return {p: self.end[p] for p in of}

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        return {p: OffsetAndTimestamp(self.times.get(at, -1), -1) for p, at in times.items()}

    def assign(self, partitions: Iterable[tuple[str, int, int | None]]) -> None:
        self.positions = {TopicPartition(t, i): at for t, i, at in partitions}
        self.paused.clear()

    def subscribe(self, topics: Iterable[str] | re.Pattern[str]) -> None:
        self.subscribed = [topics.pattern] if isinstance(topics, re.Pattern) else list(topics)
        self.positions = {p: self.group.get(p, self.first[p]) for p in self.first}
        self.paused.clear()

    @property
    def assignment(self) -> list[TopicPartition]:
        return sorted(self.positions)

    def position(self, partition: TopicPartition) -> int | None:
        return self.positions.get(partition)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused.update(partitions)

    async def seek_past(self, error: CorruptBatch) -> int:
        assert error.topic is not None
        assert error.partition is not None
        assert error.offset is not None
        self.positions[TopicPartition(error.topic, error.partition)] = error.offset + 2
        return 2

    async def poll(self, timeout: float) -> list[PartitionRecords]:
        await asyncio.sleep(0)
        for error in self.damaged:
            if self.positions[TopicPartition("t", error.partition or 0)] == error.offset:
                self.damaged.remove(error)
                raise error
        batches = []
        for partition, position in self.positions.items():
            if partition in self.paused:
                continue
            at = self.group.get(partition, self.first[partition]) if position is None else position
            stop = min(at + self.batch_size, self.end[partition])
            self.positions[partition] = stop
            if at < stop:
                records = [record(n) for n in range(at, stop)]
                batches.append(PartitionRecords(*partition, records, self.topic_id))
        await asyncio.sleep(0)
        return batches

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return {p: OffsetAndMetadata(self.group[p]) for p in partitions if p in self.group}

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if self.commit_error is not None:
            raise self.commit_error
        self.committed_offsets = dict(offsets)
        self.group |= {p: at.offset for p, at in offsets.items()}

    async def close(self, *, commit: bool) -> None:
        self.closed_with = commit


def record(offset: int) -> ConsumerRecord:
    return ConsumerRecord("t", 0, offset, 0, None, b"%d" % offset, (), TimestampType.CREATE_TIME)


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> FakeConsumer:
    consumer = FakeConsumer({P0: 10, P1: 0}, {P0: 15, P1: 3})
    monkeypatch.setattr(reading, "Consumer", consumer)
    return consumer


async def offsets(batches: AsyncIterator[PartitionRecords]) -> dict[TopicPartition, list[int]]:
    found: dict[TopicPartition, list[int]] = {}
    async for batch in batches:
        key = TopicPartition(batch.topic, batch.partition)
        found.setdefault(key, []).extend(record.offset for record in batch.records)
    return found


async def read(
    start: Position,
    group: str | None = None,
    partitions: tuple[int, ...] = (),
    until: Position | None = LATEST,
    count: int | None = None,
    topics: tuple[str, ...] = ("t",),
) -> dict[TopicPartition, list[int]]:
    selection = Selection.parse(topics, partitions)
    async with Reading(Target("b"), selection, group, start, until=until) as reading:
        await reading.open()
        return await offsets(reading.batches(count=count))


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (EARLIEST, {P0: [10, 11, 12, 13, 14], P1: [0, 1, 2]}),
        (LATEST, {}),
        (Position("offset", 13), {P0: [13, 14]}),
        (Position("offset", 2), {P0: [10, 11, 12, 13, 14], P1: [2]}),
        (Position("offset", 99), {}),
        (Position("time", 777), {}),
    ],
)
async def test_start_positions(
    consumer: FakeConsumer, start: Position, expected: dict[TopicPartition, list[int]]
) -> None:
    assert await read(start) == expected


async def test_a_time_is_the_first_record_from_then_on(consumer: FakeConsumer) -> None:
    consumer.times[500] = 12
    found = await read(Position("time", 500), partitions=(0,))
    assert found == {P0: [12, 13, 14]}


async def test_only_some_partitions(consumer: FakeConsumer) -> None:
    assert await read(EARLIEST, partitions=(1,)) == {P1: [0, 1, 2]}
    with pytest.raises(Failure, match="topic t has no partition 7"):
        await read(EARLIEST, partitions=(7,))


@pytest.mark.parametrize("count", [1, 2, 3, 8])
async def test_a_count_ends_it_exactly(consumer: FakeConsumer, count: int) -> None:
    found = await read(EARLIEST, until=None, count=count)
    assert sum(map(len, found.values())) == count


async def test_the_end_is_where_it_was_at_the_start(consumer: FakeConsumer) -> None:
    async with Reading(Target("b"), T, None, EARLIEST, until=LATEST) as reading:
        await reading.open()
        consumer.end = {P0: 100, P1: 100}
        assert await offsets(reading.batches()) == {
            P0: [10, 11, 12, 13, 14],
            P1: [0, 1, 2],
        }


async def test_a_group_subscribes_and_commits_processed_records(consumer: FakeConsumer) -> None:
    await read(EARLIEST, group="g")
    assert consumer.subscribed == ["t"]
    assert consumer.group == {P0: 15, P1: 3}
    assert consumer.closed_with is False


async def test_records_beyond_the_count_are_not_committed(consumer: FakeConsumer) -> None:
    await read(EARLIEST, group="g", until=None, count=3)
    assert sum(consumer.group.values()) - 10 == 3


async def test_a_batch_that_was_not_dealt_with_is_not_committed(consumer: FakeConsumer) -> None:
    async def read_until_the_pipe_breaks() -> None:
        async with Reading(Target("b"), T, "g", EARLIEST, until=LATEST) as reading:
            await reading.open()
            batches = reading.batches()
            await anext(batches)
            await anext(batches)
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        await read_until_the_pipe_breaks()
    assert consumer.group == {P0: 12}


async def test_without_a_group_nothing_is_committed(consumer: FakeConsumer) -> None:
    await read(EARLIEST)
    assert consumer.group == {}


async def test_only_partitions_that_are_still_ours_are_committed(consumer: FakeConsumer) -> None:
    async with Reading(Target("b"), T, "g", EARLIEST, until=LATEST) as reading:
        await reading.open()
        await offsets(reading.batches())
        del consumer.positions[P1]
    assert consumer.group == {P0: 15}


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS])
async def test_a_commit_after_a_rebalance_is_ignored(
    consumer: FakeConsumer, code: ErrorCode
) -> None:
    consumer.commit_error = ApiError(code)
    await read(EARLIEST, group="g")
    assert consumer.closed_with is False


async def test_offsets_are_committed_for_the_topic_that_their_records_are_of(
    consumer: FakeConsumer, capsys: pytest.CaptureFixture[str]
) -> None:
    consumer.topic_id = UUID(int=7)
    await read(EARLIEST, group="g")
    assert {at.topic_id for at in consumer.committed_offsets.values()} == {UUID(int=7)}
    consumer.group.clear()
    consumer.commit_error = TopicDeleted("offset 15 of t-0 is not committed: it was deleted")
    await read(EARLIEST, group="h")
    assert "offset 15 of t-0 is not committed" in capsys.readouterr().err


async def test_a_failed_commit_is_raised_after_the_consumer_is_closed(
    consumer: FakeConsumer,
) -> None:
    consumer.commit_error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
    with pytest.raises(ApiError):
        await read(EARLIEST, group="g")
    assert consumer.closed_with is False


@pytest.mark.parametrize(("start", "reset"), [(EARLIEST, "earliest"), (LATEST, "latest")])
async def test_a_new_group_starts_at_an_end(
    consumer: FakeConsumer, start: Position, reset: str
) -> None:
    await read(start, group="g", until=None, count=1)
    assert consumer.options["offset_reset"] == reset


async def test_a_new_group_starts_at_an_offset(consumer: FakeConsumer) -> None:
    found = await read(Position("offset", 13), group="g")
    assert found == {P0: [13, 14]}


async def test_an_existing_group_continues_at_its_offsets(consumer: FakeConsumer) -> None:
    consumer.group = {P0: 14, P1: 1}
    found = await read(Position("offset", 0), group="g")
    assert found == {P0: [14], P1: [1, 2]}


NOTE = (
    "qbus: group g goes on at its committed offsets: --from is for partitions without one"
    " ('qbus group reset-offsets' changes them)\n"
)


@pytest.mark.parametrize(
    ("start", "committed", "told"),
    [
        (EARLIEST, {P0: 14, P1: 1}, NOTE),
        (Position("offset", 3), {P0: 14, P1: 1}, NOTE),
        (EARLIEST, {P0: 14}, ""),
        (LATEST, {}, ""),
        (None, {P0: 14, P1: 1}, ""),
    ],
)
async def test_a_start_that_counts_for_no_partition_is_told(
    consumer: FakeConsumer,
    start: Position | None,
    committed: dict[TopicPartition, int],
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    consumer.group = committed
    async with Reading(Target("b"), T, "g", start, until=LATEST) as reading:
        await reading.open()
    assert capsys.readouterr().err == told


async def test_a_member_without_partitions_waits_until_the_others_are_done(
    consumer: FakeConsumer,
) -> None:
    async with Reading(Target("b"), T, "g", EARLIEST, until=LATEST) as reading:
        await reading.open()
        consumer.positions = {}
        polls = 0

        async def poll(timeout: float) -> list[PartitionRecords]:
            nonlocal polls
            polls += 1
            consumer.group = {P0: 12, P1: 3} if polls == 1 else {P0: 15, P1: 3}
            return []

        consumer.poll = poll  # type: ignore[method-assign]
        assert await offsets(reading.batches()) == {}
        assert polls == 2


async def test_an_empty_topic_is_at_its_end(consumer: FakeConsumer) -> None:
    consumer.first = consumer.end = {P0: 5, P1: 0}
    assert await read(EARLIEST, group="g") == {}


@pytest.mark.parametrize(
    ("until", "expected"),
    [
        (Position("offset", 12), {P0: [10, 11], P1: [0, 1, 2]}),
        (Position("offset", 2), {P1: [0, 1]}),
        (Position("time", 500), {P0: [10, 11], P1: [0, 1, 2]}),
        (Position("time", 777), {P0: [10, 11, 12, 13, 14], P1: [0, 1, 2]}),
    ],
)
async def test_reading_ends_before_an_offset_or_a_time(
    consumer: FakeConsumer, until: Position, expected: dict[TopicPartition, list[int]]
) -> None:
    consumer.times[500] = 12
    count = sum(map(len, expected.values()))  # partition 1 never comes to an offset 12
    assert await read(EARLIEST, until=until, count=count) == expected


async def test_an_offset_to_come_is_waited_for(consumer: FakeConsumer) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(read(EARLIEST, until=Position("offset", 12)), 0.05)


async def test_a_partition_that_has_reached_its_end_is_not_read_on(consumer: FakeConsumer) -> None:
    consumer.end = {P0: 1000, P1: 50}
    assert await read(EARLIEST, until=Position("offset", 20)) == {
        P0: list(range(10, 20)),
        P1: list(range(20)),
    }
    assert P0 in consumer.paused


async def test_a_time_to_come_is_waited_for(
    consumer: FakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([100, 100, 200, 300, 300])
    monkeypatch.setattr(SystemClock, "time_ms", lambda _: next(now))
    assert await read(EARLIEST, until=Position("time", 250)) == {
        P0: [10, 11, 12, 13, 14],
        P1: [0, 1, 2],
    }
    assert list(now) == []


async def test_ends_are_not_asked_for_before_the_time_has_come(
    consumer: FakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100
    monkeypatch.setattr(SystemClock, "time_ms", lambda _: now)
    async with Reading(Target("b"), T, None, EARLIEST, until=Position("time", 250)) as reading:
        await reading.open()
        consumer.asked_for_ends = 0
        batches = reading.batches()
        for _ in range(3):  # of two polls
            await anext(batches)
        assert consumer.asked_for_ends == 0
        now = 300
        assert await offsets(batches) == {P0: [14], P1: [2]}
        assert consumer.asked_for_ends == 1


def damaged(partition: TopicPartition, offset: int) -> CorruptBatch:
    return CorruptBatch(f"at {offset}", topic="t", partition=partition.partition, offset=offset)


async def test_damage_behind_the_end_is_none_of_its_business(consumer: FakeConsumer) -> None:
    consumer.damaged = [damaged(P0, 15)]
    consumer.end[P1] = 10
    assert await read(EARLIEST) == {P0: [10, 11, 12, 13, 14], P1: list(range(10))}
    assert consumer.damaged == []


async def test_damage_before_the_end_ends_it(consumer: FakeConsumer) -> None:
    consumer.damaged = [damaged(P0, 14)]
    with pytest.raises(Failure, match="--skip-corrupt reads on behind it"):
        await read(EARLIEST)


async def test_damage_may_be_skipped(
    consumer: FakeConsumer, capsys: pytest.CaptureFixture[str]
) -> None:
    consumer.damaged = [damaged(P0, 12)]
    async with Reading(Target("b"), T, None, EARLIEST, until=LATEST, skip_corrupt=True) as reading:
        await reading.open()
        found = await offsets(reading.batches())
    assert found == {P0: [10, 11, 14], P1: [0, 1, 2]}
    assert "skipped 2 offsets" in capsys.readouterr().err


async def test_several_topics(consumer: FakeConsumer) -> None:
    other = TopicPartition("u", 0)
    consumer.first[other], consumer.end[other] = 0, 2
    found = await read(EARLIEST, topics=("t", "u"))
    assert found == {P0: [10, 11, 12, 13, 14], P1: [0, 1, 2], other: [0, 1]}
    await read(EARLIEST, group="g", topics=("u", "t"))
    assert consumer.subscribed == ["u", "t"]


async def test_topics_by_pattern_and_those_that_come(
    consumer: FakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that is created meanwhile is read from its start, others from where they are."""
    there = ["t", "other"]
    monkeypatch.setattr(reading.Reading, "_names", lambda _: answer(there))
    monkeypatch.setattr(reading, "_FIND_INTERVAL_S", 0.0)
    new = TopicPartition("t2", 0)
    selection = Selection.parse(["^t"])
    async with Reading(Target("b"), selection, None, LATEST) as reads:
        await reads.open()
        consumer.end[P0] = 17
        batches = reads.batches()
        first = await anext(batches)
        assert [record.offset for record in first.records] == [15, 16]
        there.append("t2")
        consumer.first[new], consumer.end[new] = 0, 1
        second = await anext(batches)
        assert (second.topic, [record.offset for record in second.records]) == ("t2", [0])


@pytest.mark.parametrize("what", ["t2", "its start"])
async def test_a_topic_that_cannot_be_taken_up_yet_is_taken_up_later(
    consumer: FakeConsumer, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A topic that was just made may have no leader yet; a broker may restart."""
    there = ["t"]
    monkeypatch.setattr(reading.Reading, "_names", lambda _: answer(there))
    monkeypatch.setattr(reading, "_FIND_INTERVAL_S", 0.0)
    new = TopicPartition("t2", 0)
    async with Reading(Target("b"), Selection.parse(["^t"]), None, LATEST) as reads:
        await reads.open()
        there.append("t2")
        consumer.first[new], consumer.end[new] = 0, 1
        consumer.unreachable.add(what)
        found = await anext(reads.batches())
        assert (found.topic, [record.offset for record in found.records]) == ("t2", [0])
        assert not consumer.unreachable


async def answer(names: list[str]) -> list[str]:
    return names


async def test_a_group_subscribes_to_a_pattern(
    consumer: FakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading.Reading, "_names", lambda _: answer(["t", "tail", "x"]))
    consumer.first[TopicPartition("tail", 0)] = consumer.end[TopicPartition("tail", 0)] = 0
    await read(EARLIEST, group="g", topics=("^t",))
    (pattern,) = consumer.subscribed
    assert re.fullmatch(pattern, "tail")


async def test_no_topic_matches_yet(
    consumer: FakeConsumer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there: list[str] = []
    monkeypatch.setattr(reading.Reading, "_names", lambda _: answer(there))
    monkeypatch.setattr(reading, "_FIND_INTERVAL_S", 0.0)
    async with Reading(Target("b"), Selection.parse(["^t"]), None, EARLIEST) as reads:
        await reads.open()
        next_batch = asyncio.ensure_future(anext(reads.batches()))
        await asyncio.sleep(0.01)
        there.append("t")
        assert (await next_batch).topic == "t"
    assert capsys.readouterr().err == "qbus: no topic matches ^t: waiting for one\n"
