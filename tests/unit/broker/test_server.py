"""The broker's process: what ends a life of it, and what is left of that."""

import asyncio

import pytest

from qbus.broker.server import _first_of, _unless


async def test_what_is_done_before_a_signal_is_done() -> None:
    assert await _unless(asyncio.Event(), asyncio.sleep(0, "done")) == "done"


async def test_a_signal_ends_a_start_that_takes_its_time() -> None:
    stop, cleaned = asyncio.Event(), asyncio.Event()

    async def start() -> str:
        try:
            stop.set()
            await asyncio.Event().wait()
            return "started"
        finally:
            cleaned.set()

    assert await _unless(stop, start()) is None
    assert cleaned.is_set()


async def test_what_fails_at_the_start_is_told() -> None:
    async def start() -> None:
        raise ValueError("no disk")

    with pytest.raises(ValueError, match="no disk"):
        await _unless(asyncio.Event(), start())


async def test_whichever_comes_first_ends_it() -> None:
    one, other = asyncio.Event(), asyncio.Event()
    waiting = asyncio.ensure_future(_first_of(one, other))
    await asyncio.sleep(0)
    assert not waiting.done()
    other.set()
    await waiting
