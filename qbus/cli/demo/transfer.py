"""The demo's producer and its group of two consumers."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import BinaryIO, NamedTuple

from qbus.cli.consume.record_format import raw_values
from qbus.cli.demo.comparison import Plan
from qbus.cli.failures import Failure
from qbus.cli.produce.lines import LineSplitter
from qbus.clients import Consumer, Producer
from qbus.clients.types import PartitionRecords

PARTITIONS = 4
MEMBERS = 2

_CHUNK = 256 * 1024
_POLL_S = 0.2
_PATIENCE_S = 30.0


class Consumed(NamedTuple):
    """What the group has read; ``shares`` holds each member's partitions."""

    records: int
    seconds: float
    shares: list[list[int]]


async def produce(
    bootstrap: str, topic: str, stream: BinaryIO, advance: Callable[[int], None]
) -> tuple[Plan, float]:
    """Send the lines of ``stream`` to the partitions in turn; return the plan and the seconds.

    ``advance`` is called with the number of bytes that were sent.
    """
    plan = Plan()
    splitter = LineSplitter()
    async with Producer(bootstrap) as producer:
        await producer.partitions(topic)
        started = time.perf_counter()
        deliveries = []
        while chunk := stream.read(_CHUNK):
            lines = splitter.feed(chunk)
            if not lines:
                continue
            partition = len(plan.pieces) % PARTITIONS
            plan.add(partition, lines)
            deliveries.append(await producer.send_many(topic, lines, partition=partition))
            advance(len(chunk))
        await producer.flush()
        await asyncio.gather(*deliveries)
        return plan, time.perf_counter() - started


class Group:
    """Two members that read a topic and write each partition's values to a file of its own."""

    def __init__(self, bootstrap: str, topic: str, group: str, files: Sequence[BinaryIO]) -> None:
        self._topic = topic
        self._files = files
        self._members = [
            Consumer(bootstrap, group=group, offset_reset="earliest", client_id=f"demo-{number}")
            for number in range(1, MEMBERS + 1)
        ]
        self._records = 0
        self._shares: list[set[int]] = [set() for _ in self._members]
        self._first_at: float | None = None
        self._last_at = 0.0

    async def consume(self, records: int, advance: Callable[[int], None]) -> Consumed:
        """Read ``records`` records; raises Failure if they stop arriving.

        ``advance`` is called with the number of records that arrived.
        """
        self._last_at = time.perf_counter()
        async with _all(self._members) as members:
            for member in members:
                member.subscribe([self._topic])
            async with asyncio.TaskGroup() as tasks:
                for number, member in enumerate(members):
                    tasks.create_task(self._read(number, member, records, advance))
        return Consumed(
            self._records,
            self._last_at - (self._first_at or self._last_at),
            [sorted(share) for share in self._shares],
        )

    async def _read(
        self, number: int, member: Consumer, records: int, advance: Callable[[int], None]
    ) -> None:
        while self._records < records:
            for batch in await member.poll(_POLL_S):
                self._take(number, batch)
                advance(len(batch.records))
            if time.perf_counter() - self._last_at > _PATIENCE_S:
                raise Failure(f"only {self._records:,} of {records:,} records arrived")

    def _take(self, number: int, batch: PartitionRecords) -> None:
        self._last_at = time.perf_counter()
        self._first_at = self._first_at or self._last_at
        self._files[batch.partition].write(raw_values(batch))
        self._records += len(batch.records)
        self._shares[number].add(batch.partition)


@asynccontextmanager
async def _all(members: list[Consumer]) -> AsyncIterator[list[Consumer]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(member) for member in members]
