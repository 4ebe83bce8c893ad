"""Waiting, in the event loop, for a condition instead of for a time."""

import asyncio
from collections.abc import Callable


async def eventually(condition: Callable[[], object], timeout: float = 10.0) -> None:
    """Return when ``condition`` holds; fail after ``timeout`` seconds."""
    async with asyncio.timeout(timeout):
        while not condition():  # noqa: ASYNC110 - anything may be what changes it
            await asyncio.sleep(0.001)
