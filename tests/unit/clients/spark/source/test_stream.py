"""Planning of micro-batches, over a cluster that is made up."""

import re
import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from qbus.clients.spark.errors import CheckpointError, DataLoss
from qbus.clients.spark.options import OptionError
from qbus.clients.spark.schema import SchemaError, source_schema
from qbus.clients.spark.source import stream
from qbus.clients.spark.source.driver import to_commit
from qbus.clients.spark.source.loss import PartitionLog
from qbus.clients.spark.source.offsets import QueryOffsets
from qbus.clients.spark.source.options import SourceOptions
from qbus.clients.spark.source.stream import StreamReader
from qbus.clients.types import LATEST, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
SCHEMA = source_schema(include_headers=False)
ALL = ReadAllAvailable()
Marks = Mapping[TopicPartition, int]


class FakeDriver:
    """A cluster that holds what the test says."""

    bounds: dict[TopicPartition, PartitionLog]
    moments: list[dict[TopicPartition, PartitionLog]]
    comes: dict[TopicPartition, PartitionLog]
    committed: list[tuple[str, Marks]]
    waits: int

    def __init__(self, options: SourceOptions) -> None:
        assert options.subscription.names == ("a",)

    def logs(self) -> dict[TopicPartition, PartitionLog]:
        return dict(FakeDriver.moments.pop() if FakeDriver.moments else FakeDriver.bounds)

    def check_all_there(self, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        pass

    def resolve(self, chosen: Any, logs: Mapping[TopicPartition, PartitionLog]) -> dict[Any, int]:
        times = chosen.look_up(logs)
        found = {
            one: OffsetAndTimestamp(log.end if times[one] == LATEST else log.start, -1)
            for one, log in logs.items()
            if one in times
        }
        resolved: dict[Any, int] = chosen.resolve(logs, found, {})
        return resolved

    def wait(self, ends: Marks) -> None:
        assert ends.keys() == FakeDriver.bounds.keys()
        FakeDriver.waits += 1
        FakeDriver.bounds |= FakeDriver.comes

    def commit(self, group: str, reached: QueryOffsets) -> None:
        FakeDriver.committed.append((group, dict(reached.positions)))

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "Driver", FakeDriver)
    monkeypatch.setattr(stream, "_LOSS_CONFIRMED", 0.0)
    monkeypatch.setattr(stream, "_PAUSE", 0.0)
    FakeDriver.bounds = {A0: PartitionLog("id", 0, 100), A1: PartitionLog("id", 0, 300)}
    FakeDriver.moments = []
    FakeDriver.comes = {}
    FakeDriver.committed = []
    FakeDriver.waits = 0


def reader(**options: str) -> StreamReader:
    given = {"qbus.bootstrap": "127.0.0.1:9", "subscribe": "a", **options}
    return StreamReader(given, SCHEMA)


def ranges(reader: StreamReader, start: Any, end: Any) -> list[tuple[int, int, int]]:
    planned: list[Any] = list(reader.partitions(start, end))
    return [(one.partition, one.start, one.end) for one in planned]


def grow(**ends: int) -> None:
    """Let logs end later: ``p0=5``."""
    for name, end in ends.items():
        where = TopicPartition("a", int(name[1:]))
        FakeDriver.bounds[where] = FakeDriver.bounds.get(where, PartitionLog("id", 0, 0))._replace(
            end=end
        )


def test_a_query_reads_existing_and_then_new_records() -> None:
    query = reader(startingOffsets="earliest")
    start = query.initialOffset()
    first = query.latestOffset(start, ALL)
    assert ranges(query, start, first) == [(0, 0, 100), (1, 0, 300)]
    grow(p1=310)
    second = query.latestOffset(first, ALL)
    assert ranges(query, first, second) == [(1, 300, 310)]


