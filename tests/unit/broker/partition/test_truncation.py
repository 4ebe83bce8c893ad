"""Cuts of a log: one at a time, and none is forgotten."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from qbus.broker.partition.truncation import Truncation


class Cutting:
    """A cut that lasts until it may end."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.error: Exception | None = None
        self.done: list[str] = []

    def cut(self) -> None:
        assert self.may_end.wait(30)
        self.done.append("cut")
        if self.error is not None:
            raise self.error

    def after(self) -> None:
        self.done.append("after")


@pytest.fixture
def cutting() -> Iterator[Cutting]:
    cutting = Cutting()
    yield cutting
    cutting.may_end.set()


async def test_it_is_under_way_until_it_is_done(cutting: Cutting) -> None:
    truncation = Truncation()
    await truncation.over()
    run = asyncio.create_task(truncation.run(cutting.cut, cutting.after))
    await asyncio.sleep(0)
    states = [truncation.is_under_way]
    waiting = asyncio.create_task(truncation.over())
    await asyncio.sleep(0)
    assert not waiting.done()
    cutting.may_end.set()
    await waiting
    states.append(truncation.is_under_way)
    assert states == [True, False]
    assert cutting.done == ["cut", "after"]
    await run


async def test_it_goes_on_when_nobody_waits_any_more(cutting: Cutting) -> None:
    truncation = Truncation()
    run = asyncio.create_task(truncation.run(cutting.cut, cutting.after))
    await asyncio.sleep(0)
    run.cancel()
    with suppress(asyncio.CancelledError):
        await run
    assert truncation.is_under_way
    cutting.may_end.set()
    await truncation.over()
    assert cutting.done == ["cut", "after"]


async def test_one_that_fails_is_over_as_well(cutting: Cutting) -> None:
    truncation = Truncation()
    cutting.error = OSError("no disk")
    cutting.may_end.set()
    with pytest.raises(OSError, match="no disk"):
        await truncation.run(cutting.cut, cutting.after)
    assert not truncation.is_under_way
    assert cutting.done == ["cut", "after"]
