"""Records on their way: gathered for one partition, sent as one batch, told of together."""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import NamedTuple

from qbus.records import Compression, build_batch, build_values_batch
from qbus.records.crc import Buffer
from qbus.records.encode import RecordItem

from ..types import BatchMetadata, RecordMetadata, TopicPartition

RECORD_OVERHEAD = 12
"""Bytes that most records take beyond their key, value and headers."""


class ProducerIdentity(NamedTuple):
    """What the broker knows an idempotent producer by."""

    producer_id: int
    epoch: int


class BulkDelivery:
    """The delivery of values sent together, in one batch or several."""

    def __init__(self) -> None:
        self.future: asyncio.Future[list[BatchMetadata]] = (
            asyncio.get_running_loop().create_future()
        )
        self._delivered: list[BatchMetadata] = []
        self._missing = 0
        self._is_complete = False

    def expect(self) -> None:
        """One more part is on its way."""
        self._missing += 1

    def complete(self) -> None:
        """No more parts come."""
        self._is_complete = True
        self._resolve()

    def arrived(self, metadata: BatchMetadata) -> None:
        """A part was delivered."""
        self._missing -= 1
        self._delivered.append(metadata)
        self._resolve()

    def failed(self, error: Exception) -> None:
        """A part was not delivered, which fails the whole."""
        self._missing -= 1
        if not self.future.done():
            self.future.set_exception(error)

    def _resolve(self) -> None:
        if self._is_complete and not self._missing and not self.future.done():
            self.future.set_result(self._delivered)


class Batch:
    """Records for one partition. Those without a timestamp of their own get the batch's.

    As long as no record has a key, headers or a timestamp, only values are kept: the quick way to
    encode them. ``size`` is kept by whoever adds.
    """

    __slots__ = (
        "_bulks",
        "_items",
        "_singles",
        "_values",
        "attempts",
        "created_at",
        "done",
        "encoded",
        "identity",
        "ordinal",
        "partition",
        "sequence",
        "size",
        "timestamp",
    )

    def __init__(self, partition: TopicPartition, timestamp: int, created_at: float) -> None:
        self.partition = partition
        self.timestamp = timestamp
        self.created_at = created_at
        self.size = 0
        self.attempts = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.encoded: bytearray | None = None
        self.identity: ProducerIdentity | None = None
        self.sequence = -1
        self.ordinal = -1
        self._values: list[Buffer] = []
        self._items: list[RecordItem] | None = None
        self._singles: list[tuple[int, asyncio.Future[RecordMetadata]]] = []
        self._bulks: list[tuple[int, int, BulkDelivery]] = []

    @property
    def count(self) -> int:
        """How many records there are."""
        return len(self._values) if self._items is None else len(self._items)

    def add(
        self,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]],
        timestamp: int | None,
    ) -> asyncio.Future[RecordMetadata]:
        """Add one record; its delivery."""
        delivery: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        self._singles.append((self.count, delivery))
        if key is None and value is not None and not headers and timestamp is None:
            self._add_values((value,))
            return delivery
        time = self.timestamp if timestamp is None else timestamp
        self._as_items().append((key, value, headers, time))
        return delivery

    def add_bulk(
        self,
        values: Sequence[Buffer],
        keys: Sequence[Buffer | None] | None,
        timestamp: int | None,
        bulk: BulkDelivery,
    ) -> None:
        """Add values, with their keys if they have any, as a part of ``bulk``."""
        bulk.expect()
        self._bulks.append((self.count, len(values), bulk))
        if keys is None and timestamp is None:
            self._add_values(values)
            return
        time = self.timestamp if timestamp is None else timestamp
        keyed = zip(repeat(None) if keys is None else keys, values, strict=False)
        self._as_items().extend((key, value, (), time) for key, value in keyed)

    def _add_values(self, values: Iterable[Buffer]) -> None:
        if self._items is None:
            self._values.extend(values)
        else:
            self._items.extend((None, value, (), self.timestamp) for value in values)

    def encode(self, compression: Compression) -> None:
        """Write the batch down, with the identity and sequence it has."""
        identity = self.identity or ProducerIdentity(-1, -1)
        if self._items is None:
            self.encoded = build_values_batch(
                self._values,
                self.timestamp,
                compression=compression,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=self.sequence,
            )
        else:
            self.encoded = build_batch(
                self._items,
                compression=compression,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=self.sequence,
            )

    def forget_identity(self) -> None:
        """The batch is known not to be stored: it may go out under another identity."""
        self.identity = None
        self.sequence = -1
        self.encoded = None

    def delivered(self, base_offset: int, log_append_time: int) -> None:
        """Tell everyone who waits; a time of -1 leaves the records' own."""
        topic, partition = self.partition
        for index, delivery in self._singles:
            if not delivery.done():
                offset = base_offset + index if base_offset >= 0 else -1
                time = log_append_time if log_append_time >= 0 else self._timestamp_of(index)
                delivery.set_result(RecordMetadata(topic, partition, offset, time))
        for start, count, bulk in self._bulks:
            offset = base_offset + start if base_offset >= 0 else -1
            time = log_append_time if log_append_time >= 0 else self._timestamp_of(start)
            bulk.arrived(BatchMetadata(topic, partition, offset, count, time))
        self.done.set_result(None)

    def failed(self, error: Exception) -> None:
        """Tell everyone who waits."""
        for _, delivery in self._singles:
            if not delivery.done():
                delivery.set_exception(error)
        for _, _, bulk in self._bulks:
            bulk.failed(error)
        self.done.set_result(None)

    def _timestamp_of(self, index: int) -> int:
        return self.timestamp if self._items is None else self._items[index][3]

    def _as_items(self) -> list[RecordItem]:
        if self._items is None:
            self._items = [(None, value, (), self.timestamp) for value in self._values]
            self._values = []
        return self._items


def item_size(
    key: Buffer | None, value: Buffer | None, headers: Iterable[tuple[str, Buffer | None]]
) -> int:
    """About how many bytes a record takes in a batch."""
    size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    for name, data in headers:
        size += RECORD_OVERHEAD + len(name) + len(data or b"")
    return size
