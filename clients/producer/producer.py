"""The asyncio producer."""

import asyncio
import atexit
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import index
from typing import Any, ClassVar, Self, Unpack

from qbus.clock import SystemClock
from qbus.errors import ConfigError, QbusError
from qbus.records import Buffer

from ..errors import BufferFull, ClientClosed, RequestTimedOut, Spooled
from ..net.cluster import Cluster
from ..net.retry import retrying
from ..security import SecurityOptions, security_of
from ..types import (
    Duration,
    GroupMetadata,
    Moment,
    RecordMetadata,
    TopicDescription,
    TopicPartition,
)
from .accumulator import Accumulator
from .batch import Batch, Countdown
from .bulk import ArrowTable, Part, add_lists
from .checks import check_item, checked_columns
from .delays import (
    DelayingTopics,
    cancel_headers,
    delay_headers,
    reschedule_headers,
    with_delays,
)
from .delivery import AsyncDelivery, BulkDelivery, Delivery, arrive
from .lists import RECORD_OVERHEAD, Headers, ListBatch
from .options import (
    Acks,
    OnDelivery,
    OnFull,
    Partitioner,
    ProducerOptions,
    Spool,
    parse_acks,
    parse_compression,
    parse_partitioner,
)
from .sender import Sender
from .transaction import TransactionState
from .transactions import Transaction, Transactions, consumed

_log = logging.getLogger(__name__)
_BURST = 1000
"""Sends without a pause for others in the event loop: about a millisecond."""
_open: set[Accumulator] = set()
"""The buffers of producers that send, and are not closed yet."""
os.register_at_fork(after_in_child=_open.clear)


@atexit.register
def _say_undelivered() -> None:
    """Say what is lost with event loops that ended before their producers were closed."""
    for accumulator in list(_open):
        batches = list(accumulator.incomplete)
        if batches:
            count = sum(batch.count for batch in batches)
            # First, for the warning may be an error that ends this.
            _log.error("%d records were not delivered: their producer was never closed", count)
            warnings.warn("a producer was not closed", ResourceWarning, stacklevel=1)


