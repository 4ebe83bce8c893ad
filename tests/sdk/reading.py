"""Reading with a deadline."""

import time
from typing import Any

from qbus.aio import Consumer
from qbus.clients import ConsumerRecord


async def read(consumer: Any, count: int, within: float = 30.0) -> list[ConsumerRecord]:
    """The next ``count`` records at least; fails when they do not come in time."""
    deadline = time.monotonic() + within
    found: list[ConsumerRecord] = []
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
        found += records(await consumer.poll(0.5))
    return found


def records(polled: list[Any]) -> list[ConsumerRecord]:
    """The records of what a poll returned."""
    return [record for part in polled for record in getattr(part, "records", [part])]


async def read_topic(bootstrap: str, topic: str, count: int) -> list[ConsumerRecord]:
    """The first ``count`` records of ``topic``, by partition and offset."""
    async with Consumer(bootstrap, offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        return sorted(await read(consumer, count), key=lambda record: record[:3])


async def read_whole(bootstrap: str, topic: str) -> list[ConsumerRecord]:
    """Every record that ``topic`` holds now, by partition and offset."""
    async with Consumer(bootstrap, offset_reset="earliest") as consumer:
        ends = await consumer.end_offsets(await consumer.partitions(topic))
        total = sum(ends.values())
    return await read_topic(bootstrap, topic, total) if total else []
