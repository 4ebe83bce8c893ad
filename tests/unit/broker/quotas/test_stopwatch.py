"""The time that is worked at a coroutine."""

import asyncio
import time

import pytest

from qbus.broker.quotas.stopwatch import measured


class Watch:
    """Adds up the time between resume and pause."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since = 0.0

    def resume(self) -> None:
        self._since = time.perf_counter()

    def pause(self) -> None:
        self.seconds += time.perf_counter() - self._since


async def test_waiting_is_not_counted() -> None:
    watch = Watch()

    async def work() -> str:
        time.sleep(0.02)  # noqa: ASYNC251 - that is the work
        await asyncio.sleep(0.2)
        return "done"

    assert await asyncio.ensure_future(measured(watch, work())) == "done"
    assert 0.02 <= watch.seconds < 0.15


async def test_a_failure_is_the_works() -> None:
    watch = Watch()

    async def work() -> None:
        await asyncio.sleep(0)
        raise KeyError("no")

    with pytest.raises(KeyError):
        await asyncio.ensure_future(measured(watch, work()))


async def test_a_cancelled_work_ends_as_it_would_otherwise() -> None:
    cleaned: list[bool] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append(True)

    task = asyncio.ensure_future(measured(Watch(), work()))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]
