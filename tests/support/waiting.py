"""Waiting for a condition instead of for a time."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class StillWaiting(AssertionError):  # noqa: N818 - names the condition
    """What was waited for has not come about in time."""


def wait_until(
    condition: Callable[[], T], what: str, timeout: float = 30.0, pause: float = 0.02
) -> T:
    """Return the first truthy result of ``condition``; raise StillWaiting after ``timeout`` s."""
    deadline = time.monotonic() + timeout
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise StillWaiting(f"still waiting after {timeout} s: {what} (last: {result!r})")
        time.sleep(pause)


async def eventually(condition: Callable[[], object], timeout: float = 20.0) -> None:
    """Return when ``condition`` holds; fail after ``timeout`` seconds.

    It is a function, or a coroutine function, which is called less often.
    """
    async with asyncio.timeout(timeout):
        pause = 0.001
        while True:
            holds = condition()
            if inspect.isawaitable(holds):
                holds, pause = await holds, 0.02
            if holds:
                return
            await asyncio.sleep(pause)


async def until(
    ask: Callable[[], Awaitable[object]], expected: object, timeout: float = 60.0
) -> None:
    """Return when the answer is ``expected``; fail with the last one after ``timeout`` seconds."""
    answer = None
    try:
        async with asyncio.timeout(timeout):
            while (answer := await ask()) != expected:  # noqa: ASYNC110 - a cluster is asked
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{answer!r} after {timeout} s, not {expected!r}") from None
