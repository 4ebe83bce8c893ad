"""Markers for partitions that are led here: each gets an answer, and all are told together."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from qbus.broker.transaction import Marker, MarkerAppends
from qbus.errors import ApiError, ErrorCode

NONE, LATE = ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT


class Led:
    """A partition that is led here; ``end`` is what ends a transaction in it."""

    def __init__(self, high_watermark: int = 0, error: Exception | None = None) -> None:
        self.high_watermark = high_watermark
        self.error = error
        self.ended: list[tuple[Any, ...]] = []
        self.waiting: list[Callable[[ErrorCode], None]] = []

    def end_transaction(self, *what: Any, committed: bool, version: int) -> Any:
        if self.error is not None:
            raise self.error
        self.ended.append((*what, committed, version))
        return SimpleNamespace(last_offset=len(self.ended) - 1)

    def when_acknowledged(self, offset: int, waiter: Any, token: object) -> None:
        assert offset == len(self.ended)
        self.waiting.append(lambda code: waiter.acknowledged(token, code))


class Here:
    """The partitions that are led here."""

    def __init__(self, **led: Led) -> None:
        self.led = led

    def leader_of(self, topic: str | bytes, index: int) -> Any:
        assert isinstance(topic, str)
        if topic not in self.led:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert index == 0
        return self.led[topic]


def marker(*topics: str, committed: bool = True, version: int = 2) -> Marker:
    return Marker(7, 4, 9, committed, version, tuple((topic, 0) for topic in topics))


def append(here: Here, *markers: Marker, timeout_s: float = 30.0) -> list[list[ErrorCode]]:
    """What is told; it is empty as long as nothing is."""
    told: list[list[ErrorCode]] = []
    MarkerAppends(told.append, timeout_s).append(here, markers)
    return told


async def test_what_is_acknowledged_at_once_is_told_at_once() -> None:
    a = Led(high_watermark=99)
    assert append(Here(a=a), marker("a"), marker("a", committed=False, version=0)) == [[NONE, NONE]]
    assert a.ended == [(7, 4, 9, True, 2), (7, 4, 9, False, 1)]


async def test_codes_are_told_once_all_are_there_in_the_order_of_the_markers() -> None:
    a, b = Led(), Led()
    told = append(Here(a=a, b=b), marker("a", "none", "b"), marker("b"))
    b.waiting[1](NONE)
    b.waiting[0](ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert told == []
    a.waiting[0](NONE)
    lost = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert told == [[NONE, lost, lost, NONE]]


async def test_no_markers_are_told_at_once() -> None:
    assert append(Here()) == [[]]
    assert append(Here(), marker()) == [[]]


async def test_what_is_not_acknowledged_in_time_is_told_as_such_and_only_once() -> None:
    a, b = Led(), Led(high_watermark=99)
    told = append(Here(a=a, b=b), marker("a", "b"), timeout_s=0.0)
    await asyncio.sleep(0.01)
    assert told == [[LATE, NONE]]
    a.waiting[0](NONE)
    assert len(told) == 1


async def test_a_fault_is_logged_and_the_others_are_told(caplog: pytest.LogCaptureFixture) -> None:
    a, b = Led(error=ZeroDivisionError("a fault")), Led(high_watermark=99)
    assert append(Here(a=a, b=b), marker("a", "b")) == [[ErrorCode.UNKNOWN_SERVER_ERROR, NONE]]
    assert "a marker for a-0 cannot be written" in caplog.text
    assert "a fault" in caplog.text