def test_nothing_new_is_the_same_text_after_a_wait() -> None:
    query = reader()
    start = query.initialOffset()
    assert query.latestOffset(start, ALL) == start
    assert FakeDriver.waits == 1
    assert query.partitions(start, start) == []
    FakeDriver.comes = {A0: PartitionLog("id", 0, 101)}
    assert ranges(query, start, query.latestOffset(start, ALL)) == [(0, 100, 101)]


def test_a_first_batch_that_was_not_done_begins_where_it_first_began() -> None:
    query = reader(startingOffsets="latest")
    start = query.initialOffset()
    grow(p0=150)
    assert query.initialOffset() == start
    end = query.latestOffset(start, ALL)
    restarted = reader(startingOffsets="latest")
    assert ranges(restarted, restarted.initialOffset(), end) == [(0, 100, 150)]


def test_a_batch_has_at_most_the_configured_records() -> None:
    query = reader(startingOffsets="earliest", maxOffsetsPerTrigger="40")
    limit = query.getDefaultReadLimit()
    assert limit == ReadMaxRows(40)
    start = query.initialOffset()
    end = query.latestOffset(start, limit)
    assert ranges(query, start, end) == [(0, 0, 10), (1, 0, 30)]
    assert ranges(query, start, query.latestOffset(start, ALL)) == [(0, 0, 100), (1, 0, 300)]


def test_a_small_batch_waits_for_more_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    query = reader(minOffsetsPerTrigger="50", maxTriggerDelay="1m")
    assert query.getDefaultReadLimit() == ReadMinRows(50)
    start = query.initialOffset()
    grow(p0=149)
    assert query.latestOffset(start, ReadMinRows(50)) == start
    assert query.latestOffset(start, ALL) != start
    assert query.latestOffset(start, ReadMinRows(50)) == start
    now[0] += 60
    assert ranges(query, start, query.latestOffset(start, ReadMinRows(50))) == [(0, 100, 149)]
    grow(p0=150)
    assert query.latestOffset(start, ReadMinRows(50)) != start


def test_available_now_ends_where_the_log_ended_then() -> None:
    query = reader(startingOffsets="earliest", minOffsetsPerTrigger="1000")
    query.prepareForTriggerAvailableNow()
    start = query.initialOffset()
    grow(p0=150, p2=7)
    end = query.latestOffset(start, ALL)
    assert ranges(query, start, end) == [(0, 0, 100), (1, 0, 300)]
    assert query.latestOffset(end, ALL) == end
    assert FakeDriver.waits == 0


def test_available_now_never_moves_a_partition_back() -> None:
    query = reader(startingOffsets="earliest")
    since = query.latestOffset(query.initialOffset(), ALL)
    FakeDriver.moments = [{A0: PartitionLog("id", 0, 90)}]  # a leader that has just taken over
    query.prepareForTriggerAvailableNow()
    assert query.latestOffset(since, ALL) == since


def test_new_partitions_are_read_from_their_start() -> None:
    query = reader()
    start = query.initialOffset()
    grow(p2=5)
    end = query.latestOffset(start, ALL)
    assert ranges(query, start, end) == [(2, 0, 5)]


