"""The demo's comparison finds every difference."""

from io import BytesIO

import pytest

from qbus.cli.demo import comparison
from qbus.cli.demo.comparison import Plan, compare

LINES = [b"one", b"", b"three\r", b"four\0", b"five"]


@pytest.fixture
def plan() -> Plan:
    plan = Plan()
    plan.add(0, LINES[:2])
    plan.add(1, LINES[2:4])
    plan.add(0, LINES[4:])
    return plan


def outcome(plan: Plan, *received: bytes) -> str | None:
    sent = BytesIO(b"".join(line + b"\n" for line in LINES))
    result = compare(plan, sent.read, [BytesIO(stream) for stream in received])
    assert (result.sent_sha256 == result.received_sha256) is (
        result.difference is None or "more than" in result.difference
    )
    return result.difference


def test_a_plan_counts_lines_and_bytes(plan: Plan) -> None:
    assert plan.lines == 5
    assert plan.size == sum(len(line) + 1 for line in LINES)
    assert [piece.partition for piece in plan.pieces] == [0, 1, 0]


def test_equal(plan: Plan) -> None:
    assert outcome(plan, b"one\n\nfive\n", b"three\r\nfour\0\n") is None


def test_a_changed_byte(plan: Plan) -> None:
    assert outcome(plan, b"one\n\nfive\n", b"three\r\nfOur\0\n") == (
        "byte 13 of the file differs in partition 1"
    )


def test_a_lost_record(plan: Plan) -> None:
    assert outcome(plan, b"one\n\n", b"three\r\nfour\0\n") == (
        "byte 18 of the file differs in partition 0"
    )


def test_two_records_in_the_wrong_order(plan: Plan) -> None:
    assert outcome(plan, b"one\n\nfive\n", b"four\0\nthree\r\n") == (
        "byte 5 of the file differs in partition 1"
    )


def test_a_record_delivered_twice(plan: Plan) -> None:
    assert outcome(plan, b"one\n\nfive\nfive\n", b"three\r\nfour\0\n") == (
        "partition 0 holds more than was sent to it"
    )


def test_blocks_do_not_matter(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_BLOCK", 3)
    assert outcome(plan, b"one\n\nfive\n", b"three\r\nfour\0\n") is None
    assert outcome(plan, b"one\n\nfiVe\n", b"three\r\nfour\0\n") == (
        "byte 20 of the file differs in partition 0"
    )
