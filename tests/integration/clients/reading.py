"""Reading with a deadline."""

import time

from qbus.clients import Consumer, ConsumerRecord


async def read(consumer: Consumer, count: int, within: float = 20.0) -> list[ConsumerRecord]:
    """The next ``count`` records at least; fails when they do not come in time."""
    deadline = time.monotonic() + within
    found: list[ConsumerRecord] = []
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
        found += await consumer.poll(0.5)
    return found


async def read_topic(bootstrap: str, topic: str, count: int) -> list[ConsumerRecord]:
    """The first ``count`` records of ``topic``, by partition and offset."""
    async with Consumer(bootstrap, offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        return sorted(await read(consumer, count), key=lambda record: record[:3])