class Producer:
    """Sends records, in batches.

    An async context manager; leaving it waits until everything is delivered. With ``acks="all"``
    each record is stored once, in the order of the sends to its partition, even after retries.
    """

    _delivery: ClassVar[type[Delivery]] = AsyncDelivery

    def __init__(  # noqa: PLR0913 - options are keywords
        self,
        bootstrap: str | Sequence[str],
        *,
        acks: Acks = "all",
        idempotent: bool | None = None,
        compression: str = "none",
        compression_level: int | None = None,
        linger_ms: float = 5,
        batch_bytes: int = 1_000_000,
        buffer_bytes: int = 64 * 1024 * 1024,
        on_full: OnFull = "block",
        delivery_timeout_ms: int = 120_000,
        request_timeout_ms: int = 30_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1000,
        max_in_flight: int = 5,
        partitioner: str | Partitioner = "murmur2",
        on_delivery: OnDelivery | None = None,
        spool_dir: Spool | None = None,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        client_id: str = "qbus-producer",
        **security: Unpack[SecurityOptions],
    ) -> None:
        """Connect at the first send.

        bootstrap: ``host:port,...``, a list of addresses, or ``zk://host:port,.../chroot``.
        acks: who must have a record before it counts as delivered: "all" in-sync replicas, 1 (the
            leader) or 0 (nobody: its offset stays unknown).
        idempotent: let the broker recognize repeated batches; by default with ``acks="all"``,
            which it needs.
        compression: "none", "gzip", "snappy", "lz4" or "zstd".
        compression_level: the codec's own; None: its default.
        linger_ms: the longest time that a batch waits for more records, in milliseconds.
        batch_bytes: records gathered for one batch, before compression.
        buffer_bytes: records that may wait to be delivered.
        on_full: what a send does when the buffer is full: "block" until there is room, or "raise"
            BufferFull.
        delivery_timeout_ms: how long a delivery may take, retries included; then it fails.
        request_timeout_ms: how long one request may take.
        retry_backoff_ms: the first pause before a retry; each pause is twice the one before, with
            a jitter of a fifth.
        retry_backoff_max_ms: the longest pause.
        max_in_flight: requests in flight to one broker; up to 5 if idempotent.
        partitioner: "murmur2", as Kafka's Java client; or a quick function that takes the topic's
            description, key and value and returns a partition, or None for any.
        on_delivery: called with the delivery of each record when it is done, in the thread of the
            producer's event loop, where it must neither block nor wait.
        spool_dir: a directory that keeps what is not delivered in time.
        transactional_id: a name that stays the same when the program starts again; the producer
            then sends in transactions only, and fences earlier producers with the same name
            (KIP-98).
        transaction_timeout_ms: a transaction that is open for longer is aborted by its coordinator.
        client_id: the name of this client in the brokers' logs and quotas.
        security: what protects the connections; see :class:`~qbus.clients.SecurityOptions` for it,
            and for the options that may stand in its place.

        Raises :class:`~qbus.errors.ConfigError`.
        """
        number = parse_acks(acks)
        self._options = ProducerOptions(
            acks=number,
            compression=parse_compression(compression),
            compression_level=compression_level,
            is_idempotent=number == -1 if idempotent is None else idempotent,
            linger=linger_ms / 1000,
            batch_bytes=index(batch_bytes),
            buffer_bytes=index(buffer_bytes),
            on_full=on_full,
            delivery_timeout=delivery_timeout_ms / 1000,
            request_timeout=request_timeout_ms / 1000,
            retry_backoff=retry_backoff_ms / 1000,
            retry_backoff_max=retry_backoff_max_ms / 1000,
            max_in_flight=index(max_in_flight),
            partitioner=parse_partitioner(partitioner),
            on_delivery=on_delivery,
            spool_dir=spool_dir,
            transactional_id=transactional_id,
            transaction_timeout=transaction_timeout_ms / 1000,
        )
        clock = SystemClock()
        self._cluster = Cluster(
            bootstrap,
            client_id,
            self._options.request_timeout,
            security=security_of("Producer", **security),
        )
        self._accumulator = Accumulator(self._options, clock, delivery=self._delivery)
        self._accumulator.orders = self
        self._delaying = DelayingTopics(self._cluster, clock)
        self._burst = 0
        self._add_quickly: Callable[..., AsyncDelivery | None] = self._accumulator.add_quickly
        state = None if transactional_id is None else TransactionState()
        self._sender = Sender(self._cluster, self._accumulator, self._options, clock, state)
        self._accumulator.on_work = self._sender.wake
        self._transactions = None
        if state is not None:
            self._transactions = Transactions(
                self._cluster, self._accumulator, self._sender, self._options, state, self.flush
            )
        self._is_closed = False

    def __repr__(self) -> str:
        waiting = sum(batch.count for batch in list(self._accumulator.incomplete))
        return f"<Producer for {self._cluster.name}: {waiting} records under way>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(  # noqa: PLR0913, PLR0917 - as many as a record has parts
        self,
        topic: str,
        value: Buffer | None,
        key: Buffer | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        # Not keyword-only, though to be used so: each default would cost 2 % of a call.
        broker: int | None = None,
        on_delivery: OnDelivery | None = None,
        deliver_at: Moment | None = None,
        delay: Duration | None = None,
        ttl: Duration | None = None,
    ) -> AsyncDelivery:
        """Send one record; wait only for room in the buffer and for the topic's metadata.

        partition: by default the key's; without a key, one that changes from batch to batch.
        timestamp: milliseconds since the Unix epoch, by default the time its batch began.
        broker: the id of a broker; chooses a partition that it leads, or checks that it leads
            ``partition``.
        on_delivery: called with the delivery when it is done, in the thread of the producer's event
            loop.
        deliver_at: consumers get the record then: a datetime (without a zone: local time), or
            milliseconds since the Unix epoch.
        delay: consumers get it so long after the broker took it in: a timedelta, milliseconds, or
            text such as ``15m``.
        ttl: it is dropped if it could not be delivered so long after that time.

        Do not change buffers before the record is delivered. The delivery tells where the record
        went, or raises the error that prevented it. This method raises
        :class:`~qbus.errors.ApiError` for an unknown topic, partition or broker,
        :class:`~qbus.BufferFull`, :class:`~qbus.errors.ConfigError` if the topic holds nothing back
        and the record is to be delivered later, and TypeError or ValueError for what cannot be a
        record.
        """
        if deliver_at is not None or delay is not None or ttl is not None:
            headers = (*(headers or ()), *delay_headers(deliver_at, delay, ttl))
            await self._need_delays(topic)
        delivery = None
        if broker is None:
            delivery = self._add_quickly(
                topic, value, key, headers, partition, timestamp, on_delivery
            )
        if delivery is None:
            check_item(key, value, headers, timestamp)
            description = await self._ready(topic)
            announced = self._accumulator.announced
            delivery = self._accumulator.add(
                description,
                value,
                key,
                headers,
                partition=partition,
                timestamp=timestamp,
                broker=broker,
                on_delivery=on_delivery,
            )
            assert delivery is not None
            if self._accumulator.announced != announced:
                self._burst = _BURST
        self._burst += 1
        if self._burst >= _BURST:
            self._burst = 0
            await asyncio.sleep(0)  # let the sender work between sends
        return delivery

    async def send_and_wait(  # noqa: PLR0913 - as many as a record has parts
        self,
        topic: str,
        value: Buffer | None,
        key: Buffer | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        *,
        deliver_at: Moment | None = None,
        delay: Duration | None = None,
        ttl: Duration | None = None,
    ) -> RecordMetadata:
        """Send one record as :meth:`send`, and return where it is stored.

        It does not linger: the record goes at once, or behind what is in flight to its partition,
        with all that came meanwhile. Waits for the broker, for each record: send many and wait for
        the last, or use :meth:`send_many`, where there are many.
        """
        if deliver_at is not None or delay is not None or ttl is not None:
            headers = (*(headers or ()), *delay_headers(deliver_at, delay, ttl))
            await self._need_delays(topic)
        delivery = self._add_quickly(topic, value, key, headers, partition, timestamp)
        if delivery is None:
            check_item(key, value, headers, timestamp)
            added: AsyncDelivery = self._accumulator.add(
                await self._ready(topic),
                value,
                key,
                headers,
                partition=partition,
                timestamp=timestamp,
                is_hurried=True,
            )
            delivery = added
        self._accumulator.hurry(delivery._batch)
        return await delivery

    async def send_many(  # noqa: PLR0913 - as many as a record has parts
        self,
        topic: str,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
        partition: int | None = None,
        timestamps: Sequence[int | None] | None = None,
        *,
        deliver_at: Moment | Sequence[Moment | None] | None = None,
        delay: Duration | Sequence[Duration | None] | None = None,
        ttl: Duration | None = None,
    ) -> BulkDelivery:
        """Send many records: much quicker than one by one.

        The sequences have one length; None where no record has such a part. ``deliver_at`` and
        ``delay`` may be one for all. Otherwise as :meth:`send`; with ``on_full="raise"`` all or
        none are accepted.
        """
        delayed = with_delays(headers, len(values), deliver_at, delay, ttl)
        if delayed is not headers:
            await self._need_delays(topic)
        columns = checked_columns(values, keys, delayed, timestamps)
        description = await self._ready(topic)
        return await self._add(add_lists(self._accumulator, description, columns, partition))

    async def send_arrow(
        self,
        topic: str,
        table: Any,
        *,
        value: str = "value",
        key: str | None = None,
        headers: str | None = None,
        timestamp: str | None = None,
        partition: int | None = None,
        deliver_at: str | None = None,
    ) -> BulkDelivery:
        """Send the rows of a pyarrow Table or RecordBatch, a record each.

        value, key, headers, timestamp, deliver_at: names of columns; binary or string, headers
            ``list<struct<key, value>>``, times int64 (ms) or a timestamp.

        Otherwise as :meth:`send_many`. Raises KeyError for a missing column, and TypeError for one
        of another type.
        """
        names = {"key": key, "headers": headers, "timestamp": timestamp, "deliver_at": deliver_at}
        rows = ArrowTable(table, value=value, **names)
        if deliver_at is not None:
            await self._need_delays(topic)
        description = await self._ready(topic)
        return await self._add(rows.add(self._accumulator, description, partition, self._options))

    # Transactions.

    def transaction(self) -> Transaction:
        """Return a context manager for one transaction: ``async with producer.transaction(): ...``.

        Leaving it commits what was sent in it, and the offsets of :meth:`send_offsets`; an
        exception aborts them. Raises as :meth:`commit_transaction`.
        """
        return Transaction(self.transactions)

    async def init_transactions(self) -> None:
        """Fence earlier producers with the same ``transactional_id``; abort what they left open.

        The first transaction does so, too; call this to have it done before reading anything.
        """
        self._start()
        await self.transactions.initialize()

    async def begin_transaction(self) -> None:
        """Open a transaction; :meth:`commit_transaction` or :meth:`abort_transaction` ends it."""
        self._start()
        await self.transactions.begin()

    async def commit_transaction(self) -> None:
        """Deliver everything that was sent in the open transaction, and commit it.

        Raises :class:`~qbus.clients.TransactionAborted` when that is impossible: nothing of it is
        read then, and it can be done again. Raises :class:`~qbus.clients.TransactionFailed`, such
        as :class:`~qbus.clients.ProducerFenced`, when the producer is of no use any more, and
        :class:`~qbus.clients.RequestTimedOut` when its coordinator did not tell within
        ``delivery_timeout_ms`` what became of it: call this again to find out.
        """
        await self.transactions.commit()

    async def abort_transaction(self) -> None:
        """Abort the open transaction: consumers that read committed records see none of it.

        Raises as :meth:`commit_transaction`; one that is not known to be aborted is aborted before
        the next one begins.
        """
        await self.transactions.abort()

    async def send_offsets(self, offsets: Any, group: GroupMetadata | str | None = None) -> None:
        """Commit the offsets of a group when the open transaction is committed (KIP-447).

        offsets: a consumer, whose positions are committed; or offsets by partition, as
            ``Consumer.commit`` takes them.
        group: the group of such offsets: what ``Consumer.group_metadata`` returns, or a name.

        The consumer must not commit by itself: ``auto_commit=False``. Raises
        :class:`~qbus.clients.TransactionAborted` when the group refuses, as after a rebalance.
        """
        whole, of_group = consumed(offsets, group)
        await self.transactions.send_offsets(whole, of_group)

    @property
    def transactions(self) -> Transactions:
        """The transactions of this producer, for what hands them over.

        Raises :class:`~qbus.errors.ConfigError` without a ``transactional_id``.
        """
        if self._transactions is None:
            raise ConfigError("transactions need a producer with a transactional_id")
        return self._transactions

    # What was sent to be delivered later.

    async def cancel(self, topic: str, partition: int, offset: int) -> bool:
        """See that the delayed record at ``offset`` is not delivered; whether it is not.

        False: it was delivered, or no delayed record was given that offset. Raises as :meth:`send`,
        and QbusError where a broker's answer cannot be known, as with ``acks=0``.
        """
        self._need_answers()
        return await self._order(topic, cancel_headers(offset), partition=index(partition))

    async def cancel_key(self, topic: str, key: Buffer) -> bool:
        """See that no delayed record with ``key`` is delivered; whether there was one.

        They are those of the key's partition. Raises as :meth:`cancel`, TypeError without a key.
        """
        if key is None:
            raise TypeError("records without a key have no partition of their own: name an offset")
        self._need_answers()
        return await self._order(topic, cancel_headers(None), key=key)

    async def reschedule(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        deliver_at: Moment | None = None,
        delay: Duration | None = None,
    ) -> bool:
        """Have the delayed record at ``offset`` delivered at another time; whether it will be.

        The times are those of :meth:`send`. Otherwise as :meth:`cancel`.
        """
        self._need_answers()
        headers = reschedule_headers(offset, deliver_at, delay)
        return await self._order(topic, headers, partition=index(partition))

    def _need_answers(self) -> None:
        if self._options.acks == 0:
            raise QbusError("with acks=0 nobody learns what became of an order")
        if self._transactions is not None:
            raise QbusError("orders are carried out at once: give them by another producer")

    async def _order(
        self,
        topic: str,
        headers: Headers,
        *,
        key: Buffer | None = None,
        partition: int | None = None,
    ) -> bool:
        await self._need_delays(topic)
        delivery = await self.send(topic, None, key, headers, partition)
        if (await delivery).offset < 0 and not delivery.is_answered:
            raise QbusError("the broker has carried out the order, and forgotten what it found")
        return delivery.found

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is delivered or has failed.

        Raises :class:`~qbus.clients.RequestTimedOut` when that takes over ``timeout`` seconds.
        """
        batches = self._accumulator.seal()
        self._sender.wake()
        if not batches:
            return
        loop = asyncio.get_running_loop()
        completed = loop.create_future()
        arrived = Countdown(len(batches), partial(arrive, completed))
        for batch in batches:
            batch.when_complete(0, batch.count, arrived)
        try:
            async with asyncio.timeout(timeout):
                await completed
        except TimeoutError:
            raise RequestTimedOut(f"not everything was delivered in {timeout} s") from None

    async def close(self, timeout: float | None = None) -> None:
        """Flush, then close the connections; does nothing the second time.

        An open transaction is aborted. What is not delivered within ``timeout`` seconds (None:
        ``delivery_timeout_ms``) fails, or is kept in ``spool_dir``.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if self._transactions is not None:
            patience = self._options.delivery_timeout if timeout is None else timeout
            await self._transactions.close(patience)
        try:
            await self.flush(timeout)
        except RequestTimedOut:
            pass  # each delivery reports its own error
        finally:
            await self._stop()

    async def partitions(self, topic: str) -> list[TopicPartition]:
        """Return all partitions of ``topic``; the broker may create the topic."""
        description = await self._topic(topic)
        return [TopicPartition(topic, partition.index) for partition in description.partitions]

    # Used by the agent, which waits for nothing and knows its records to be right.

    def _send_values(
        self, topic: str, values: list[Any], size: int, partition: int
    ) -> BulkDelivery | None:
        """Send values of ``size`` bytes in a batch of their own, without waiting.

        None: nothing is sent, for :meth:`send_many` would wait, need several batches, or fail.
        """
        accumulator, description = self._accumulator, self._cluster.metadata.topics.get(topic)
        size += RECORD_OVERHEAD * len(values)
        if (
            description is None
            or partition >= len(description.partitions)
            or size > self._options.batch_bytes
            or accumulator.loop is None
            or accumulator.is_full
            or accumulator.is_refusing
            or self._is_closed
        ):
            return None
        make = partial(ListBatch.of_values, values, accumulator.loop)
        batch = accumulator.push(description, partition, make, size)
        return BulkDelivery([(batch, 0, batch.count)])

    def _send_at_once(self, add: Callable[[], object]) -> None:
        """Call ``add``, and send what it adds now: the loop's next turn would be later."""
        self._sender.turn_after(add)

    def _after_answer(self, call: Callable[[], object]) -> None:
        """Call this after each answer of a broker, when the deliveries of its batches are done."""
        self._sender.after_answer = call

    @property
    def _is_answering(self) -> bool:
        """Whether the deliveries of an answer's batches are being told."""
        return self._sender.is_answering

    # Also used by the blocking producer.

    def _start(self, is_closed_at_exit: bool = False) -> None:
        """Start sending, in this loop."""
        if self._is_closed:
            raise ClientClosed
        if self._accumulator.loop is None:
            self._accumulator.loop = asyncio.get_running_loop()
            if not is_closed_at_exit:
                _open.add(self._accumulator)
            self._sender.start()

    async def _need_delays(self, topic: str) -> None:
        """Raise ConfigError for a topic that holds nothing back."""
        if not self._delaying.is_known(topic):
            self._start()
            await self._delaying.check(topic)

    async def _topic(self, name: str) -> TopicDescription:
        async def attempt() -> TopicDescription:
            await self._cluster.need([name], create=True)
            return self._cluster.metadata.topic(name)

        return await retrying(self._cluster, f"topic {name}", attempt, self._options.topic_timeout)

    async def _ready(self, topic: str) -> TopicDescription:
        self._start()
        if self._accumulator.is_full:
            await self._room()
        return self._cluster.metadata.topics.get(topic) or await self._topic(topic)

    async def _add(self, parts: Iterable[Part]) -> BulkDelivery:
        added = []
        for part in parts:
            added.append(part)
            _, start, stop = part
            self._burst += stop - start
            if self._accumulator.is_full and self._options.on_full == "block":
                await self._room()
            elif self._burst >= _BURST:
                self._burst = 0
                await asyncio.sleep(0)
        return BulkDelivery(added)

    async def _room(self) -> None:
        if self._options.on_full == "raise":
            raise BufferFull(self._options.buffer_bytes)
        try:
            async with asyncio.timeout(self._options.delivery_timeout):
                while self._accumulator.is_full:
                    self._sender.progress.clear()
                    await self._sender.progress.wait()
        except TimeoutError:
            raise BufferFull(self._options.buffer_bytes) from None

    async def _deliver_rest(self, *, is_exit: bool) -> None:
        """Close, and say how many records could not be delivered."""
        batches = list(self._accumulator.incomplete)
        if is_exit:
            _log.warning(
                "the program ends without closing a producer: delivering %d records, for up to"
                " %g s",
                sum(batch.count for batch in batches),
                self._options.delivery_timeout,
            )
        try:
            await self.close()
        finally:
            self._say_lost(batches)

    def _say_lost(self, batches: Iterable[Batch]) -> None:
        lost = [
            batch
            for batch in batches
            if isinstance(batch.outcome, Exception) and not isinstance(batch.outcome, Spooled)
        ]
        if lost:
            _log.error(
                "%d records were not delivered: %s",
                sum(batch.count for batch in lost),
                lost[0].outcome,
            )

    async def _stop(self) -> None:
        _open.discard(self._accumulator)
        self._delaying.stop()
        await self._sender.stop()
        await self._cluster.close()