@pytest.mark.parametrize("is_first", [True, False])
def test_losses_stop_the_query_or_are_skipped(
    is_first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    since = reader(startingOffsets="earliest").initialOffset()
    if not is_first:
        since = reader(maxOffsetsPerTrigger="4").latestOffset(since, ReadMaxRows(4))
    FakeDriver.bounds[A0] = PartitionLog("id", 40, 100)
    with pytest.raises(DataLoss, match="a-0 begins at offset 40"):
        reader().latestOffset(since, ALL)
    lenient = reader(failOnDataLoss="false")
    end = lenient.latestOffset(since, ALL)
    assert ranges(lenient, since, end) == [(0, 40, 100), (1, 0 if is_first else 3, 300)]
    assert "data loss: a-0 begins at offset 40" in caplog.text


def test_records_lost_after_planning_stop_the_query() -> None:
    query = reader(startingOffsets="earliest")
    start = query.initialOffset()
    end = query.latestOffset(start, ALL)
    FakeDriver.bounds[A0] = PartitionLog("id", 40, 100)
    with pytest.raises(DataLoss, match="a-0 begins at offset 40"):
        query.partitions(start, end)
    del FakeDriver.bounds[A0]
    with pytest.raises(DataLoss, match="a-0 no longer exists"):
        query.partitions(start, end)


def test_brokers_that_tell_of_too_little_for_a_moment_are_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "_LOSS_CONFIRMED", 60.0)
    query = reader(startingOffsets="earliest")
    start = query.initialOffset()
    end = query.latestOffset(start, ALL)
    for moment in ({}, {A0: PartitionLog("id", 0, 90), A1: PartitionLog("id", 0, 300)}):
        FakeDriver.moments = [moment]
        assert ranges(query, start, end) == [(0, 0, 100), (1, 0, 300)]
        FakeDriver.moments = [moment]
        assert query.latestOffset(end, ALL) == end


def test_a_topic_created_again_is_read_from_its_start_if_that_is_wanted() -> None:
    query = reader()
    start = query.initialOffset()
    grow(p0=120)
    since = query.latestOffset(start, ALL)
    FakeDriver.bounds = {A0: PartitionLog("new", 0, 50)}
    with pytest.raises(DataLoss, match="created again"):
        query.latestOffset(since, ALL)
    lenient = reader(failOnDataLoss="false")
    end = lenient.latestOffset(since, ALL)
    assert ranges(lenient, since, end) == [(0, 0, 50)]
    assert reader().latestOffset(end, ALL) == end


def test_the_offsets_of_a_query_are_committed_to_its_group() -> None:
    query = reader(startingOffsets="earliest", groupIdPrefix="jobs")
    start = query.initialOffset()
    end = query.latestOffset(start, ALL)
    assert FakeDriver.committed == []
    query.latestOffset(end, ALL)
    query.commit(end)
    assert FakeDriver.committed == [(f"jobs-{start['#query']}", {A0: 100, A1: 300})]
    reader(**{"kafka.group.id": "ours"}).commit(end)
    assert FakeDriver.committed[1][0] == "ours"


def test_offsets_are_committed_for_the_topic_that_they_are_in() -> None:
    known, unknown = UUID(int=7), UUID(int=0)  # Kafka before 2.8 names no ids
    other = TopicPartition("b", 0)
    reached = QueryOffsets("q", {"a": str(known), "b": str(unknown)}, {A0: 5, other: 6})
    assert to_commit(reached) == {
        A0: OffsetAndMetadata(5, topic_id=known),
        other: OffsetAndMetadata(6),
    }


def test_a_new_query_is_named_after_what_it_reads() -> None:
    name = reader().initialOffset()["#query"]
    assert re.fullmatch(r"a-[0-9a-f]{8}", name)
    assert reader().initialOffset()["#query"] != name


def test_the_latest_offsets_are_reported() -> None:
    query = reader()
    assert query.reportLatestOffset() is None
    query.latestOffset(query.initialOffset(), ALL)
    latest = query.reportLatestOffset()
    assert latest is not None
    assert latest["a"] == {"0": 100, "1": 300}


def test_invalid_queries_are_refused_before_any_request() -> None:
    with pytest.raises(OptionError, match="streams do not end"):
        reader(endingOffsets="latest")
    with pytest.raises(OptionError, match="more than maxOffsetsPerTrigger"):
        reader(minOffsetsPerTrigger="2", maxOffsetsPerTrigger="1")
    with pytest.raises(SchemaError, match="no columns"):
        StreamReader({"qbus.bootstrap": "a:1", "subscribe": "a"}, type(SCHEMA)())
    with pytest.raises(CheckpointError):
        reader().latestOffset({"a": {"0": 1}}, ALL)
