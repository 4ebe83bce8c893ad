"""The document of an audit."""

from datetime import UTC, datetime
from typing import Any

from qbus.clients.pipelines.audit.report import Report, Verdict, interval_rows
from qbus.clients.pipelines.audit.sides import aligned, offsets_json
from qbus.clients.types import TopicPartition

START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
HOUR = 3_600_000_000
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def sums(*, equal: bool, left: int | None = 3, right: int | None = 3) -> dict[str, Any]:
    return {
        "topic": "t", "partition": 0, "start": START, "equal": equal,
        "left_count": left, "right_count": right,
    }  # fmt: skip


def key(**more: Any) -> dict[str, Any]:
    return {"topic": "t", "partition": 0, "start": START, **more}


def place(topic: str) -> dict[str, Any]:
    return {"topic": topic, "partition": 0, "skipped_left": 0, "skipped_right": 0}


def test_equal_sides() -> None:
    report = Report("a", "b", [], interval_rows([sums(equal=True)], [], {}))
    assert report.verdict is Verdict.EQUAL
    assert report.document()["records"] == 3


def test_an_audit_that_compares_nothing_is_not_equal() -> None:
    report = Report("a", "b", [place("t"), place("u")], [])
    assert report.verdict is Verdict.NOTHING_COMPARED
    document = report.document()
    assert (document["equal"], document["verdict"]) == (False, "nothing_compared")
    assert document["uncompared"] == ["t", "u"]


def test_a_topic_without_compared_records_is_named() -> None:
    rows = interval_rows([sums(equal=True)], [], {})
    report = Report("a", "b", [place("t"), place("u")], rows)
    assert report.verdict is Verdict.EQUAL
    assert report.uncompared == ["u"]


def test_a_side_that_lacks_an_interval() -> None:
    rows = interval_rows(
        [sums(equal=False, right=None)],
        [key(what="missing", records=3)],
        {"left": [], "right": [key(begin=5, end=7)]},
    )
    report = Report("a", "b", [], rows)
    assert report.verdict is Verdict.UNEQUAL
    assert not report.document()["equal"]
    document = report.document()
    assert (document["missing"], document["records_right"], document["gaps_right"]) == (3, 0, 3)


def test_gaps_in_intervals_that_were_not_compared_do_not_count() -> None:
    before = {**key(begin=1, end=2), "start": START - HOUR}
    (row,) = interval_rows([sums(equal=True)], [], {"left": [before], "right": [before]})
    assert (row["gaps_left"], row["gaps_right"]) == (0, 0)


def test_times_are_those_of_utc_and_of_any_year() -> None:
    far = {**sums(equal=True), "start": 10**18}
    rows = interval_rows([sums(equal=True), far], [], {})
    assert [row["start"] for row in rows] == ["2026-01-01T00:00:00.000Z", f"{10**18} us"]


def test_both_are_read_from_where_both_begin_each_to_its_end() -> None:
    left, right = aligned({P0: (5, 20), P1: (0, 9)}, {P0: (8, 18)})
    assert left == {P0: (8, 20), P1: (0, 9)}
    assert right == {P0: (8, 18)}


def test_a_copy_that_is_behind_all_of_the_original_is_read_as_empty() -> None:
    _, right = aligned({P0: (50, 60)}, {P0: (0, 10)})
    assert right == {P0: (10, 10)}


def test_offsets_for_the_source() -> None:
    assert offsets_json({P1: (1, 2), P0: (3, 4)}, 1) == '{"t": {"0": 4, "1": 2}}'
