"""The watchdog says where a loop stands while it stands."""

import sys
import threading
from collections.abc import Mapping
from types import FrameType

import pytest

from qbus.service.event_loop import SlowHandlers, Ticks
from qbus.service.event_loop.watchdog import Watchdog


class Watched:
    """A watchdog over a loop whose ticks, and time, the test makes."""

    def __init__(self) -> None:
        self.now = 100.0
        self.ticks = Ticks(0.1)
        self.slow = SlowHandlers(self.ticks)
        self.looks = 0
        self.dog = Watchdog(self.ticks, self.slow, now=lambda: self.now, frames=self._frames)

    def begin_tick(self) -> None:
        self.ticks.number += 1
        self.ticks.began = self.now

    def look_after(self, seconds: float) -> None:
        self.now += seconds
        self.dog.look()

    def _frames(self) -> Mapping[int, FrameType]:
        self.looks += 1
        return {threading.get_ident(): sys._getframe()}


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_loop_that_waits_for_events_is_left_alone(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.look_after(1_000.0)
    assert (watched.looks, caplog.messages) == (0, [])


def test_a_short_tick_is_not_looked_into(watched: Watched) -> None:
    watched.begin_tick()
    watched.look_after(0.04)
    assert watched.looks == 0


def test_where_a_long_tick_stands_is_remembered_for_its_end(watched: Watched) -> None:
    watched.begin_tick()
    watched.look_after(0.06)
    assert watched.slow.place is not None
    assert watched.slow.place.tick == watched.ticks.number


def test_a_standstill_is_logged_while_it_lasts_with_its_stack_and_once(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.begin_tick()
    watched.look_after(0.9)
    assert caplog.messages == []
    for _ in range(20):
        watched.look_after(0.2)
    (line,) = caplog.messages
    assert line.startswith("the event loop has stood still for 1.1 s, and nobody is served")
    assert "test_watchdog.py" in line


def test_a_standstill_without_end_is_logged_again_each_minute(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.begin_tick()
    for _ in range(125):
        watched.look_after(1.0)
    assert len(caplog.messages) == 3


def test_many_standstills_get_a_line_in_ten_seconds_and_are_counted(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(8):
        watched.begin_tick()
        watched.look_after(1.5)
        watched.look_after(0.5)
    assert len(caplog.messages) == 2
    assert "(4 more stalls since the last line)" in caplog.messages[1]


def test_the_request_that_is_handled_is_named(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.slow.describe = lambda client, key: f"request {key} of {client}"
    watched.begin_tick()
    watched.ticks.begin_request("10.0.0.1", watched.now)
    watched.ticks.current_key = 66
    watched.look_after(1.5)
    assert "it is at request 66 of 10.0.0.1" in caplog.messages[0]


def test_a_loop_that_has_gone_on_meanwhile_is_not_blamed(watched: Watched) -> None:
    watched.begin_tick()
    dog = Watchdog(watched.ticks, watched.slow, now=lambda: watched.now, frames=_going_on(watched))
    watched.now += 0.5
    dog.look()
    assert watched.slow.place is None


def _going_on(watched: Watched):  # type: ignore[no-untyped-def] # a function for one test
    def frames() -> Mapping[int, FrameType]:
        watched.begin_tick()
        return {threading.get_ident(): sys._getframe()}

    return frames
