"""The producer for programs without asyncio."""

import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from qbus.errors import QbusError
from qbus.records import Buffer

from .. import producer as asyncio_producer
from ..errors import BufferFull, ClientClosed
from ..producer.bulk import ArrowTable, Part, add_lists
from ..producer.checks import check_item, checked_columns
from ..producer.delays import delay_headers, with_delays
from ..producer.delivery import BulkDelivery
from ..producer.lists import Headers
from ..producer.options import OnDelivery
from ..producer.transactions import Transactions, consumed
from ..types import Duration, GroupMetadata, Moment, RecordMetadata, TopicDescription
from .client import blocking, same_parameters
from .delivery import BlockingDelivery, OrderingProducer, Orders
from .loop import LoopThread

_Producer = asyncio_producer.Producer

_WAITING_BATCHES = 3
"""Full batches that wait besides those in flight when a sender is ahead of what is sent."""


class Producer:
    """Sends records, in batches, from a thread of its own.

    A context manager; leaving it waits until everything is delivered. A producer that nobody closes
    delivers what it has, also at the interpreter's exit, for up to ``delivery_timeout_ms``, and
    says what it could not deliver. Any number of threads may use it. With ``acks="all"`` each
    record is stored once, in the order of the sends to its partition, even after retries.
    """

    @same_parameters(_Producer.__init__)
    def __init__(self, bootstrap: str | Sequence[str], **options: Any) -> None:
        self._client = OrderingProducer(bootstrap, **options)
        self._options = self._client._options
        self._accumulator = self._client._accumulator
        self._add_quickly: Callable[..., BlockingDelivery | None] = self._accumulator.add_quickly
        self._topics = self._client._cluster.metadata
        self._thread = LoopThread("qbus-producer")
        self._accumulator.orders = Orders(self._client, self._thread)
        self._thread.call(self._client._start, True)
        self._accumulator.on_work = _caller(self._client, self._thread)
        _alive.add(self)
        weakref.finalize(self, _deliver_rest, self._client, self._thread)

    def __repr__(self) -> str:
        return repr(self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(  # noqa: PLR0913, PLR0917 - as many as a record has parts
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
    ) -> BlockingDelivery:
        if deliver_at is not None or delay is not None or ttl is not None:
            headers = (*(headers or ()), *delay_headers(deliver_at, delay, ttl))
            self._need_delays(topic)
        if broker is None:
            delivery = self._add_quickly(
                topic, value, key, headers, partition, timestamp, on_delivery
            )
            if delivery is not None:
                return delivery
        place = (topic, value, key, headers, partition, timestamp)
        return self._add_checked(*place, broker=broker, on_delivery=on_delivery)

    def send_many(  # noqa: PLR0913 - as many as a record has parts
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
        delayed = with_delays(headers, len(values), deliver_at, delay, ttl)
        if delayed is not headers:
            self._need_delays(topic)
        columns = checked_columns(values, keys, delayed, timestamps)
        return self._add(add_lists(self._accumulator, self._ready(topic), columns, partition))

    def send_arrow(
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
        names = {"key": key, "headers": headers, "timestamp": timestamp, "deliver_at": deliver_at}
        rows = ArrowTable(table, value=value, **names)
        if deliver_at is not None:
            self._need_delays(topic)
        description = self._ready(topic)
        return self._add(rows.add(self._accumulator, description, partition, self._options))

    def send_and_wait(  # noqa: PLR0913 - as many as a record has parts
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
        if self._thread.is_current:
            raise QbusError("a client's callback cannot wait for the client: use qbus.aio")
        if deliver_at is not None or delay is not None or ttl is not None:
            headers = (*(headers or ()), *delay_headers(deliver_at, delay, ttl))
            self._need_delays(topic)
        delivery = self._add_quickly(topic, value, key, headers, partition, timestamp)
        if delivery is None:
            place = (topic, value, key, headers, partition, timestamp)
            delivery = self._add_checked(*place, is_hurried=True)
        return delivery._hurried(self._accumulator)

    send_and_wait.__doc__ = _Producer.send_and_wait.__doc__
    send.__doc__ = _Producer.send.__doc__
    send_many.__doc__ = _Producer.send_many.__doc__
    send_arrow.__doc__ = _Producer.send_arrow.__doc__

    def transaction(self) -> "Transaction":
        """Return a context manager for one transaction: ``with producer.transaction(): ...``.

        Leaving it commits what was sent in it, by any thread, and the offsets of
        :meth:`send_offsets`; an exception aborts them. Raises as :meth:`commit_transaction`.
        """
        return Transaction(self._client.transactions, self._thread)

    def send_offsets(self, offsets: Any, group: GroupMetadata | str | None = None) -> None:
        whole, of_group = consumed(offsets, group)
        self._thread.run(self._client.transactions.send_offsets(whole, of_group))

    send_offsets.__doc__ = _Producer.send_offsets.__doc__

    init_transactions = blocking(_Producer.init_transactions)
    begin_transaction = blocking(_Producer.begin_transaction)
    commit_transaction = blocking(_Producer.commit_transaction)
    abort_transaction = blocking(_Producer.abort_transaction)

    cancel = blocking(_Producer.cancel)
    cancel_key = blocking(_Producer.cancel_key)
    reschedule = blocking(_Producer.reschedule)
    flush = blocking(_Producer.flush)
    partitions = blocking(_Producer.partitions)

    def close(self, timeout: float | None = None) -> None:
        if not self._thread.is_closed:
            try:
                self._thread.run(self._client.close(timeout))
            finally:
                self._thread.close()

    close.__doc__ = _Producer.close.__doc__

    def _need_delays(self, topic: str) -> None:
        if not self._client._delaying.is_known(topic):
            self._thread.run(self._client._need_delays(topic))

    def _ready(self, topic: str) -> TopicDescription:
        if self._thread.is_closed:
            self._thread.check_usable()
        if self._client._is_closed:
            raise ClientClosed
        if self._accumulator.is_full:
            self._room()
        known = self._topics.topics.get(topic)
        return known or self._thread.run(self._client._topic(topic))

    def _room(self) -> None:
        """Wait for room; the producer's own thread, which makes room, never waits."""
        options = self._options
        if options.on_full == "block" and not self._thread.is_current:
            with self._accumulator.room:
                self._accumulator.room.wait_for(
                    lambda: not self._accumulator.is_full or self._accumulator.failure is not None,
                    options.delivery_timeout,
                )
        if self._accumulator.is_full:
            raise BufferFull(options.buffer_bytes)

    def _add_checked(
        self,
        topic: str,
        value: Buffer | None,
        key: Buffer | None,
        headers: Headers | None,
        partition: int | None,
        timestamp: int | None,
        **how: Any,
    ) -> BlockingDelivery:
        """Add one record that does not just join an open batch; ``how`` as the accumulator says."""
        check_item(key, value, headers, timestamp)
        added: BlockingDelivery = self._accumulator.add(
            self._ready(topic), value, key, headers, partition=partition, timestamp=timestamp, **how
        )
        return added

    def _add(self, parts: Iterable[Part]) -> BulkDelivery:
        added = []
        for part in parts:
            added.append(part)
            if self._accumulator.is_full and self._options.on_full == "block":
                self._room()
        return BulkDelivery(added)

    def _forget(self) -> None:
        self._accumulator.disown()


class Transaction:
    """A transaction of the blocking producer, while it is entered.

    Leaving it commits; an exception aborts. Raises as :meth:`Producer.commit_transaction`.
    """

    def __init__(self, transactions: Transactions, thread: LoopThread) -> None:
        self._transactions = transactions
        self._thread = thread

    def __enter__(self) -> None:
        self._thread.run(self._transactions.begin())

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None:
            self._thread.run(self._transactions.finish())
        else:
            self._thread.run(self._transactions.leave(error))


_alive: "weakref.WeakSet[Producer]" = weakref.WeakSet()


def _disown_all() -> None:
    """Make every send in a forked process fail: its thread does not exist there."""
    for producer in list(_alive):
        producer._forget()


os.register_at_fork(after_in_child=_disown_all)


def _caller(client: _Producer, thread: LoopThread) -> Callable[[], None]:
    """Return what calls the sender of a producer in another thread."""
    accumulator, options = client._accumulator, client._options
    much = (options.max_in_flight + _WAITING_BATCHES) * options.batch_bytes

    def call() -> None:
        client._sender.call()
        if accumulator.buffered_bytes >= much:
            # Who fills one batch after another would keep the thread that sends them from running.
            thread.give_way()

    return call


def _deliver_rest(client: _Producer, thread: LoopThread) -> None:
    """Deliver what a producer still has that nobody closed.

    Takes no lock: as a finalizer it may run inside of anything.
    """
    if thread.is_closed:
        return
    if not client._accumulator.incomplete:
        thread.close()
        return
    is_exit = not threading.main_thread().is_alive()
    thread.finish(lambda: client._deliver_rest(is_exit=is_exit))
    try:
        warnings.warn(
            "a producer was not closed; it still delivers what it has",
            ResourceWarning,
            stacklevel=2,
        )
    finally:  # the warning may be an error
        if is_exit:
            thread.join()
