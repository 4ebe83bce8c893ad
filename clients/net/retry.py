"""When to try again, and until when."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from typing import TypeVar

from qbus.errors import ApiError, ErrorCode
from qbus.service.backoff import Backoff

from ..errors import PartialFailure, RequestTimedOut

K = TypeVar("K")
T = TypeVar("T")

Outcomes = dict[K, T | ApiError]
"""For each item its result, or why it was refused."""


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
    backoff = Backoff()
    deadline = time.monotonic() + timeout
    try:
        async with asyncio.timeout(timeout) as clock:
            while True:
                try:
                    return await attempt()
                except ApiError as error:
                    failure = error
                    delay = backoff.failed()
                    is_final = not error.retriable or error.code in final
                    if is_final or time.monotonic() + delay > deadline:
                        raise
                await asyncio.sleep(delay)
    except TimeoutError:
        if not clock.expired():
            raise
        reason = f": {failure}" if failure is not None else ""
        raise RequestTimedOut(f"not done in {timeout} s{reason}") from failure


_AT_A_TIME = 20


async def retry_each(
    items: Iterable[K],
    ask: Callable[[list[K]], Awaitable[Mapping[K, T | ApiError]]],
    timeout: float,
    *,
    final: Container[ErrorCode] = frozenset(),
) -> Outcomes[K, T]:
    """What came of each item: ``ask`` is called again for those refused with a retriable error.

    For up to ``timeout`` seconds, and not for errors in ``final``. What ``ask`` raises holds for
    all that it was asked; what it leaves out has failed.
    """
    wanted = list(dict.fromkeys(items))
    outcomes: Outcomes[K, T] = {}

    async def attempt() -> None:
        left = [i for i in wanted if i not in outcomes or _may_mend(outcomes[i], final)]
        answers = await ask(left)
        for item in left:
            outcomes[item] = answers[item] if item in answers else _unanswered(item)
        for outcome in outcomes.values():
            if isinstance(outcome, ApiError) and _may_mend(outcome, final):
                raise outcome

    try:
        if wanted:
            await retrying(attempt, timeout, final=final)
    except ApiError as error:
        for item in wanted:
            outcomes.setdefault(item, error)
    return {item: outcomes[item] for item in wanted}


def results_or_raise(outcomes: Mapping[K, T | ApiError]) -> dict[K, T]:
    """The results of all; raises :class:`PartialFailure`, or the one error if there is one item."""
    errors = {item: found for item, found in outcomes.items() if isinstance(found, ApiError)}
    results = {item: found for item, found in outcomes.items() if not isinstance(found, ApiError)}
    if errors and len(outcomes) == 1:
        raise next(iter(errors.values()))
    if errors:
        raise PartialFailure(errors, results)
    return results


async def ask_each(items: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> Outcomes[K, T]:
    """What ``ask`` returns or raises for each item, some at a time."""
    turns = asyncio.Semaphore(_AT_A_TIME)

    async def one(item: K) -> T | ApiError:
        async with turns:
            try:
                return await ask(item)
            except ApiError as error:
                return error

    wanted = list(dict.fromkeys(items))
    return dict(zip(wanted, await asyncio.gather(*map(one, wanted)), strict=True))


def _may_mend(outcome: object, final: Container[ErrorCode]) -> bool:
    return isinstance(outcome, ApiError) and outcome.retriable and outcome.code not in final


def _unanswered(item: object) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker did not answer for {item}")
