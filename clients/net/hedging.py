"""Hedged requests: ask the next broker when one is slow, and use the first answer."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from qbus.errors import ApiError

T = TypeVar("T")

Attempts = AsyncGenerator[Callable[[], Coroutine[Any, Any, T]], None]


async def first_answer(attempts: Attempts[T], patience: float | None, failure: ApiError) -> T:
    """Return what the first successful attempt returns.

    Starts the next attempt when one has failed or taken ``patience`` seconds (None: waits for it).
    Slow attempts continue, since the next may be slower. Raises the last retriable error
    (``failure`` without attempts), or at once an error that is not retriable.
    """
    running: set[asyncio.Task[T]] = set()
    try:
        async with aclosing(attempts):
            while True:
                try:
                    attempt = await anext(attempts, None)
                except ApiError as error:  # no further attempt, but some still run
                    attempt, failure = None, error
                if attempt is not None:
                    running.add(asyncio.create_task(attempt()))
                elif not running:
                    raise failure
                done, running = await asyncio.wait(
                    running,
                    timeout=None if attempt is None else patience,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task, refusal in [(task, task.exception()) for task in done]:
                    if refusal is None:
                        return task.result()
                    if not isinstance(refusal, ApiError) or not refusal.retriable:
                        raise refusal
                    failure = refusal
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
