"""When to try again, and until when."""

import asyncio
from itertools import islice

import pytest

from qbus.clients.errors import RequestTimedOut
from qbus.clients.net.retry import backoff, retrying
from qbus.errors import ApiError, ErrorCode


def test_delays_double_up_to_a_second_give_or_take_a_fifth() -> None:
    expected = [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    for delays in (list(islice(backoff(), 7)) for _ in range(100)):
        assert all(
            0.8 * base <= delay <= 1.2 * base for delay, base in zip(delays, expected, strict=True)
        )


def test_delays_are_spread() -> None:
    assert len({next(backoff()) for _ in range(20)}) > 10


@pytest.mark.parametrize(("first", "longest"), [(10.0, 35.0), (50.0, 35.0)])
def test_delays_of_ones_own(first: float, longest: float) -> None:
    delays = list(islice(backoff(first, longest), 5))
    assert 0.8 * min(first, longest) <= delays[0] <= 1.2 * min(first, longest)
    assert 0.8 * longest <= delays[-1] <= 1.2 * longest


class Attempts:
    """Fails with one error after another, then succeeds."""

    def __init__(self, *codes: ErrorCode) -> None:
        self.codes = list(codes)
        self.count = 0

    async def __call__(self) -> str:
        self.count += 1
        if self.codes:
            raise ApiError(self.codes.pop(0))
        return "done"


async def test_retriable_errors_are_retried() -> None:
    attempt = Attempts(ErrorCode.NOT_CONTROLLER, ErrorCode.NETWORK_EXCEPTION)
    assert await retrying(attempt, 5.0) == "done"
    assert attempt.count == 3


@pytest.mark.parametrize("code", [ErrorCode.INVALID_CONFIG, ErrorCode.LEADER_NOT_AVAILABLE])
async def test_other_errors_are_final(code: ErrorCode) -> None:
    attempt = Attempts(code)
    with pytest.raises(ApiError):
        await retrying(attempt, 5.0, final={ErrorCode.LEADER_NOT_AVAILABLE})
    assert attempt.count == 1


async def test_retries_end_with_the_last_error() -> None:
    attempt = Attempts(*[ErrorCode.NOT_CONTROLLER] * 100)
    with pytest.raises(ApiError) as caught:
        await retrying(attempt, 0.1)
    assert "NOT_CONTROLLER" in str(caught.value), "be it that time ran out within an attempt"


async def test_an_attempt_that_hangs_ends_with_the_time() -> None:
    attempts = 0

    async def attempt() -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "ask another")
        await asyncio.sleep(3600)

    with pytest.raises(RequestTimedOut, match="ask another") as caught:
        await retrying(attempt, 0.2)
    assert isinstance(caught.value.__cause__, ApiError)


async def test_an_attempts_own_time_out_is_its_own() -> None:
    async def attempt() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await retrying(attempt, 60.0)
