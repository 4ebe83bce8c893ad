"""Whether a topic holds records back: asked once, and again in the background."""

import asyncio
import logging
import threading
from typing import Any, cast

import pytest

from qbus.clients import ClientClosed
from qbus.clients.net.cluster import Cluster
from qbus.clients.net.trouble import TroubleLog
from qbus.clients.producer.delays import DelayingTopics
from qbus.clock import ManualClock
from qbus.errors import ConfigError, ErrorCode
from qbus.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)


class Brokers:
    """Answer what a topic's configuration is, when a test lets them."""

    request_timeout = 5.0
    troubles = TroubleLog("test")

    def __init__(self) -> None:
        self.value = "true"
        self.code = ErrorCode.NONE
        self.answering = asyncio.Event()
        self.answering.set()
        self.asked = 0

    async def ask_any(self, *_: Any) -> DescribeConfigsResponse:
        self.asked += 1
        await self.answering.wait()
        entry = DescribeConfigsResourceResult(name="qbus.delay.enable", value=self.value)
        result = DescribeConfigsResult(
            error_code=self.code, error_message="", resource_name="t", configs=[entry]
        )
        return DescribeConfigsResponse(results=[result])


@pytest.fixture
async def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def topics(brokers: Brokers, clock: ManualClock) -> DelayingTopics:
    return DelayingTopics(cast("Cluster", brokers), clock)


async def test_all_who_want_to_know_wait_for_one_answer(
    topics: DelayingTopics, brokers: Brokers
) -> None:
    await asyncio.gather(*(topics.check("t") for _ in range(20)))
    assert topics.is_known("t")
    await topics.check("t")
    assert brokers.asked == 1


async def test_who_gives_up_does_not_take_the_answer_from_others(
    topics: DelayingTopics, brokers: Brokers
) -> None:
    brokers.answering.clear()
    first, second = (asyncio.ensure_future(topics.check("t")) for _ in range(2))
    await asyncio.sleep(0.01)
    first.cancel()
    brokers.answering.set()
    await second
    assert brokers.asked == 1


async def test_the_last_answer_counts_while_nobody_answers(
    topics: DelayingTopics, brokers: Brokers, clock: ManualClock
) -> None:
    await topics.check("t")
    brokers.answering.clear()
    for _ in range(5):
        clock.advance(61)
        await asyncio.wait_for(topics.check("t"), 1)
        await asyncio.sleep(0.01)
    assert brokers.asked == 2  # and that one waits
    topics.stop()


async def test_a_topic_that_stopped_to_hold_back_is_refused_from_then_on(
    topics: DelayingTopics,
    brokers: Brokers,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await topics.check("t")
    brokers.value = "false"
    clock.advance(61)
    with caplog.at_level(logging.WARNING):
        await topics.check("t")
        await asyncio.sleep(0.01)
    assert "t holds nothing back" in caplog.text
    with pytest.raises(ConfigError, match="holds nothing back"):
        await topics.check("t")
    brokers.value = "true"
    await topics.check("t")


async def test_who_may_not_read_the_configuration_is_trusted(
    topics: DelayingTopics, brokers: Brokers
) -> None:
    brokers.code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await topics.check("t")
    assert topics.is_known("t")


async def test_those_who_wait_when_it_is_closed_are_told_so(
    topics: DelayingTopics, brokers: Brokers
) -> None:
    brokers.answering.clear()
    ended: list[str] = []

    async def ask() -> None:
        with pytest.raises(ClientClosed):
            await topics.check("t")
        ended.append("told")

    async with asyncio.TaskGroup() as group:  # which swallows a CancelledError
        for _ in range(2):
            group.create_task(ask())
        await asyncio.sleep(0.01)
        topics.stop()
    assert ended == ["told", "told"]
    with pytest.raises(ClientClosed):
        await topics.check("another")
    assert brokers.asked == 1


async def test_who_is_cancelled_while_it_is_closed_stays_cancelled(
    topics: DelayingTopics, brokers: Brokers
) -> None:
    brokers.answering.clear()
    asking = asyncio.ensure_future(topics.check("t"))
    await asyncio.sleep(0.01)
    asking.cancel()
    topics.stop()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_nothing_is_asked_after_it_was_closed(
    topics: DelayingTopics, brokers: Brokers, clock: ManualClock
) -> None:
    await topics.check("t")
    clock.advance(61)
    assert topics.is_known("t")  # which has the loop ask again
    topics.stop()
    await asyncio.sleep(0.01)
    assert brokers.asked == 1


@pytest.mark.sources
async def test_a_topic_asked_for_while_it_is_removed_stays_removed(
    topics: DelayingTopics, brokers: Brokers, clock: ManualClock
) -> None:
    await topics.check("t")
    clock.advance(61)
    reads, removed = threading.Event(), threading.Event()

    class Slow(ManualClock):
        """Lets the loop remove the topic between what another thread reads and does."""

        def monotonic(self) -> float:
            if threading.current_thread() is not threading.main_thread():
                reads.set()
                removed.wait(10)
            return clock.monotonic()

    topics._clock = Slow()
    asking = asyncio.create_task(asyncio.to_thread(topics.is_known, "t"))
    await asyncio.to_thread(reads.wait, 10)
    del topics._ask_again["t"]  # as an answer does
    removed.set()
    await asking
    await asyncio.sleep(0.01)
    assert not topics.is_known("t")
    assert brokers.asked == 1


async def test_who_sends_much_has_the_loop_ask_once(
    topics: DelayingTopics, brokers: Brokers, clock: ManualClock
) -> None:
    for turn in range(1, 4):
        await topics.check("t")
        clock.advance(61)
        for _ in range(1000):
            assert topics.is_known("t")
        await asyncio.sleep(0.01)
        assert brokers.asked == 1 + turn
