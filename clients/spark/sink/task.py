"""What a task does: stages its rows, or writes them to their topics."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa

from qbus.errors import QbusError
from qbus.records import ArrowColumns

from ...prepared import PreparedTransaction
from ...producer import Producer
from ...producer.delivery import BulkDelivery
from ...types import BatchMetadata, TopicDescription, TopicPartition
from ..connections import connections
from .gathering import Gatherer
from .manifest import StagedBatch
from .options import SinkOptions
from .producers import discard, producer, transactional
from .routing import Router
from .rows import check_due_times, check_orders, check_rows, record_columns, shifted
from .topics import TopicLimits, describe, ensure_staging, topic_limits


class _Sent(NamedTuple):
    target: TopicPartition
    shift: int
    delivery: BulkDelivery


class TaskOutput(NamedTuple):
    """What a task leaves to the driver: what it has staged, or the transaction it has filled."""

    staged: tuple[StagedBatch, ...] = ()
    prepared: PreparedTransaction | None = None


class TaskWriter:
    """Writes the rows of one task.

    Raises :class:`~qbus.clients.spark.sink.routing.BadRow` for rows that cannot be written, and
    :class:`~qbus.errors.QbusError` for other failures.
    """

    def __init__(self, options: SinkOptions, transactional_id: str = "") -> None:
        """``transactional_id``: a name that no other attempt of a task has, for transactions."""
        self._options = options
        self._transactional_id = transactional_id
        self._producer: Producer | None = None
        self._connections = connections(options.cluster)
        self._cluster = self._connections.cluster
        self._router = Router(options.topic, self._describe)
        self._gatherer = Gatherer(options.producer.batch_bytes)
        self._limits: dict[str, TopicLimits] = {}
        self._sent: list[_Sent] = []
        self._row_partitions = 0

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskOutput:
        """Store all rows; return what the driver has to do with them."""
        if self._options.transaction_timeout_ms is not None:
            return self._write_in_transaction(batches, self._options.transaction_timeout_ms)
        try:
            if self._options.is_staged:
                staging = ensure_staging(self._cluster, self._options.staging_topic)
                self._row_partitions = len(self._connections.ask(staging).partitions) - 1
            for target, rows in self._full(batches):
                self._send(target, rows)
            return TaskOutput(tuple(self._connections.run(self._delivered_batches())))
        except BaseException:
            discard(self._connections, self._options.producer)
            self._forget()
            raise

    def _write_in_transaction(
        self, batches: Iterable[pa.RecordBatch], timeout_ms: int
    ) -> TaskOutput:
        """Store all rows in a transaction, and leave it to the driver to end it."""
        run = self._connections.run
        sender = transactional(
            self._connections, self._options.producer, self._transactional_id, timeout_ms
        )
        try:
            run(sender.begin_transaction())
            self._producer = sender
            for target, rows in self._full(batches):
                self._send(target, rows)
            return TaskOutput(prepared=run(sender.transactions.hand_over()))
        except BaseException:
            self._forget()
            raise
        finally:
            run(sender.close())  # aborts what was not handed over

    def _full(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[TopicPartition, pa.Table]]:
        for batch in batches:
            for target, rows in self._router.route(batch):
                limits = self._limits_of(target.topic)
                check_due_times(target.topic, rows, limits)
                ready = record_columns(rows)
                check_orders(target.topic, rows, ready, limits)
                check_rows(target.topic, ready, limits)
                yield from self._gatherer.add(target, ready)
        yield from self._gatherer.rest()

    def _send(self, target: TopicPartition, rows: pa.Table) -> None:
        where, shift = target, 0
        if self._options.is_staged:
            where = TopicPartition(
                self._options.staging_topic, staging_partition(target, self._row_partitions)
            )
            rows, shift = shifted(rows)
        sender = self._producer or producer(self._connections, self._options.producer)
        names = {name: name for name in rows.schema.names}
        for part in self._cut(target.topic, rows):
            sending = sender.send_arrow(where.topic, part, partition=where.partition, **names)
            self._sent.append(_Sent(target, shift, self._connections.run(sending)))

    def _cut(self, topic: str, rows: pa.Table) -> Iterator[pa.Table]:
        """Parts of ``rows`` that make batches which ``topic`` accepts."""
        most = self._limits_of(topic).max_batch_bytes
        if most >= self._options.producer.batch_bytes:
            yield rows
            return
        columns = ArrowColumns.of(rows, **{name: name for name in rows.schema.names})
        start = 0
        while start < len(columns):
            stop = columns.fit(start, most)
            yield rows.slice(start, stop - start)
            start = stop

    def _forget(self) -> None:
        """Have the next task refresh the metadata, which may have made this one fail."""
        topics = {self._options.staging_topic, *(sent.target.topic for sent in self._sent)}
        if not self._connections.thread.is_closed:
            self._connections.thread.call(self._cluster.metadata.forget, topics)

    async def _delivered_batches(self) -> list[StagedBatch]:
        stored = await asyncio.gather(*(_delivered(sent.delivery) for sent in self._sent))
        if not self._options.is_staged:
            return []
        staged = [
            StagedBatch(sent.target, run.partition, run.base_offset, run.records_count, sent.shift)
            for sent, runs in zip(self._sent, stored, strict=True)
            for run in runs
        ]
        if any(each.offset < 0 for each in staged):
            raise QbusError(
                "a broker stored rows but returned no offset: the task must be repeated"
            )
        return staged

    def _describe(self, topic: str, partitions: int) -> TopicDescription:
        known = self._cluster.metadata.topics.get(topic)
        if known is not None and len(known.partitions) >= partitions:
            return known
        return self._connections.ask(describe(self._cluster, topic, partitions))

    def _limits_of(self, topic: str) -> TopicLimits:
        if topic not in self._limits:
            self._limits[topic] = self._connections.ask(topic_limits(self._cluster, topic))
        return self._limits[topic]


def staging_partition(target: TopicPartition, count: int) -> int:
    """The staging topic's partition for rows that go to ``target``: 1 to ``count``.

    All tasks compute the same one, so that a target's batches are read in the order in which they
    are published.
    """
    return 1 + (crc32(target.topic.encode()) + target.partition) % count


async def _delivered(delivery: BulkDelivery) -> list[BatchMetadata]:
    return await delivery
