"""What a topic would refuse is found before it is staged."""

from typing import Any, cast

import pyarrow as pa
import pytest

from qbus.clients.spark.sink.gathering import Gatherer
from qbus.clients.spark.sink.routing import BadRow
from qbus.clients.spark.sink.rows import (
    check_due_times,
    check_orders,
    check_rows,
    now_ms,
    record_columns,
    shifted,
)
from qbus.clients.spark.sink.topics import TopicLimits
from qbus.clients.types import TopicPartition

DAY = 86_400_000
HOLDING = TopicLimits.of({"qbus.delay.enable": "true", "qbus.delay.max.ms": str(DAY)})


def times(*milliseconds: int) -> pa.RecordBatch:
    return pa.record_batch({"value": [b"v"] * len(milliseconds), "timestamp": list(milliseconds)})


def test_only_the_columns_of_records_are_kept_and_times_are_whole() -> None:
    stamps = pa.array([1_234_567, None], pa.timestamp("us", "UTC"))
    rows = pa.record_batch({"topic": ["t"] * 2, "timestamp": stamps, "value": [b"v"] * 2})
    before = now_ms()
    found = record_columns(rows)
    assert found.schema.names == ["value", "timestamp"]
    first, second = found.column("timestamp").to_pylist()
    assert first == 1234
    assert before <= second <= now_ms()


def test_the_latest_of_shifted_times_is_now() -> None:
    before = now_ms()
    moved, shift = shifted(pa.table({"value": [b"v"] * 2, "timestamp": [-5000, 7000]}))
    first, second = moved.column("timestamp").to_pylist()
    assert before <= second <= now_ms()
    assert (first - shift, second - shift) == (-5000, 7000)
    assert shifted(pa.table({"value": [b"v"]}))[1] == 0


def test_a_row_larger_than_the_topic_takes() -> None:
    limits = TopicLimits.of({"max.message.bytes": "1000"})
    small = [b"x" * 100] * 50
    check_rows("t", pa.record_batch({"value": small}), limits)
    with pytest.raises(BadRow, match=r"about 1[01]\d\d bytes.*max\.message\.bytes of t is 1000"):
        check_rows(
            "t", pa.record_batch({"value": [*small, b"x" * 500], "key": [b"k" * 500] * 51}), limits
        )


@pytest.mark.parametrize("keys", [{}, {"key": [b"k", None]}])
def test_a_compacted_topic_needs_keys(keys: dict[str, list[bytes | None]]) -> None:
    limits = TopicLimits.of({"cleanup.policy": "compact,delete"})
    with pytest.raises(BadRow, match="t is compacted"):
        check_rows("t", pa.record_batch({"value": [b"v", b"v"], **keys}), limits)
    check_rows("t", pa.record_batch({"value": [b"v"], "key": [b"k"]}), limits)


