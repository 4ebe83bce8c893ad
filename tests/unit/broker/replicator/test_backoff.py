"""Waiting after failures."""

import asyncio

from qbus.broker.replicator.backoff import Backoff
from qbus.broker.replicator.delay_queue import DelayQueue
from tests.support.eventually import eventually


def test_waits_double_up_to_the_longest_give_or_take_a_fifth() -> None:
    backoff = Backoff(1.0)
    for expected in (0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        assert 0.8 * expected <= backoff.failed() <= 1.2 * expected
    for _ in range(5000):
        backoff.failed()
    assert backoff.failed() <= 1.2


def test_after_a_success_it_begins_anew() -> None:
    backoff = Backoff(1.0)
    for _ in range(5):
        backoff.failed()
    backoff.succeeded()
    assert backoff.failed() <= 0.06


def test_a_longest_wait_of_none_is_none() -> None:
    assert Backoff(0.0).failed() == 0


async def test_what_rests_goes_on_later_those_of_a_tick_together() -> None:
    going: list[str] = []
    resting = DelayQueue(going.append)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for name in ("a", "b"):
        resting.add(name, 0.01)
    resting.add("later", 60)
    assert going == []
    await eventually(lambda: going)
    assert going == ["a", "b"]
    assert loop.time() - begun >= 0.01
    resting.clear()


async def test_what_was_cleared_rests_for_ever() -> None:
    going: list[str] = []
    resting = DelayQueue(going.append)
    resting.add("a", 0)
    resting.clear()
    await asyncio.sleep(0.05)
    assert going == []
