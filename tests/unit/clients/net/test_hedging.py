"""The first good answer wins, whoever is slow or wrong."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from qbus.clients.errors import ConnectionFailed
from qbus.clients.net.hedging import Attempts, first_answer
from qbus.errors import ApiError, ErrorCode, WireError
from tests.support.waiting import eventually

NOBODY = ConnectionFailed("nobody to ask")


class Witness:
    """Makes attempts, and knows what became of them."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def answers(self, name: str, after: float = 0.0) -> Callable[[], Coroutine[Any, Any, str]]:
        async def attempt() -> str:
            self.log.append(f"{name} asked")
            try:
                await asyncio.sleep(after)
            except asyncio.CancelledError:
                self.log.append(f"{name} given up")
                raise
            return name

        return attempt

    def fails(self, name: str, error: Exception) -> Callable[[], Coroutine[Any, Any, str]]:
        async def attempt() -> str:
            self.log.append(f"{name} asked")
            raise error

        return attempt


async def each(*attempts: Callable[[], Coroutine[Any, Any, str]]) -> Attempts[str]:
    for attempt in attempts:
        yield attempt


async def test_one_is_enough() -> None:
    witness = Witness()
    found = await first_answer(each(witness.answers("a"), witness.answers("b")), 60, NOBODY)
    assert (found, witness.log) == ("a", ["a asked"])


async def test_the_next_is_asked_when_one_fails() -> None:
    witness = Witness()
    attempts = each(witness.fails("a", ConnectionFailed("gone")), witness.answers("b"))
    assert await first_answer(attempts, 60, NOBODY) == "b"


async def test_the_next_is_asked_when_one_is_slow() -> None:
    witness = Witness()
    attempts = each(witness.answers("a", after=3600), witness.answers("b"))
    assert await first_answer(attempts, 0.01, NOBODY) == "b"
    assert witness.log == ["a asked", "b asked", "a given up"]


async def test_the_slow_one_may_still_be_the_first() -> None:
    witness = Witness()
    attempts = each(witness.answers("a", after=0.05), witness.answers("b", after=3600))
    assert await first_answer(attempts, 0.01, NOBODY) == "a"
    assert witness.log[-1] == "b given up"


async def test_what_must_not_be_repeated_is_waited_for() -> None:
    witness = Witness()
    attempts = each(witness.answers("a", after=0.05), witness.answers("b"))
    assert await first_answer(attempts, None, NOBODY) == "a"
    assert witness.log == ["a asked"]


async def test_all_fail() -> None:
    witness = Witness()
    last = ApiError(ErrorCode.REQUEST_TIMED_OUT)
    attempts = each(witness.fails("a", ConnectionFailed("gone")), witness.fails("b", last))
    with pytest.raises(ApiError) as caught:
        await first_answer(attempts, 60, NOBODY)
    assert caught.value is last


async def test_a_running_attempt_may_answer_after_the_last_one_began() -> None:
    witness = Witness()

    async def one_and_no_more() -> Attempts[str]:
        yield witness.answers("a", after=0.05)
        raise ConnectionFailed("no others")

    assert await first_answer(one_and_no_more(), 0.01, NOBODY) == "a"


async def test_nobody_is_found() -> None:
    async def none() -> Attempts[str]:
        async for attempt in each():
            yield attempt
        raise ConnectionFailed("no others")

    with pytest.raises(ConnectionFailed, match="no others"):
        await first_answer(none(), 60, NOBODY)


async def test_nobody_to_ask() -> None:
    with pytest.raises(ConnectionFailed, match="nobody"):
        await first_answer(each(), 60, NOBODY)


@pytest.mark.parametrize("error", [ApiError(ErrorCode.INVALID_CONFIG), WireError("nonsense")])
async def test_what_another_cannot_mend_ends_it(error: Exception) -> None:
    witness = Witness()
    with pytest.raises(type(error)):
        await first_answer(each(witness.fails("a", error), witness.answers("b")), 60, NOBODY)
    assert witness.log == ["a asked"]


async def test_who_gives_up_leaves_nothing_running() -> None:
    witness = Witness()
    asking = asyncio.create_task(first_answer(each(witness.answers("a", 3600)), 60, NOBODY))
    await eventually(lambda: witness.log)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert witness.log == ["a asked", "a given up"]
