"""When to try again, and until when."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Container, Iterator
from typing import TypeVar

from qbus.errors import ApiError, ErrorCode

from ..errors import RequestTimedOut

T = TypeVar("T")

_FIRST = 0.05
_FACTOR = 2.0
_LONGEST = 1.0
_JITTER = 0.2


def backoff(first: float = _FIRST, longest: float = _LONGEST) -> Iterator[float]:
    """Seconds to wait before each next attempt: doubling up to ``longest``, spread by a fifth."""
    delay = min(first, longest)
    while True:
        yield delay * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - not a secret
        delay = min(delay * _FACTOR, longest)


async def retrying(
    attempt: Callable[[], Awaitable[T]],
    timeout: float,
    *,
    final: Container[ErrorCode] = frozenset(),
) -> T:
    """What ``attempt`` returns, repeated on retriable errors, all within ``timeout`` seconds.

    Not on those in ``final``, which are the answer for this caller. Raises the last error; or
    :class:`RequestTimedOut`, with the error before it as its cause, when time is over in the middle
    of an attempt.
    """
    failure: ApiError | None = None
    deadline = time.monotonic() + timeout
    try:
        async with asyncio.timeout(timeout) as clock:
            for delay in backoff():
                try:
                    return await attempt()
                except ApiError as error:
                    failure = error
                    is_final = not error.retriable or error.code in final
                    if is_final or time.monotonic() + delay > deadline:
                        raise
                await asyncio.sleep(delay)
    except TimeoutError:
        if not clock.expired():
            raise
        reason = f": {failure}" if failure is not None else ""
        raise RequestTimedOut(f"not done in {timeout} s{reason}") from failure
    raise AssertionError("backoff never ends")
