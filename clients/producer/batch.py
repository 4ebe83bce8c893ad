"""Batches: records of one partition that are sent, and complete, together."""

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, ParamSpec

from qbus.errors import ApiError, ErrorCode
from qbus.records import Compression
from qbus.records.codec import BatchLists
from qbus.records.header import TRANSACTIONAL

from ..types import TopicPartition

P = ParamSpec("P")

log = logging.getLogger(__name__)


class ProducerIdentity(NamedTuple):
    """The id and epoch of an idempotent producer, and whether its batches are transactional."""

    producer_id: int
    epoch: int
    is_transactional: bool = False

    @property
    def attributes(self) -> int:
        """The bits that a batch's header has for it."""
        return TRANSACTIONAL if self.is_transactional else 0


NO_IDENTITY = ProducerIdentity(-1, -1)


class Stored(NamedTuple):
    """Where a batch was stored. -1: unknown; as the time: the records keep their own.

    orders_done: how many of its records are orders that found a delayed record; orders_late: the
    numbers of the orders in the batch that found none.
    """

    base_offset: int
    log_append_time: int
    orders_late: Collection[int] = ()
    orders_done: int = 0


UNANSWERED = Stored(-1, -1)
"""The outcome with ``acks=0``, where no broker says whether and where a batch is stored."""


class BatchRefused(ApiError):  # noqa: N818 - what happened
    """A batch that the broker refused for some of its records (KIP-467).

    ``reasons``: why, by their numbers in the batch; the broker names a few of them.
    """

    def __init__(self, code: ErrorCode, count: int, reasons: Mapping[int, str]) -> None:
        number, reason = next(iter(reasons.items()))
        super().__init__(code, f"record {number} of {count} in its batch: {reason}")
        self._reasons = reasons

    def of(self, index: int) -> ApiError:
        """Why one of its records was not stored."""
        reason = self._reasons.get(index)
        return ApiError(self.code, reason or f"it came with a record that was refused: {self}")


class Countdown:
    """Calls ``notify`` after ``count`` calls; at once if that is 0."""

    def __init__(self, count: int, notify: Callable[[], object]) -> None:
        self._left = count
        self._notify = notify
        self._lock = threading.Lock()
        if not count:
            notify()

    def __call__(self) -> None:
        with self._lock:
            self._left -= 1
            is_last = not self._left
        if is_last:
            self._notify()


