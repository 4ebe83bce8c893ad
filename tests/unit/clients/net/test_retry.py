"""When to try again, and until when."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Mapping

import pytest

from qbus.clients.errors import PartialFailure, RequestTimedOut
from qbus.clients.net.cluster import Cluster
from qbus.clients.net.retry import Outcomes, ask_each, results_or_raise, retry_each, retrying
from qbus.clients.net.trouble import TroubleLog
from qbus.errors import ApiError, ErrorCode


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """A cluster that is not asked; retries report to its log."""
    cluster = Cluster("127.0.0.1:1", "app", 60.0)
    yield cluster
    await cluster.close()


def _topic(name: str) -> str:
    return f"topic {name}"


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


async def test_retriable_errors_are_retried(cluster: Cluster) -> None:
    attempt = Attempts(ErrorCode.NOT_CONTROLLER, ErrorCode.NETWORK_EXCEPTION)
    assert await retrying(cluster, "the topics", attempt, 5.0) == "done"
    assert attempt.count == 3


@pytest.mark.parametrize("code", [ErrorCode.INVALID_CONFIG, ErrorCode.LEADER_NOT_AVAILABLE])
async def test_other_errors_are_final(cluster: Cluster, code: ErrorCode) -> None:
    attempt = Attempts(code)
    with pytest.raises(ApiError):
        await retrying(cluster, "the topics", attempt, 5.0, final={ErrorCode.LEADER_NOT_AVAILABLE})
    assert attempt.count == 1


async def test_retries_end_with_the_last_error(cluster: Cluster) -> None:
    attempt = Attempts(*[ErrorCode.NOT_CONTROLLER] * 100)
    with pytest.raises(ApiError) as caught:
        await retrying(cluster, "the topics", attempt, 0.1)
    assert "NOT_CONTROLLER" in str(caught.value), "be it that time ran out within an attempt"


async def test_an_attempt_that_hangs_ends_with_the_time(cluster: Cluster) -> None:
    attempts = 0

    async def attempt() -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "ask another")
        await asyncio.sleep(3600)

    with pytest.raises(RequestTimedOut, match="ask another") as caught:
        await retrying(cluster, "the topics", attempt, 0.2)
    assert isinstance(caught.value.__cause__, ApiError)


async def test_an_attempts_own_time_out_is_its_own(cluster: Cluster) -> None:
    async def attempt() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await retrying(cluster, "the topics", attempt, 60.0)


PASSING = ApiError(ErrorCode.NOT_CONTROLLER)
LASTING = ApiError(ErrorCode.INVALID_CONFIG, "no such key")


class Broker:
    """Answers each item with what is next for it."""

    def __init__(self, **answers: list[int | ApiError | None]) -> None:
        self.answers = answers
        self.asked: list[list[str]] = []

    async def __call__(self, items: list[str]) -> Mapping[str, int | ApiError | None]:
        self.asked.append(items)
        return {item: self.answers[item].pop(0) for item in items if self.answers[item]}


async def test_only_retriable_items_are_asked_for_again(cluster: Cluster) -> None:
    broker = Broker(a=[1], b=[PASSING, PASSING, 2], c=[LASTING], d=[PASSING, 0])
    outcomes = await retry_each(cluster, "abcd", broker, 5.0, subject=_topic)
    assert outcomes == {"a": 1, "b": 2, "c": LASTING, "d": 0}
    assert broker.asked == [["a", "b", "c", "d"], ["b", "d"], ["b"]]


async def test_none_is_a_result(cluster: Cluster) -> None:
    broker = Broker(a=[None], b=[PASSING, None])
    assert await retry_each(cluster, "ab", broker, 5.0, subject=_topic) == {"a": None, "b": None}
    assert broker.asked == [["a", "b"], ["b"]]


async def test_an_error_that_is_final_for_this_caller(cluster: Cluster) -> None:
    broker = Broker(a=[PASSING], b=[1])
    outcomes = await retry_each(
        cluster, "ab", broker, 5.0, subject=_topic, final={ErrorCode.NOT_CONTROLLER}
    )
    assert outcomes == {"a": PASSING, "b": 1}


async def test_time_ends_with_the_last_that_was_heard(cluster: Cluster) -> None:
    broker = Broker(a=[PASSING] * 100, b=[1])
    assert await retry_each(cluster, "ab", broker, 0.1, subject=_topic) == {"a": PASSING, "b": 1}


async def test_what_is_left_out_has_failed(cluster: Cluster) -> None:
    outcomes = await retry_each(cluster, "ab", Broker(a=[1], b=[]), 5.0, subject=_topic)
    assert isinstance(outcomes["b"], ApiError)
    assert outcomes["b"].code is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_what_nobody_asked_about_is_ignored(cluster: Cluster) -> None:
    async def ask(_: list[str]) -> Outcomes[str, int]:
        return {"a": 1, "x": LASTING}

    assert await retry_each(cluster, ["a"], ask, 5.0, subject=_topic) == {"a": 1}


async def test_a_refusal_of_the_whole_holds_for_each(cluster: Cluster) -> None:
    async def ask(_: list[str]) -> Outcomes[str, int]:
        raise LASTING

    assert await retry_each(cluster, "ab", ask, 5.0, subject=_topic) == {"a": LASTING, "b": LASTING}


async def test_nobody_is_asked_for_nothing(cluster: Cluster) -> None:
    broker = Broker()
    assert await retry_each(cluster, [], broker, 5.0, subject=_topic) == {}
    assert broker.asked == []


class Trouble:
    """What a client says it waits for while its clock moves on."""

    def __init__(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.now = 0.0
        caplog.set_level(logging.INFO, "qbus.clients.net.trouble")
        self.caplog = caplog
        cluster.troubles = TroubleLog("app", lambda: self.now)
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds

    @property
    def said(self) -> list[str]:
        return [re.sub(r" \(.* s so far\)| after .* s$", "", line) for line in self.caplog.messages]


@pytest.fixture
def trouble(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Trouble:
    return Trouble(cluster, monkeypatch, caplog)


async def test_what_is_retried_is_said_within_two_seconds(
    cluster: Cluster, trouble: Trouble
) -> None:
    attempt = Attempts(*[ErrorCode.LEADER_NOT_AVAILABLE] * 6)
    said_at: list[float] = []

    async def watched() -> str:
        if trouble.said and not said_at:
            said_at.append(trouble.now)
        return await attempt()

    assert await retrying(cluster, "topic t", watched) == "done"
    assert said_at
    assert said_at[0] < 3.0
    assert trouble.said == [
        "app waits for topic t: LEADER_NOT_AVAILABLE; trying again",
        "app has topic t again",
    ]


async def test_each_item_that_is_retried_is_named(cluster: Cluster, trouble: Trouble) -> None:
    broker = Broker(a=[1], b=[PASSING] * 6 + [2], c=[*[PASSING] * 6, LASTING])
    await retry_each(cluster, "abc", broker, subject=_topic)
    assert trouble.said == [
        "app waits for topic b: NOT_CONTROLLER; trying again",
        "app waits for topic c: NOT_CONTROLLER; trying again",
        "app has topic b again",
    ]


async def test_a_short_failover_is_not_said(cluster: Cluster, trouble: Trouble) -> None:
    assert await retrying(cluster, "it", Attempts(ErrorCode.NOT_LEADER_OR_FOLLOWER)) == "done"
    assert trouble.said == []
    assert not cluster.troubles


def test_all_is_well() -> None:
    assert results_or_raise({"a": 1, "b": 0}) == {"a": 1, "b": 0}


def test_one_thing_fails_with_its_own_error() -> None:
    with pytest.raises(ApiError) as caught:
        results_or_raise({"a": LASTING})
    assert caught.value is LASTING


def test_some_things_fail() -> None:
    with pytest.raises(PartialFailure, match=r"no such key \(and 1 more errors\)") as caught:
        results_or_raise({"a": 1, "b": LASTING, "c": PASSING})
    failure = caught.value
    assert (failure.results, failure.errors) == ({"a": 1}, {"b": LASTING, "c": PASSING})
    assert failure.code is ErrorCode.INVALID_CONFIG
    assert not failure.retriable


def test_a_partial_failure_is_retriable_if_all_its_errors_are() -> None:
    with pytest.raises(PartialFailure) as caught:
        results_or_raise({"a": PASSING, "b": PASSING})
    assert caught.value.retriable


async def test_each_for_itself_and_some_at_a_time() -> None:
    at_once = 0
    most = 0

    async def ask(item: int) -> int:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        if item == 7:
            raise LASTING
        return item * 2

    outcomes = await ask_each(range(100), ask)
    assert outcomes[7] is LASTING
    assert outcomes[99] == 198
    assert 1 < most <= 20
