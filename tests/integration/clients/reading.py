"""Waiting and reading with a deadline."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from qbus.clients import Consumer, ConsumerRecord
from tests.support.polling import flat


async def eventually(holds: Callable[[], Awaitable[bool]], within: float = 20.0) -> None:
    """Return when it holds; fail if it does not in time."""
    deadline = time.monotonic() + within
    while not await holds():
        assert time.monotonic() < deadline, "it never happened"
        await asyncio.sleep(0.02)


async def read(consumer: Consumer, count: int, within: float = 20.0) -> list[ConsumerRecord]:
    """The next ``count`` records at least; fails when they do not come in time."""
    deadline = time.monotonic() + within
    found: list[ConsumerRecord] = []
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
        found += flat(await consumer.poll(0.5))
    return found


async def read_topic(bootstrap: str, topic: str, count: int) -> list[ConsumerRecord]:
    """The first ``count`` records of ``topic``, by partition and offset."""
    async with Consumer(bootstrap, offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        return sorted(await read(consumer, count), key=lambda record: record[:3])
