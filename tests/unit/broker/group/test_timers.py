"""The event loop's timers, on the broker's clock."""

import asyncio

from qbus.broker.group.timers import LoopTimers
from qbus.clock import SystemClock


async def test_ring_when_they_are_due_and_not_when_cancelled() -> None:
    clock, rung = SystemClock(), asyncio.Event()
    timers = LoopTimers(clock)
    due = clock.monotonic() + 0.01

    cancelled = timers.call_at(clock.monotonic(), rung.set)
    cancelled.cancel()
    await asyncio.sleep(0.005)
    assert not rung.is_set()
    timers.call_at(due, rung.set)
    await rung.wait()

    assert clock.monotonic() >= due - 0.001


async def test_that_are_overdue_ring_soon_but_not_right_now() -> None:
    rung = asyncio.Event()

    LoopTimers(SystemClock()).call_at(-1_000.0, rung.set)

    assert not rung.is_set()
    await rung.wait()
