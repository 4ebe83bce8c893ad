"""The worst request of each API, of 1 MB: how long the event loop stands still, and what it costs.

What is counted is work, not time: calls of functions, Python's and C's, between two ticks of the
loop. 100 ms are at least 300,000 of them; the bound is a third of that. The suite sends a part of
each request, of a thousand elements at most, which is enough to tell a loop that pauses from one
that does not; at night whole ones are sent, and their memory is measured.
"""

import asyncio
import gc
import time
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from types import FrameType
from typing import Final

import pytest

from qbus.broker.kafka.dispatch import Dispatcher
from qbus.broker.net.connection import CloseConnection
from qbus.broker.net.peer import Peer
from qbus.errors import WireError
from qbus.wire import API, ApiKey
from tests.support.loop_meter import Meter
from tests.support.worst_requests import SIZE, TABLE, TOPIC, worst_requests
from tests.unit.broker.kafka.handlers.transaction_broker import HERE, TransactionBroker

pytestmark = [pytest.mark.security, pytest.mark.sources]

MOST_CALLS: Final = 100_000
_MOST_CALLS_OF_A_PART: Final = 40_000
_PLANNED_AT_ONCE: Final = 300_000
"""Of a topic of 10,000 partitions, the most that one request makes, each with its assignment."""
_PART: Final = 100
_PATIENCE_S: Final = 600.0
_REFUSED: Final = {ApiKey.ALTER_CONFIGS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS}


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[TransactionBroker]:
    async with TransactionBroker.running(tmp_path) as running:
        yield running


async def ask(dispatcher: Dispatcher, frame: bytes) -> int:
    """Have a request answered; the answer's size, 0 where there is none."""
    try:
        reply = dispatcher(Peer(1, "127.0.0.1", HERE), memoryview(bytearray(frame)))
        if reply is not None and not isinstance(reply, list):
            answered = asyncio.Event()
            reply.on_done(answered.set)
            await asyncio.wait_for(answered.wait(), _PATIENCE_S)
            reply = reply.result()
    except (CloseConnection, WireError):
        return 0
    return sum(map(len, reply or ()))


def test_every_api_has_its_worst_request() -> None:
    assert set(TABLE) == set(API)


@pytest.mark.timeout(600)
async def test_no_part_of_a_request_holds_the_loop(plane: TransactionBroker) -> None:
    await _check(plane, _PART, _MOST_CALLS_OF_A_PART)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
async def test_no_request_holds_the_loop(plane: TransactionBroker) -> None:
    await _check(plane, 1, MOST_CALLS)


async def _check(plane: TransactionBroker, share: int, most_calls: int) -> None:
    dispatcher = Dispatcher(plane.broker)
    ids = {TOPIC: plane.broker.metadata.topics[TOPIC].id}
    for worst in worst_requests(share=1000):
        await ask(dispatcher, worst.frame(ids))  # compiles and imports what is needed
    beyond = []
    for worst in worst_requests(share):
        frame = worst.frame(ids)
        assert len(frame) < 1.4 * SIZE, worst
        began = time.monotonic()
        async with Meter() as meter:
            await ask(dispatcher, frame)
        took = time.monotonic() - began
        told = f"{meter.most:8} calls in {took:.1f} s, {worst.title}"
        print(told)
        most = _PLANNED_AT_ONCE if worst.why == "many assignments" else most_calls
        if meter.most > most:
            beyond.append(told)
    assert not beyond, "\n".join(beyond)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
async def test_memory_is_in_proportion(plane: TransactionBroker) -> None:
    """An element of a few bytes becomes objects, and an answer; but not more than that."""
    dispatcher = Dispatcher(plane.broker)
    ids = {TOPIC: plane.broker.metadata.topics[TOPIC].id}
    beyond = []
    for worst in worst_requests():
        frame = worst.frame(ids)
        tracemalloc.start()
        try:
            await ask(dispatcher, frame)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        told = f"{peak >> 20:6} MB, {worst.title}"
        print(told)
        if peak > 100 * len(frame) + (32 << 20):
            beyond.append(told)
    assert not beyond, "\n".join(beyond)


async def test_refusals_leave_no_garbage(plane: TransactionBroker) -> None:
    """Errors whose tracebacks lead back to them wait for the collector, which holds the loop."""
    dispatcher = Dispatcher(plane.broker)
    ids = {TOPIC: plane.broker.metadata.topics[TOPIC].id}
    for worst in worst_requests(_PART):
        if worst.api not in _REFUSED or worst.why != "topics that do not exist":
            continue
        frame = worst.frame(ids)
        await ask(dispatcher, frame)  # compiles and imports what is needed
        gc.collect()
        gc.disable()
        try:
            await ask(dispatcher, frame)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            frames = sum(isinstance(one, FrameType) for one in gc.garbage)
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
        assert frames < 100, f"{frames} frames are garbage after {worst.title}"
