"""A watched loop counts what holds it, by name."""

import asyncio
import time

import pytest

from qbus.service.event_loop import WatchedLoop, run, ticks_of

_SLOW_S = 0.02


def running() -> WatchedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, WatchedLoop)
    return loop


async def next_tick() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_what_holds_the_loop_is_counted_by_its_name() -> None:
    async def main() -> dict[str, int]:
        loop = running()
        loop.call_soon(time.sleep, 5 * _SLOW_S)
        await next_tick()
        return loop.slow.counts

    assert run(main(), _SLOW_S).get("time.sleep") == 1


def test_a_task_is_counted_by_its_name() -> None:
    async def work() -> None:
        time.sleep(5 * _SLOW_S)  # noqa: ASYNC251 - it holds the loop

    async def main() -> dict[str, int]:
        await asyncio.create_task(work(), name="look after queues")
        await next_tick()
        return running().slow.counts

    assert run(main(), _SLOW_S).get("task look after queues") == 1


def test_a_loop_that_waits_is_not_slow() -> None:
    async def main() -> dict[str, int]:
        await asyncio.sleep(2.0)
        return running().slow.counts

    assert run(main(), 1.0) == {}


def test_a_loop_is_in_a_tick_while_it_works_and_in_none_when_it_has_ended() -> None:
    async def main() -> WatchedLoop:
        loop = running()
        assert loop.ticks.stands_s(loop.ticks.began + 5.0) == pytest.approx(5.0)
        return loop

    assert run(main()).ticks.stands_s(1e9) == 0.0


def test_what_a_lapsed_lease_schedules_is_done_at_once() -> None:
    async def main() -> float:
        loop = running()
        done = asyncio.Event()
        loop.ticks.lease(3 * _SLOW_S, lambda _: loop.call_soon(done.set))
        loop.call_later(30.0, done.set)  # what the loop would wait for
        time.sleep(5 * _SLOW_S)  # noqa: ASYNC251 - it holds the loop
        began = time.perf_counter()
        await done.wait()
        return time.perf_counter() - began

    assert run(main(), _SLOW_S) < 20.0


def test_a_defect_of_what_is_called_does_not_end_the_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> str:
        running().ticks.lease(3 * _SLOW_S, lambda _: 1 / 0)
        time.sleep(5 * _SLOW_S)  # noqa: ASYNC251 - it holds the loop
        await next_tick()
        return "done"

    assert run(main(), _SLOW_S) == "done"
    assert "ZeroDivisionError" in caplog.text


def test_only_a_watched_loop_has_ticks() -> None:
    async def main() -> object:
        return ticks_of(asyncio.get_running_loop())

    assert asyncio.run(main()) is None
    assert run(main()) is not None


def test_what_main_raises_is_raised() -> None:
    async def main() -> None:
        raise ValueError("defect")

    with pytest.raises(ValueError, match="defect"):
        run(main())
