"""Waiting for a state of a cluster."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def until(ask: Callable[[], Awaitable[T]], expected: T, timeout: float = 60.0) -> None:
    """Return when the answer is ``expected``; fail with the last one after ``timeout`` seconds."""
    answer = None
    try:
        async with asyncio.timeout(timeout):
            while (answer := await ask()) != expected:  # noqa: ASYNC110 - a cluster is asked
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{answer!r} after {timeout} s, not {expected!r}") from None