class Batch(ABC, BatchLists):
    """Records for one partition, and their outcome.

    Any thread may ask or wait; one at a time may add. Only the loop's thread completes or splits a
    batch.

    was_sent: it may be stored, even without an answer.
    is_given_up: its delivery is not tried any more, though it may not be complete yet.
    is_hurried: somebody waits for it, so it lingers only while others of its partition are in
        flight.
    orders: what the deliveries of its records give orders about them to.
    """

    __slots__ = (
        "_lock",
        "_loop",
        "_waiting",
        "attempts",
        "created_at",
        "encoded",
        "error",
        "halves",
        "identity",
        "is_given_up",
        "is_hurried",
        "on_complete",
        "orders",
        "ordinal",
        "outcome",
        "partition",
        "sequence",
        "timestamp",
        "was_sent",
    )

    def __init__(
        self,
        partition: TopicPartition,
        timestamp: int,
        created_at: float,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__()
        self.partition = partition
        self.timestamp = timestamp
        self.created_at = created_at
        self.attempts = 0
        self.is_given_up = False
        self.is_hurried = False
        self.was_sent = False
        self.encoded: bytearray | None = None
        self.identity: ProducerIdentity | None = None
        self.sequence = -1
        self.ordinal = -1
        self.error: Exception | None = None
        self.outcome: Stored | Exception | None = None
        self.halves: tuple[Batch, Batch] | None = None
        self.on_complete: Callable[[Batch], None] | None = None
        self.orders: Any = None
        self._loop = loop
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, int, Callable[[], object]]] = []

    # The records.

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of records."""

    @abstractmethod
    def encode(self, compression: Compression, level: int | None) -> bytearray:
        """Encode the batch with its identity and sequence."""

    @abstractmethod
    def timestamp_of(self, index: int) -> int:
        """Return a record's own timestamp, or the batch's."""

    @abstractmethod
    def forget_records(self) -> None:
        """Release keys and values."""

    @abstractmethod
    def cut(self) -> "tuple[Batch, Batch]":
        """Return two batches of half the records each."""

    # The outcome.

    def is_in_loop(self) -> bool:
        """Whether the caller runs in the loop that completes this batch."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def leaf(self, index: int) -> "tuple[Batch, int]":
        """Return the batch, after all splits, that holds a record, and the record's index there."""
        batch: Batch = self
        while (halves := batch.halves) is not None:
            left, right = halves
            batch, index = (left, index) if index < left.count else (right, index - left.count)
        return batch, index

    def leaves(self, start: int, stop: int) -> "Iterator[tuple[Batch, int, int]]":
        """Yield the batches, after all splits, that hold the records, with first and last index
        there.
        """
        if self.halves is None:
            yield self, start, stop
            return
        left, right = self.halves
        if start < left.count:
            yield from left.leaves(start, min(stop, left.count))
        if stop > left.count:
            yield from right.leaves(max(start - left.count, 0), stop - left.count)

    def place(self, index: int) -> tuple[int, int]:
        """Return offset and timestamp of a delivered record."""
        assert isinstance(self.outcome, Stored)
        base_offset, log_append_time = self.outcome[:2]
        return (
            base_offset + index if base_offset >= 0 else -1,
            log_append_time if log_append_time >= 0 else self.timestamp_of(index),
        )

    def when_complete(self, start: int, stop: int, notify: Callable[[], object]) -> None:
        """Call ``notify`` once the records have their outcome: at once, or later."""
        with self._lock:
            halves = self.halves
            if halves is None and self.outcome is None:
                self._waiting.append((start, stop, notify))
                return
        if halves is None:
            call(notify)
        else:
            leaves = list(self.leaves(start, stop))
            arrived = Countdown(len(leaves), notify)
            for leaf, first, last in leaves:
                leaf.when_complete(first, last, arrived)

    def complete(self, outcome: Stored | Exception) -> None:
        """Set the outcome and notify everyone who waits; only the first outcome counts."""
        with self._lock:
            if self.outcome is not None:
                return
            self.forget_records()
            self.outcome = outcome
            waiting, self._waiting = self._waiting, []
        self.encoded = None
        if self.on_complete is not None:
            self.on_complete(self)
        for _, _, notify in waiting:
            call(notify)

    def split(self) -> "tuple[Batch, Batch]":
        """Replace the batch by two of half its records, which take over its sequence numbers."""
        left, right = self.cut()
        for half in (left, right):
            half.attempts = self.attempts
            half.identity = self.identity
            half.error = self.error
            half.on_complete = self.on_complete
            half.orders = self.orders
        left.size = self.size * left.count // self.count
        right.size = self.size - left.size
        if self.identity is not None:
            left.sequence = self.sequence
            right.sequence = (self.sequence + left.count) & 0x7FFFFFFF
        with self._lock:
            self.halves = left, right
            waiting, self._waiting = self._waiting, []
            self.encoded = None
        for start, stop, notify in waiting:
            self.when_complete(start, stop, notify)
        self.forget_records()
        return left, right

    def forget_identity(self) -> None:
        """Drop the identity: the batch is certainly not stored and may take another one."""
        self.identity = None
        self.sequence = -1
        self.encoded = None


def call(notify: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Call a user's function; log its errors.

    A cancellation that it raises is one of them: nobody cancels who calls it. So is what ends a
    program, such as an exit, but in the main thread: in another one it only ends what others wait
    for.
    """
    try:
        notify(*args, **kwargs)
    except (Exception, asyncio.CancelledError):
        log.exception("a delivery callback failed")
    except BaseException as error:
        if threading.current_thread() is threading.main_thread():
            raise
        kind = type(error).__name__
        what = "called sys.exit" if isinstance(error, SystemExit) else f"raised {kind}"
        log.exception("a delivery callback %s, which ends no program in this thread", what)
