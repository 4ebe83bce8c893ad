"""Waiting for a load ends after a time-out, and every failure is a retriable error."""

import asyncio
from typing import Any

import pytest

from qbus.broker.group.loader import StoreWait
from qbus.broker.group.timers import STORE_TIMEOUT_S
from qbus.broker.group.znodes import MalformedGroupError
from qbus.clock import ManualClock
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import StoreUnavailable

from .shell import ManualTimers, settle


class Waiting:
    """A load that the test completes, and a waiter for it."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.timers = ManualTimers(clock)
        self.read: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._read(), name="read a group")
        self.waiting = asyncio.create_task(StoreWait(clock, self.timers).wait_for(self.task))

    async def _read(self) -> Any:
        return await self.read

    async def refused(self) -> ErrorCode:
        with pytest.raises(ApiError) as caught:
            await self.waiting
        return caught.value.code


async def test_a_load_in_time_returns_its_result() -> None:
    waiting = Waiting()

    waiting.read.set_result("a group")

    assert await waiting.waiting == "a group"
    assert waiting.timers.set == []


async def test_the_load_continues_after_the_time_out() -> None:
    waiting = Waiting()

    await waiting.timers.advance(STORE_TIMEOUT_S + 0.1)

    assert await waiting.refused() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    waiting.read.set_result("a group")
    assert await waiting.task == "a group"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreUnavailable("cut"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (TypeError("a defect"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (MalformedGroupError("no group"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (ApiError(ErrorCode.NOT_COORDINATOR), ErrorCode.NOT_COORDINATOR),
    ],
)
async def test_every_failure_is_an_answer(error: Exception, code: ErrorCode) -> None:
    waiting = Waiting()

    waiting.read.set_exception(error)

    assert await waiting.refused() is code


async def test_a_cancelled_load_is_a_shutdown() -> None:
    waiting = Waiting()
    await settle()

    waiting.task.cancel()

    assert await waiting.refused() is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_failure_that_comes_too_late_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    waiting = Waiting()
    await waiting.timers.advance(STORE_TIMEOUT_S + 0.1)
    await waiting.refused()

    waiting.read.set_exception(StoreUnavailable("cut"))
    await settle()

    assert caplog.messages == ["cannot read a group: cut"]
