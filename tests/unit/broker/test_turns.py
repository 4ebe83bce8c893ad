"""Long work takes turns on the event loop."""

import asyncio
from collections.abc import Generator

import pytest

from qbus.broker.turns import Pace, begun, in_pieces, in_steps, next_turn


class Ticks:
    """Counts the ticks of the event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)

    def stop(self) -> None:
        self._task.cancel()


async def test_one_piece_runs_in_each_tick() -> None:
    ticks, ran = Ticks(), []

    async def work(name: str) -> None:
        for _ in range(3):
            await next_turn()
            ran.append((name, ticks.count))

    await asyncio.gather(work("a"), work("b"), work("c"))
    ticks.stop()
    assert [name for name, _ in ran] == list("abcabcabc")
    assert len({tick for _, tick in ran}) == len(ran)


async def test_who_gave_up_holds_up_nobody() -> None:
    first, second = asyncio.create_task(next_turn()), asyncio.create_task(next_turn())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait_for(second, 5)
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_short_sequence_is_one_piece_and_waits_for_nothing() -> None:
    async def work() -> list[list[int]]:
        return [list(piece) async for piece in in_pieces([1, 2, 3], 3)]

    assert begun(work()) == [[1, 2, 3]]


async def test_a_long_one_is_cut() -> None:
    ticks = Ticks()
    pieces = [list(piece) async for piece in in_pieces(range(7), 3)]
    ticks.stop()
    assert pieces == [[0, 1, 2], [3, 4, 5], [6]]
    assert ticks.count >= 2


def test_pace() -> None:
    pace = Pace(3)
    assert [pace.is_over() for _ in range(7)] == [False, False, False, True, False, False, True]
    assert Pace(3).is_over(4)


async def test_begun_work_goes_on_where_it_is_awaited() -> None:
    async def work(fails: bool) -> str:
        await asyncio.sleep(0)
        await next_turn()
        if fails:
            raise ValueError("it fails")
        return "done"

    going = begun(work(False))
    assert not isinstance(going, str)
    assert await asyncio.ensure_future(going) == "done"
    failing = begun(work(True))
    assert not isinstance(failing, str)
    with pytest.raises(ValueError, match="it fails"):
        await failing


async def test_begun_work_is_cancelled_as_any() -> None:
    over = []

    async def work() -> str:
        try:
            await asyncio.sleep(3600)
        finally:
            over.append(True)
        return "done"

    going = begun(work())
    assert not isinstance(going, str)
    task = asyncio.ensure_future(going)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert over == [True]


async def test_steps_of_a_generator() -> None:
    def work() -> Generator[None, None, str]:
        yield
        yield
        return "done"

    ticks = Ticks()
    assert await in_steps(work()) == "done"
    ticks.stop()
    assert ticks.count >= 2
