"""Latency of records that are sent one at a time, to the acknowledgement and to a consumer."""

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

from qbus.clients import Consumer, Producer
from qbus.clients.types import EARLIEST

RECORDS = 1000

_WARM_UP = 50
_PAUSE_S = 0.0005


class Percentiles(NamedTuple):
    """Percentiles of times, in milliseconds."""

    p50: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Percentiles":
        """Compute them from times in seconds, at least one, by the nearest rank."""
        ordered = sorted(seconds)
        ranks = (-(-len(ordered) * percent // 100) for percent in (50, 95, 99, 100))
        return cls(*(ordered[rank - 1] * 1000 for rank in ranks))


class Latencies(NamedTuple):
    """From the send to the acknowledgement, and from the send to the consumer."""

    acknowledged: Percentiles
    delivered: Percentiles


async def measure(bootstrap: str, topic: str) -> Latencies:
    """Send `RECORDS` records to the first partition of ``topic``, which is empty."""
    sent: dict[bytes, float] = {}
    acknowledged: dict[bytes, float] = {}
    async with (
        Producer(bootstrap, linger_ms=0) as producer,
        Consumer(bootstrap, fetch_max_wait_ms=1000) as consumer,
    ):
        consumer.assign([(topic, 0, EARLIEST)])
        receiving = asyncio.create_task(_receive(consumer, _WARM_UP + RECORDS))
        for number in range(_WARM_UP + RECORDS):
            value = b"%010d" % number
            sent[value] = time.perf_counter()
            await (await producer.send(topic, value, partition=0))
            acknowledged[value] = time.perf_counter()
            await asyncio.sleep(_PAUSE_S)
        received = await receiving
    measured = list(sent)[_WARM_UP:]
    return Latencies(
        Percentiles.of([acknowledged[value] - sent[value] for value in measured]),
        Percentiles.of([received[value] - sent[value] for value in measured]),
    )


async def _receive(consumer: Consumer, count: int) -> dict[bytes, float]:
    received: dict[bytes, float] = {}
    while len(received) < count:
        for batch in await consumer.poll(1.0):
            now = time.perf_counter()
            received.update({bytes(record.value or b""): now for record in batch.records})
    return received