def test_times_too_far_from_now() -> None:
    config = {
        "message.timestamp.after.max.ms": str(DAY),
        "message.timestamp.before.max.ms": str(DAY),
    }
    limits, now = TopicLimits.of(config), now_ms()
    check_rows("t", times(now - DAY // 2, now + DAY // 2), limits)
    with pytest.raises(BadRow, match=r"ms after now.*after\.max\.ms of t"):
        check_rows("t", times(now, now + 2 * DAY), limits)
    with pytest.raises(BadRow, match=r"ms before now.*before\.max\.ms of t"):
        check_rows("t", times(now - 2 * DAY, now), limits)
    append_time = TopicLimits.of({**config, "message.timestamp.type": "LogAppendTime"})
    check_rows("t", times(0, now + 2 * DAY), append_time)


def test_rows_are_gathered_until_there_are_enough() -> None:
    rows = pa.record_batch({"value": [b"x" * 20]})
    gatherer = Gatherer(enough=2 * rows.nbytes, room=1000)
    one, other = TopicPartition("t", 0), TopicPartition("t", 1)
    assert list(gatherer.add(one, rows)) == []
    assert list(gatherer.add(other, rows)) == []
    ((target, full),) = gatherer.add(one, rows)
    assert (target, full.num_rows) == (one, 2)
    assert [(target, full.num_rows) for target, full in gatherer.rest()] == [(other, 1)]
    assert list(gatherer.rest()) == []


def test_held_rows_stay_within_the_memory_limit() -> None:
    gatherer = Gatherer(enough=1000, room=100)
    rows = pa.record_batch({"value": [b"x" * 20]})
    sent = [
        full for number in range(10) for full in gatherer.add(TopicPartition("t", number), rows)
    ]
    assert [target.partition for target, _ in sent] == list(range(len(sent)))
    assert 10 - len(sent) <= 100 // rows.nbytes


def test_a_time_to_deliver_at_becomes_a_header() -> None:
    due = pa.array([None, 1_700_000_000_123_456], pa.timestamp("us", "UTC"))
    own = pa.array(
        [[{"key": "a", "value": b"1"}], None],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    values = pa.array([b"now", b"later"])
    rows = pa.RecordBatch.from_arrays([values, due], names=["value", "deliver_at"])
    found = record_columns(rows)
    assert found.schema.names == ["value", "headers"]
    header = {"key": "qbus-deliver-at", "value": b"1700000000124"}
    assert found.column("headers").to_pylist() == [[], [header]]
    rows = pa.RecordBatch.from_arrays([values, own, due], names=["value", "headers", "deliver_at"])
    kept = {"key": "a", "value": b"1"}
    assert record_columns(rows).column("headers").to_pylist() == [[kept], [header]]


def test_a_time_to_deliver_at_that_the_topic_cannot_keep() -> None:
    def rows(*ahead_ms: int | None) -> pa.RecordBatch:
        times = [None if ms is None else (now_ms() + ms) * 1000 for ms in ahead_ms]
        due = pa.array(times, pa.timestamp("us", "UTC"))
        return pa.RecordBatch.from_arrays([due], names=["deliver_at"])

    deaf = TopicLimits.of({})
    check_due_times("t", rows(None, None), deaf)
    with pytest.raises(BadRow, match=r"qbus\.delay\.enable of t is false"):
        check_due_times("t", rows(None, 5), deaf)
    limits = TopicLimits.of({"qbus.delay.enable": "true", "qbus.delay.max.ms": "60000"})
    check_due_times("t", rows(None, 50_000, -5), limits)
    with pytest.raises(BadRow, match=r"in 70s, and qbus\.delay\.max\.ms of t \(60000\) allows 1m"):
        check_due_times("t", rows(None, 70_500), limits)
    with pytest.raises(BadRow, match="before 1970"):
        check_due_times("t", rows(-(10**13)), limits)


def with_headers(*rows: list[tuple[str, bytes]]) -> pa.RecordBatch:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = [[{"key": key, "value": value} for key, value in row] for row in rows]
    values = pa.array([b"v"] * len(rows))
    return pa.RecordBatch.from_arrays([values, pa.array(headers, kind)], ["value", "headers"])


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ([("qbus-delay", b"soon")], "'soon' is no duration"),
        ([("qbus-delay", b"9999d")], "in 9999d"),
        ([("qbus-delay", b"1s"), ("qbus-deliver-at", b"1")], "refused by t"),
        ([("qbus-cancel", b"nothing")], "is not an offset"),
    ],
)
def test_headers_that_the_topic_refuses(wrong: list[tuple[str, bytes]], why: str) -> None:
    rows = with_headers([], [("a", b"1")], [("qbus-delay", b"10s")], wrong)
    limits = TopicLimits.of({"qbus.delay.enable": "true", "qbus.delay.max.ms": "60000"})
    with pytest.raises(BadRow, match=why):
        check_orders("t", rows, rows, limits)
    check_orders("t", rows.slice(0, 3), rows.slice(0, 3), limits)
    check_orders("t", rows, rows, TopicLimits.of({}))  # where they are ordinary headers


def test_a_row_that_was_delayed_before_gets_its_new_time_alone() -> None:
    delayed = [("qbus-deliver-at", b"5"), ("a", b"1"), ("qbus-delay", b"5")]
    rows = with_headers(delayed, delayed)
    times = pa.array([1_700_000_000_000_000, None], pa.timestamp("us", "UTC"))
    rows = rows.append_column("deliver_at", times)
    first, second = record_columns(rows).column("headers").to_pylist()
    assert [(one["key"], one["value"]) for one in first] == [
        ("a", b"1"),
        ("qbus-deliver-at", b"1700000000000"),
    ]
    assert [(one["key"], one["value"]) for one in second] == delayed


def due_in(*ahead_ms: int | None) -> pa.Array:
    times = [None if ms is None else (now_ms() + ms) * 1000 for ms in ahead_ms]
    return pa.array(times, pa.timestamp("us", "UTC"))


class Untouchable:
    """Records that nobody may look at one by one."""


def test_the_header_of_the_column_of_times_needs_no_look_at_each_row() -> None:
    rows = with_headers([("a", b"1")], [("qbus-delayed-offset", b"5")])
    rows = rows.append_column("deliver_at", due_in(5000, 5000))
    assert [len(row) for row in record_columns(rows).column("headers").to_pylist()] == [2, 2]
    check_orders("t", rows, cast("pa.RecordBatch", Untouchable()), HOLDING)
    check_orders("t", rows.drop_columns("headers"), cast("pa.RecordBatch", Untouchable()), HOLDING)


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ([("qbus-cancel", b"5")], "stands alone"),
        ([("qbus-ttl", b"soon")], "no duration"),
        ([("qbus-reschedule", b"key")], "not an offset"),
        ([("qbus-reschedule", b"5")], None),
        ([("qbus-ttl", b"5s")], None),
        ([("qbus-delay", b"nonsense")], None),  # the column's time takes its place
    ],
)
def test_headers_beside_the_column_of_times(own: list[tuple[str, bytes]], why: str | None) -> None:
    rows = with_headers([], own, []).append_column("deliver_at", due_in(None, 5000, 5000))
    records = record_columns(rows)
    if why is None:
        check_orders("t", rows, records, HOLDING)
        return
    with pytest.raises(BadRow, match=why):
        check_orders("t", rows, records, HOLDING)


