"""The consumer for programs without asyncio."""

import asyncio
import inspect
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from qbus.records.extras import import_pyarrow

from .. import consumer as asyncio_consumer
from ..consumer.arrow import ArrowTaking
from ..consumer.consumer import ARROW_RECORDS
from ..consumer.fetch_buffer import ENOUGH
from ..consumer.fetch_cursor import FetchCursor, batches_of, is_over, records_of
from ..consumer.options import IsolationLevel, OffsetReset, limit_of
from ..group.assignors import DEFAULT_ASSIGNORS, Assignor
from ..group.options import Callback
from ..idcs import Everywhere
from ..types import ConsumerRecord, OffsetAndMetadata, PartitionRecords, TopicPartition
from .client import Face, blocking
from .loop import LoopThread

P = ParamSpec("P")
T = TypeVar("T")

_Consumer = asyncio_consumer.Consumer


def _calling(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A method that does not wait, called in the client's thread."""

    @wraps(method)
    def call(self: Face, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.call(lambda: method(self._client, *args, **kwargs))

    call.__qualname__ = call.__name__
    return call


class Consumer:
    """Reads records: of chosen partitions, of whole topics, or of a group's share of them.

    A context manager, for one thread at a time. Iterate over it for record after record, or poll
    for many at once. Heartbeats go on between polls; a member that does not poll for
    ``max_poll_interval_ms`` leaves its group.
    """

    def __init__(  # noqa: PLR0913 - options are keywords
        self,
        bootstrap: str,
        *,
        group: str | None = None,
        offset_reset: OffsetReset = "latest",
        isolation_level: IsolationLevel = "read_uncommitted",
        auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        instance_id: str | None = None,
        assignors: Sequence[str | Assignor] = DEFAULT_ASSIGNORS,
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 3_000,
        max_poll_interval_ms: int = 300_000,
        rebalance_timeout_ms: int | None = None,
        rack: str | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 50 * 1024 * 1024,
        fetch_max_wait_ms: int = 500,
        partition_max_bytes: int = 4 * 1024 * 1024,
        prefetch_bytes: int = 64 * 1024 * 1024,
        max_poll_records: int = 20_000,
        check_crcs: bool = True,
        metadata_max_age_ms: int = 300_000,
        request_timeout_ms: int = 30_000,
        client_id: str = "qbus-consumer",
    ) -> None:
        """Connects at the first poll.

        bootstrap: ``host:port,...``
        group: share the topics with the other members of this group, and keep offsets in it.
        offset_reset: where to begin in a partition without a committed or an existing offset:
            "earliest", "latest", or "none" for an error.
        isolation_level: "read_committed" hides the records of transactions that were aborted, and
            those of open ones until they are committed (KIP-98).
        auto_commit: commit from time to time, and at the end, what earlier polls returned. Only
            with a group.
        auto_commit_interval_ms: how long it is at least from one such commit to the next.
        instance_id: make a static member, which may restart without a rebalance (KIP-345).
        assignors: who shares out the partitions, by preference: "range", "roundrobin", "sticky",
            "cooperative-sticky", or objects of your own. The group takes one that all members
            have. A rebalance stops only what moves if all of them are cooperative (KIP-429).
        session_timeout_ms: after how long without heartbeats a member counts as dead.
        heartbeat_interval_ms: how often heartbeats are sent, which tell of rebalances too.
        max_poll_interval_ms: a member that is not polled for longer leaves the group.
        rebalance_timeout_ms: for how long a rebalance waits for members to poll; by default
            ``max_poll_interval_ms``.
        rack: where this consumer runs, so that it may read from replicas nearby.
        on_assigned, on_revoked, on_lost: functions that take a list of partitions, are called
            while a poll waits, in another thread, and may use the consumer: when partitions have
            come, before they go to another, and when they are gone because the group went on
            without us (by default ``on_revoked`` is called then). What they raise, the poll raises.
        fetch_min_bytes, fetch_max_wait_ms: how much a broker gathers for an answer, and how long.
        fetch_max_bytes, partition_max_bytes: about how much one answer may hold, of all partitions
            and of one.
        prefetch_bytes: how much may be fetched before it is asked for, as much from each broker.
            Brokers give whole batches, so that it may be more by one of each.
        max_poll_records: how many records a poll returns at most.
        check_crcs: verify the checksum of every batch.
        metadata_max_age_ms: after how long leaders are asked for even if nothing went wrong.
        request_timeout_ms: how long an answer may take.
        client_id: what brokers call this client in their logs.

        Raises :class:`~qbus.errors.ConfigError`.
        """
        self._client = _Consumer(
            bootstrap,
            group=group,
            offset_reset=offset_reset,
            isolation_level=isolation_level,
            auto_commit=auto_commit,
            auto_commit_interval_ms=auto_commit_interval_ms,
            instance_id=instance_id,
            assignors=assignors,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            max_poll_interval_ms=max_poll_interval_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            rack=rack,
            on_assigned=_in_thread(on_assigned),
            on_revoked=_in_thread(on_revoked),
            on_lost=_in_thread(on_lost),
            fetch_min_bytes=fetch_min_bytes,
            fetch_max_bytes=fetch_max_bytes,
            fetch_max_wait_ms=fetch_max_wait_ms,
            partition_max_bytes=partition_max_bytes,
            prefetch_bytes=prefetch_bytes,
            max_poll_records=max_poll_records,
            check_crcs=check_crcs,
            metadata_max_age_ms=metadata_max_age_ms,
            request_timeout_ms=request_timeout_ms,
            client_id=client_id,
        )
        self._thread = LoopThread("qbus-consumer")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: object, *_: object) -> None:
        self.close(commit=exc_type is None)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Record after record, for ever; the position is behind the one that was given last."""
        client = self._client
        while True:
            loans = self._thread.run(client._borrow())
            for records in records_of(loans, client._iterated_records):
                yield from records

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[PartitionRecords]:
        limit = limit_of(max_records, self._client._options.max_poll_records)
        return self._poll(timeout, lambda loans: batches_of(loans, limit))

    poll.__doc__ = _Consumer.poll.__doc__

    def poll_arrow(self, timeout: float = 1.0, max_records: int | None = None) -> list[Any]:
        import_pyarrow()
        limit = limit_of(max_records, ARROW_RECORDS)

        def take(loans: list[FetchCursor]) -> list[Any]:
            taking = ArrowTaking(loans, self._client._spare)
            taking.decode(limit)
            return taking.give()

        return self._poll(timeout, take, sys.maxsize)

    poll_arrow.__doc__ = _Consumer.poll_arrow.__doc__

    def _poll(
        self, timeout: float, take: Callable[[list[FetchCursor]], list[T]], enough: int = ENOUGH
    ) -> list[T]:
        """What is taken here, in the reader's thread, while the loop's receives what comes next."""
        deadline = time.monotonic() + timeout
        while True:
            loans = self._thread.run(self._client._borrow(deadline - time.monotonic(), enough))
            taken = take(loans)
            if taken or is_over(loans, deadline):
                return taken

    def close(self, *, commit: bool = True) -> None:
        """Commit if that is automatic (unless told not to), leave the group, close.

        Does nothing the second time.
        """
        if not self._thread.is_closed:
            try:
                self._thread.run(self._client.close(commit=commit))
            finally:
                self._thread.close()

    def commit_nowait(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None
    ) -> Future[None]:
        """As :meth:`commit`, without waiting: the future tells, and need not be waited for."""
        told: Future[None] = Future()

        def begin() -> None:
            self._client.commit_nowait(offsets).add_done_callback(tell)

        def tell(done: asyncio.Future[None]) -> None:
            if done.cancelled():
                told.cancel()
            elif (error := done.exception()) is not None:
                told.set_exception(error)
            else:
                told.set_result(None)

        self._thread.call(begin)
        return told

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read now; empty while the group rebalances."""
        return self._thread.call(lambda: self._client.assignment)

    @property
    def paused(self) -> list[TopicPartition]:
        """The assigned partitions that are paused."""
        return self._thread.call(lambda: self._client.paused)

    def subscribe(self, topics: Iterable[str] | re.Pattern[str] | Everywhere) -> None:
        """Read ``topics``: all their partitions, or with a group those that it gives us.

        Names, a compiled pattern that names match as a whole, or :func:`~qbus.everywhere`; of these
        two, what appears later as well. Raises :class:`~qbus.errors.ConfigError` for one string.
        """
        self._thread.call(self._client.subscribe, topics)

    assign = _calling(_Consumer.assign)
    unsubscribe = blocking(_Consumer.unsubscribe)
    position = _calling(_Consumer.position)
    seek = _calling(_Consumer.seek)
    seek_to_time = blocking(_Consumer.seek_to_time)
    pause = _calling(_Consumer.pause)
    resume = _calling(_Consumer.resume)
    lag = blocking(_Consumer.lag)
    offsets_for_times = blocking(_Consumer.offsets_for_times)
    beginning_offsets = blocking(_Consumer.beginning_offsets)
    end_offsets = blocking(_Consumer.end_offsets)
    partitions = blocking(_Consumer.partitions)
    commit = blocking(_Consumer.commit)
    committed = blocking(_Consumer.committed)


def _in_thread(callback: Callback | None) -> Callback | None:
    """A plain function may wait for the consumer, so it must not be called in the loop's thread."""
    if callback is None or inspect.iscoroutinefunction(callback):
        return callback

    async def call(partitions: list[TopicPartition]) -> None:
        await asyncio.to_thread(callback, partitions)

    return call
