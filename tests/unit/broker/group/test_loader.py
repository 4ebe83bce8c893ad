"""Nobody waits for the store for ever, and whatever it fails with is an answer to try again."""

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
    """A task that reads until the test ends it, and someone who waits for it."""

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


async def test_what_is_read_in_time_is_had() -> None:
    waiting = Waiting()

    waiting.read.set_result("a group")

    assert await waiting.waiting == "a group"
    assert waiting.timers.set == []


async def test_the_task_goes_on_when_nobody_waits_any_more() -> None:
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


async def test_who_stops_the_reading_is_shutting_down() -> None:
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
