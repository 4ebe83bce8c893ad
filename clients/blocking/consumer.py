"""The consumer for programs without asyncio."""

import asyncio
import inspect
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import chain
from typing import Any, ParamSpec, Self, TypeVar

from qbus.records.arrow_buffers import import_pyarrow

from .. import consumer as asyncio_consumer
from ..consumer.arrow import ArrowDecoder
from ..consumer.consumer import ARROW_RECORDS, LOOK_AROUND
from ..consumer.fetch_buffer import ENOUGH
from ..consumer.fetch_cursor import TURN, FetchCursor, Turn, is_over, records_of
from ..consumer.options import Patience, limit_of
from ..group.options import Callback
from ..types import ConsumerRecord, OffsetAndMetadata, PartitionRecords, TopicPartition
from .client import blocking, in_thread, same_parameters
from .loop import LoopThread

P = ParamSpec("P")
T = TypeVar("T")

_Consumer = asyncio_consumer.Consumer


class Consumer:
    """Reads records: of chosen partitions, of whole topics, or of a group's share of them.

    A context manager, for one thread at a time. Iterate over it for single records, or poll for
    many at once. Heartbeats go on between polls; a member that does not poll for
    ``max_poll_interval_ms`` leaves its group.
    """

    @same_parameters(_Consumer.__init__)
    def __init__(self, bootstrap: str | Sequence[str], **options: Any) -> None:
        for name in ("on_assigned", "on_revoked", "on_lost"):
            options[name] = _beside_loop(options.get(name))
        self._client = _Consumer(bootstrap, **options)
        self._thread = LoopThread("qbus-consumer")
        self._turn = Turn()

    def __repr__(self) -> str:
        return repr(self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: object, *_: object) -> None:
        self.close(commit=exc_type is None)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Yield records for ever, or until none came for ``consumer_timeout_ms``.

        The position is behind the last one yielded.
        """
        return chain.from_iterable(self._runs())

    def _runs(self) -> Iterator[Iterator[ConsumerRecord]]:
        client = self._client
        patience = Patience(client._options.consumer_timeout)
        while not patience.is_over:
            cursors = self._open_cursors(patience.wait(LOOK_AROUND))
            ends = time.monotonic() + TURN
            for records in records_of(cursors, client._iterated_records, ends):
                patience.restart()
                yield records
                self._thread.give_way()
        client._coordinator.timed_out()

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[PartitionRecords]:
        limit = limit_of(max_records, self._client._options.max_poll_records)
        self._thread.check_usable()
        self._thread.give_way()

        def take(cursors: list[FetchCursor]) -> list[PartitionRecords]:
            self._turn = Turn(cursors)
            return self._turn.take(limit)

        return self._turn.more(limit) or self._poll(timeout, take)

    poll.__doc__ = _Consumer.poll.__doc__

    def poll_arrow(self, timeout: float = 1.0, max_records: int | None = None) -> list[Any]:
        import_pyarrow()
        limit = limit_of(max_records, ARROW_RECORDS)

        def take(cursors: list[FetchCursor]) -> list[Any]:
            decoder = ArrowDecoder(cursors, self._client._columns)
            decoder.decode(limit)
            return decoder.batches()

        return self._poll(timeout, take, sys.maxsize)

    poll_arrow.__doc__ = _Consumer.poll_arrow.__doc__

    def _poll(
        self, timeout: float, take: Callable[[list[FetchCursor]], list[T]], enough: int = ENOUGH
    ) -> list[T]:
        """Decode in the reader's thread, while the loop's thread receives what comes next."""
        deadline = time.monotonic() + timeout
        while True:
            cursors = self._open_cursors(deadline - time.monotonic(), enough)
            taken = take(cursors)
            if taken or is_over(cursors, deadline):
                return taken

    def _open_cursors(self, timeout: float, enough: int = ENOUGH) -> list[FetchCursor]:
        self._turn = Turn()
        return self._thread.run(self._client._open_cursors(timeout, enough))

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
        self, offsets: Mapping[Any, int | OffsetAndMetadata] | None = None
    ) -> Future[None]:
        """Start a :meth:`commit` without waiting; the returned future need not be waited for."""
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
        """The assigned partitions; empty during a rebalance."""
        return self._thread.call(lambda: self._client.assignment)

    @property
    def paused(self) -> list[TopicPartition]:
        """The assigned partitions that are paused."""
        return self._thread.call(lambda: self._client.paused)

    subscribe = in_thread(_Consumer.subscribe)
    assign = in_thread(_Consumer.assign)
    unsubscribe = blocking(_Consumer.unsubscribe)
    position = in_thread(_Consumer.position)
    seek = in_thread(_Consumer.seek)
    seek_to_beginning = in_thread(_Consumer.seek_to_beginning)
    seek_to_end = in_thread(_Consumer.seek_to_end)
    seek_to_committed = in_thread(_Consumer.seek_to_committed)
    seek_past = blocking(_Consumer.seek_past)
    seek_to_time = blocking(_Consumer.seek_to_time)
    pause = in_thread(_Consumer.pause)
    resume = in_thread(_Consumer.resume)
    lag = blocking(_Consumer.lag)
    offsets_for_times = blocking(_Consumer.offsets_for_times)
    beginning_offsets = blocking(_Consumer.beginning_offsets)
    end_offsets = blocking(_Consumer.end_offsets)
    partitions = blocking(_Consumer.partitions)
    commit = blocking(_Consumer.commit)
    committed = blocking(_Consumer.committed)
    group_metadata = in_thread(_Consumer.group_metadata)
    consumed = in_thread(_Consumer.consumed)


def _beside_loop(callback: Callback | None) -> Callback | None:
    """Run a plain callback in another thread: it may wait for the consumer, so not in the
    loop's.
    """
    if callback is None or inspect.iscoroutinefunction(callback):
        return callback

    async def call(partitions: list[TopicPartition]) -> None:
        await asyncio.to_thread(callback, partitions)

    return call
