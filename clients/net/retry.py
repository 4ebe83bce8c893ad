"""Retrying requests: one request, or many items of which each succeeds or fails for itself.

A retry is never silent: what it waits for is reported to the cluster's
:class:`~qbus.clients.net.trouble.TroubleLog` once it has lasted for longer than a failover takes.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from typing import TypeVar

from qbus.errors import ApiError, ErrorCode
from qbus.service.backoff import Backoff

from ..errors import PartialFailure, RequestTimedOut
from .cluster import Cluster
from .trouble import USUAL_S

K = TypeVar("K")
T = TypeVar("T")

Outcomes = dict[K, T | ApiError]
"""For each item its result, or why it was refused."""


async def retrying(
    cluster: Cluster,
    subject: str,
    attempt: Callable[[], Awaitable[T]],
    timeout: float | None = None,
    *,
    final: Container[ErrorCode] = frozenset(),
    backoff: Backoff | None = None,
) -> T:
    """Return what ``attempt`` returns, repeated on retriable errors within ``timeout`` seconds.

    subject: what is waited for meanwhile, for the log, such as "topic t".
    timeout: by default the cluster's ``request_timeout``.
    final: errors that are not retried.
    backoff: the pauses between attempts.

    Raises the last error, or :class:`RequestTimedOut`, caused by the error before it, when time
    runs out during an attempt.
    """

    async def reported() -> T:
        try:
            result = await attempt()
        except ApiError as error:
            _report(cluster, subject, error, final)
            raise
        _report(cluster, subject, None, final)
        return result

    patience = cluster.request_timeout if timeout is None else timeout
    return await _repeat(reported, patience, final, backoff or Backoff())


async def _repeat(
    attempt: Callable[[], Awaitable[T]],
    timeout: float,
    final: Container[ErrorCode],
    backoff: Backoff,
) -> T:
    failure: ApiError | None = None
    deadline = time.monotonic() + timeout
    try:
        async with asyncio.timeout(timeout) as clock:
            while True:
                try:
                    return await attempt()
                except ApiError as error:
                    failure = error
                    delay = backoff.failed()
                    if not _is_retriable(error, final) or time.monotonic() + delay > deadline:
                        raise
                await asyncio.sleep(delay)
    except TimeoutError:
        if not clock.expired():
            raise
        reason = f": {failure}" if failure is not None else ""
        raise RequestTimedOut(f"not done in {timeout} s{reason}") from failure


def _report(cluster: Cluster, subject: str, outcome: object, final: Container[ErrorCode]) -> None:
    """Note in the cluster's log that ``subject`` is waited for, or is not any more."""
    if _is_retriable(outcome, final):
        cluster.troubles.met(subject, outcome, grace=USUAL_S)
    elif isinstance(outcome, ApiError):  # which is raised, and ends the waiting
        cluster.troubles.drop(subject)
    elif cluster.troubles:
        cluster.troubles.solved(subject)


_AT_A_TIME = 20


async def retry_each(
    cluster: Cluster,
    items: Iterable[K],
    ask: Callable[[list[K]], Awaitable[Mapping[K, T | ApiError]]],
    timeout: float | None = None,
    *,
    final: Container[ErrorCode] = frozenset(),
    subject: Callable[[K], str],
) -> Outcomes[K, T]:
    """Return the outcome of each item; ``ask`` is called again for those with retriable errors.

    timeout: seconds for all attempts, by default the cluster's ``request_timeout``.
    final: errors that are not retried.
    subject: what is waited for while an item is retried, for the log.

    An error that ``ask`` raises is the outcome of everything it was asked for; an item it leaves
    out has failed.
    """
    wanted = list(dict.fromkeys(items))
    outcomes: Outcomes[K, T] = {}

    async def attempt() -> None:
        left = [i for i in wanted if i not in outcomes or _is_retriable(outcomes[i], final)]
        try:
            answers = await ask(left)
        except ApiError as error:
            for item in left:
                _report(cluster, subject(item), error, final)
            raise
        for item in left:
            outcome = answers[item] if item in answers else _unanswered(item)
            outcomes[item] = outcome
            _report(cluster, subject(item), outcome, final)
        for outcome in outcomes.values():
            if isinstance(outcome, ApiError) and _is_retriable(outcome, final):
                raise outcome

    try:
        if wanted:
            patience = cluster.request_timeout if timeout is None else timeout
            await _repeat(attempt, patience, final, Backoff())
    except ApiError as error:
        for item in wanted:
            outcomes.setdefault(item, error)
    return {item: outcomes[item] for item in wanted}


def results_or_raise(outcomes: Mapping[K, T | ApiError]) -> dict[K, T]:
    """Return all results; raise :class:`PartialFailure`, or the error itself if there is one
    item.
    """
    errors = {item: found for item, found in outcomes.items() if isinstance(found, ApiError)}
    results = {item: found for item, found in outcomes.items() if not isinstance(found, ApiError)}
    if errors and len(outcomes) == 1:
        raise next(iter(errors.values()))
    if errors:
        raise PartialFailure(errors, results)
    return results


async def ask_each(items: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> Outcomes[K, T]:
    """Return what ``ask`` returns or raises for each item; asks for some at a time."""
    turns = asyncio.Semaphore(_AT_A_TIME)

    async def one(item: K) -> T | ApiError:
        async with turns:
            try:
                return await ask(item)
            except ApiError as error:
                return error

    wanted = list(dict.fromkeys(items))
    return dict(zip(wanted, await asyncio.gather(*map(one, wanted)), strict=True))


def _is_retriable(outcome: object, final: Container[ErrorCode]) -> bool:
    return isinstance(outcome, ApiError) and outcome.retriable and outcome.code not in final


def _unanswered(item: object) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker did not answer for {item}")
