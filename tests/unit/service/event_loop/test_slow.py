"""What holds the event loop for too long is counted, and logged within bounds."""

import logging
import traceback

import pytest

from qbus.service.event_loop import SlowHandlers, Ticks
from qbus.service.event_loop.callbacks import Place
from qbus.service.event_loop.slow import OTHERS, UNKNOWN


def handlers(*, cpu_s: float = 0.0) -> SlowHandlers:
    ticks = Ticks(0.1)
    ticks.number, ticks.began = 1, 100.0
    return SlowHandlers(ticks, lambda: cpu_s)


def seen(tick: int, callback: str = "delay.Timer.fire") -> Place:
    frame = traceback.FrameSummary("/x/broker/delay/timer.py", 7, "fire", lookup_line=False)
    return Place(tick, callback, traceback.StackSummary.from_list([frame]))


def test_a_slow_request_is_counted_by_its_name_with_the_time_that_it_took() -> None:
    slow = handlers()
    slow.note("PRODUCE", 100.0, 100.5, "10.0.0.1")
    slow.note("PRODUCE", 100.0, 100.25, "10.0.0.1")
    slow.note("FETCH", 100.0, 101.0, "10.0.0.1")
    assert slow.counts == {"PRODUCE": 2, "FETCH": 1}
    assert slow.seconds == {"PRODUCE": 0.75, "FETCH": 1.0}
    assert slow.longest == {"PRODUCE": 0.5, "FETCH": 1.0}


def test_its_line_says_what_whose_and_how_long(caplog: pytest.LogCaptureFixture) -> None:
    slow = handlers(cpu_s=2.2)
    slow.cpu_before = lambda _: 2.0
    slow.note("LIST_TRANSACTIONS", 100.0, 100.5, "10.0.0.1 (client 'x', User:alice)")
    (line,) = caplog.messages
    assert line == (
        "LIST_TRANSACTIONS of 10.0.0.1 (client 'x', User:alice) held the event loop for 0.500 s,"
        " at most 0.200 s of that on the processor"
    )


def test_lines_about_one_name_come_once_in_ten_seconds_and_count_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow = handlers()
    for number in range(1_000):
        slow.note("PRODUCE", 100.0, 100.5 + number / 1_000)
    assert len(caplog.messages) == 1
    slow.note("PRODUCE", 111.0, 111.2)
    assert caplog.messages[-1].endswith("; 999 times more since its last line")
    assert slow.counts == {"PRODUCE": 1_001}


def test_names_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    slow = handlers()
    for number in range(1_000):
        slow.note(f"task {number}", 100.0, 100.5)
    assert len(slow.counts) <= 101
    assert sum(slow.counts.values()) == 1_000
    assert slow.counts[OTHERS] == 900
    assert len(caplog.messages) == 10, "in ten seconds"
    slow.note("task 1", 111.0, 111.2)
    assert len(caplog.messages) == 11


def test_a_slow_tick_is_counted_by_the_callback_that_the_watchdog_saw_in_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow = handlers()
    slow.place = seen(tick=1)
    slow.tick_ended(100.0, 100.3)
    assert slow.counts == {"delay.Timer.fire": 1}
    assert "; it stood at broker/delay/timer.py:7 in fire" in caplog.text


def test_what_was_seen_in_another_tick_is_not_blamed() -> None:
    slow = handlers()
    slow.place = seen(tick=0)
    slow.tick_ended(100.0, 100.3)
    assert slow.counts == {UNKNOWN: 1}


def test_a_tick_that_a_slow_request_explains_is_not_counted_twice() -> None:
    slow = handlers()
    slow.ticks.begin_request("client", 100.0)
    assert slow.ticks.end_request(100.0, 100.5)
    slow.note("PRODUCE", 100.0, 100.5)
    slow.tick_ended(100.0, 100.55)
    assert slow.counts == {"PRODUCE": 1}
    slow.tick_ended(101.0, 101.2)  # the next tick is explained by nothing
    assert slow.counts == {"PRODUCE": 1, UNKNOWN: 1}


@pytest.mark.parametrize(
    ("cpu_s", "seconds", "level"),
    [
        (0.05, 0.5, logging.INFO),  # it waited: for a disk, a lock, the processor
        (0.15, 0.5, logging.WARNING),
        (0.05, 1.0, logging.WARNING),  # nobody was served for a second, whatever it did
    ],
)
def test_what_worked_for_too_long_is_a_warning(
    caplog: pytest.LogCaptureFixture, cpu_s: float, seconds: float, level: int
) -> None:
    caplog.set_level(logging.INFO)
    slow = handlers(cpu_s=cpu_s)
    slow.cpu_before = lambda _: 0.0
    slow.note("PRODUCE", 100.0, 100.0 + seconds)
    assert [record.levelno for record in caplog.records] == [level]
    assert slow.cpu_seconds == {"PRODUCE": cpu_s}


def test_what_is_not_known_to_have_waited_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    handlers().note("PRODUCE", 100.0, 100.5)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