def test_the_limit_and_what_is_over_it_are_not_told_alike() -> None:
    limits = TopicLimits.of({"qbus.delay.enable": "true", "qbus.delay.max.ms": str(730 * DAY)})
    rows = pa.RecordBatch.from_arrays([due_in(730 * DAY + DAY // 5)], ["deliver_at"])
    with pytest.raises(BadRow, match=rf"in 630\d+ms, and .* allows {730 * DAY}ms"):
        check_due_times("t", rows, limits)


KEY, VALUE = pa.field("key", pa.string()), pa.field("value", pa.binary())


@pytest.mark.parametrize(
    "kind",
    [
        pa.map_(pa.string(), pa.binary()),
        pa.list_(pa.struct([VALUE, KEY])),
        pa.large_list(pa.struct([KEY, VALUE])),
        pa.list_(pa.struct([("key", pa.large_string()), ("value", pa.string())])),
    ],
    ids=str,
)
@pytest.mark.parametrize("has_times", [False, True])
def test_headers_of_every_kind(kind: pa.DataType, has_times: bool) -> None:
    own: Any = [
        [("z", b"0")],
        [("qbus-delay", b"1s"), ("a", b"1")],
        None,
        [("qbus-delay", b"soon")],
    ]
    if not pa.types.is_map(kind):
        own = [row and [{"key": key, "value": value} for key, value in row] for row in own]
    rows = pa.RecordBatch.from_arrays([pa.array([b"v"] * 4), pa.array(own, kind)], NAMES).slice(1)
    if has_times:
        rows = rows.append_column("deliver_at", due_in(5000, None, None))
    records = record_columns(rows)
    found = [
        [(one["key"], one["value"]) for one in row or ()]
        for row in records.column("headers").to_pylist()
    ]
    first = [("a", b"1")] if has_times else [("qbus-delay", b"1s"), ("a", b"1")]
    assert [found[0][: len(first)], *found[1:]] == [first, [], [("qbus-delay", b"soon")]]
    assert [name for name, _ in found[0][len(first) :]] == ["qbus-deliver-at"] * has_times
    check_orders("t", rows.slice(0, 2), records.slice(0, 2), HOLDING)
    with pytest.raises(BadRow, match="no duration"):
        check_orders("t", rows, records, HOLDING)


NAMES = ["value", "headers"]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.struct([("k", pa.string()), ("v", pa.binary())])),
        pa.list_(pa.struct([KEY, VALUE, ("more", pa.string())])),
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.list_(pa.binary()))])),
        pa.list_(pa.string()),
        pa.string(),
    ],
    ids=str,
)
def test_headers_that_are_none(kind: pa.DataType) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([b"v"]), pa.nulls(1, kind)], NAMES)
    for use in (rows, rows.append_column("deliver_at", due_in(5))):
        with pytest.raises(BadRow, match="list<struct<key, value>> is needed"):
            record_columns(use)
        with pytest.raises(BadRow, match="list<struct<key, value>> is needed"):
            check_orders("t", use, use, HOLDING)
