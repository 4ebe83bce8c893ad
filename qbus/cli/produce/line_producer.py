"""Sends lines to a topic, and counts what was acknowledged."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qbus.cli.failures import Failure, describe
from qbus.cli.output import Document
from qbus.errors import ApiError

if TYPE_CHECKING:
    from qbus.cli.produce.line_format import Parse
    from qbus.clients import BulkDelivery, Producer
    from qbus.clients.types import BatchMetadata


@dataclass(slots=True)
class _Share:
    """The records stored in one partition; offsets are -1 with ``acks=0``."""

    records: int = 0
    first_offset: int = -1
    last_offset: int = -1

    def add(self, batch: "BatchMetadata") -> None:
        self.records += batch.records_count
        if batch.base_offset >= 0:
            last = batch.base_offset + batch.records_count - 1
            self.first_offset = batch.base_offset if self.first_offset < 0 else self.first_offset
            self.last_offset = max(self.last_offset, last)


class LineProducer:
    """Sends lines to a topic, many at a time, and counts acknowledged records by partition."""

    def __init__(
        self, producer: "Producer", topic: str, parse: "Parse", partition: int | None
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._parse = parse
        self._partition = partition
        self._deliveries: deque[BulkDelivery] = deque()
        self._shares: dict[int, _Share] = {}
        self._started = time.perf_counter()
        self._sent = 0
        self._bytes = 0

    async def send(self, lines: Sequence[bytes]) -> int:
        """Send ``lines``; return their size in bytes, with a newline for each.

        Raises Failure if earlier lines could not be delivered, or if one of these is no record;
        then none of these is sent, and the earlier ones are delivered.
        """
        try:
            values, keys, headers, timestamps = self._parse(lines)
        except Failure as error:
            await self.finish()
            raise self._failure(error) from error
        try:
            delivery = await self._producer.send_many(
                self._topic, values, keys, headers, self._partition, timestamps
            )
        except ApiError as error:
            raise self._failure(error) from error
        self._deliveries.append(delivery)
        size = sum(map(len, lines)) + len(lines)
        self._sent += len(lines)
        self._bytes += size
        while self._deliveries and self._deliveries[0].done():
            await self._take_acknowledgement()
        return size

    async def finish(self) -> Document:
        """Wait for all acknowledgements; return a summary."""
        await self._producer.flush()
        while self._deliveries:
            await self._take_acknowledgement()
        return {
            "topic": self._topic,
            "records": self._sent,
            "bytes": self._bytes,
            "seconds": round(time.perf_counter() - self._started, 6),
            "partitions": [
                {
                    "partition": partition,
                    "records": share.records,
                    "first_offset": None if share.first_offset < 0 else share.first_offset,
                    "last_offset": None if share.last_offset < 0 else share.last_offset,
                }
                for partition, share in sorted(self._shares.items())
            ],
        }

    async def finish_within(self, seconds: float) -> Document | None:
        """Wait so long for all acknowledgements; return a summary, or None if some are missing.

        The records without an acknowledgement are given up then, or when the caller is cancelled.
        """
        try:
            return await asyncio.wait_for(self.finish(), seconds)
        except TimeoutError:
            return None
        finally:
            await self._producer.close(0)

    @property
    def unacknowledged(self) -> int:
        """The number of records that were sent and not acknowledged."""
        return self._sent - self._acknowledged

    @property
    def _acknowledged(self) -> int:
        return sum(share.records for share in self._shares.values())

    async def _take_acknowledgement(self) -> None:
        try:
            batches = await self._deliveries.popleft()
        except ApiError as error:
            raise self._failure(error) from error
        for batch in batches:
            self._shares.setdefault(batch.partition, _Share()).add(batch)

    def _failure(self, error: ApiError | Failure) -> Failure:
        return Failure(
            f"{describe(error)}. Acknowledged before that: {self._acknowledged:,} records"
        )
