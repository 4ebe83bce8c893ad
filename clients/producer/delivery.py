"""What a send returns: the delivery of one record, or of many sent together."""

import asyncio
import contextlib
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import Generic, Self, TypeVar

from qbus.errors import QbusError
from qbus.records.codec import BatchSlot

from ..errors import RequestTimedOut
from ..types import BatchMetadata, Duration, Moment, RecordMetadata
from .batch import UNANSWERED, Batch, BatchRefused, Countdown, Stored

log = logging.getLogger(__name__)

T_co = TypeVar("T_co", covariant=True)


class Handle(ABC, Generic[T_co]):
    """The outcome of a send, now or later. Any thread may ask; event loops may await it."""

    __slots__ = ()

    @abstractmethod
    def done(self) -> bool:
        """Whether it is delivered or has failed."""

    @abstractmethod
    def _outcome(self) -> T_co | Exception:
        """Return the outcome, once it is known."""

    @abstractmethod
    def _notify(self, notify: Callable[[], object]) -> None:
        """Call ``notify`` when done: at once, or in the thread that learns the outcome."""

    @abstractmethod
    def _trouble(self) -> Exception | None:
        """Return why the last attempt to deliver it failed, if one did."""

    @abstractmethod
    def _is_in_loop(self) -> bool:
        """Whether the caller runs in the loop that learns the outcome."""

    def result(self, timeout: float | None = None) -> T_co:
        """Return where it went, waiting up to ``timeout`` seconds (None: without limit).

        Raises the error that prevented delivery, or :class:`~qbus.clients.RequestTimedOut` when it
        is still under way after ``timeout``.
        """
        self._wait(timeout)
        outcome = self._outcome()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Return the error that prevented delivery, if any; wait and raise as ``result`` does."""
        self._wait(timeout)
        outcome = self._outcome()
        return outcome if isinstance(outcome, Exception) else None

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call ``callback`` with this when done: at once, or in the producer's loop."""
        self._notify(lambda: callback(self))

    def __await__(self) -> Generator[object, None, T_co]:
        if not self.done():
            loop = asyncio.get_running_loop()
            arrived = loop.create_future()
            self._notify(lambda: _wake(loop, arrived))
            yield from arrived
        return self.result()

    def _wait(self, timeout: float | None, begin: Callable[[], object] | None = None) -> None:
        """Wait until it is done. ``begin`` is called once its outcome cannot be missed."""
        if self.done():
            return
        if self._is_in_loop():
            raise QbusError("not delivered yet: await the delivery")
        # Not an event: that is three locks, and more than twice the time.
        under_way = threading.Lock()
        under_way.acquire()
        self._notify(under_way.release)
        if begin is not None:
            begin()
        if not under_way.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            trouble = self._trouble()
            reason = f": {trouble}" if trouble is not None else ""
            raise RequestTimedOut(f"not delivered in {timeout} s{reason}") from trouble


def _wake(loop: asyncio.AbstractEventLoop, arrived: "asyncio.Future[None]") -> None:
    """Complete a future of ``loop``, in whichever thread: that of the loop needs no wake-up."""
    with contextlib.suppress(RuntimeError):  # this thread has no loop
        if asyncio.get_running_loop() is loop:
            arrive(arrived)
            return
    with contextlib.suppress(RuntimeError):  # the loop may be closed
        loop.call_soon_threadsafe(arrive, arrived)


def arrive(arrived: "asyncio.Future[None]") -> None:
    """Complete a future, unless its waiter has gone."""
    if not arrived.done():
        arrived.set_result(None)


class Delivery(Handle[RecordMetadata], BatchSlot):
    """The delivery of one record: ``await`` it, or ask for its ``result``.

    It holds only a place in a batch; the batch knows the outcome. Two deliveries of one record are
    equal, unless its batch was split and one was passed to the producer's ``on_delivery``.

    Those of the blocking and of the asyncio producer differ in how a record is cancelled.
    """

    __slots__ = ()

    _batch: Batch

    def __repr__(self) -> str:
        topic, partition = self._batch.partition
        if not self.done():
            return f"<Delivery to {topic}-{partition}: under way>"
        outcome = self._outcome()
        told = f"failed: {outcome}" if isinstance(outcome, Exception) else f"at {outcome.offset}"
        return f"<Delivery to {topic}-{partition}: {told}>"

    def done(self) -> bool:
        """Whether the record is delivered or has failed."""
        return self._batch.leaf(self._index)[0].outcome is not None

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Return the error that prevented delivery, if any; wait and raise as ``result`` does."""
        if isinstance(self._batch.outcome, Stored):
            return None
        return super().exception(timeout)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Delivery):
            return NotImplemented
        return self._batch is other._batch and self._index == other._index

    def __hash__(self) -> int:
        return hash((id(self._batch), self._index))

    @property
    def topic(self) -> str:
        """The topic it was sent to."""
        return self._batch.partition.topic

    @property
    def partition(self) -> int:
        """The partition it is stored in; raises as ``result`` does, without waiting."""
        return self.result(0).partition

    @property
    def offset(self) -> int:
        """Its offset (-1 with ``acks=0``); raises as ``result`` does, without waiting."""
        return self.result(0).offset

    @property
    def timestamp(self) -> int:
        """Milliseconds since the Unix epoch; raises as ``result`` does, without waiting."""
        return self.result(0).timestamp

    @property
    def is_answered(self) -> bool:
        """Whether the broker said what became of the orders among its batch's records."""
        outcome = self._batch.leaf(self._index)[0].outcome
        return isinstance(outcome, Stored) and bool(outcome.orders_done or outcome.orders_late)

    @property
    def found(self) -> bool:
        """Whether the record is an order, and the broker found the records that it is about."""
        batch, index = self._batch.leaf(self._index)
        outcome = batch.outcome
        return (
            isinstance(outcome, Stored)
            and outcome.orders_done > 0
            and index not in outcome.orders_late
        )

    def _place(self, stored: RecordMetadata) -> tuple[str, int, int]:
        """What orders name the record by. Raises QbusError if that is not known."""
        if stored.offset < 0:
            if self._batch.leaf(self._index)[0].outcome is UNANSWERED:
                raise QbusError("with acks=0 nobody learns which offset an order must name")
            raise QbusError(
                f"the record is stored in {stored.topic}-{stored.partition}, but its place is not"
                " known: cancel it by its key instead"
            )
        return stored.topic, stored.partition, stored.offset

    def _outcome(self) -> RecordMetadata | Exception:
        batch, index = self._batch.leaf(self._index)
        if isinstance(batch.outcome, BatchRefused):
            return batch.outcome.of(index)
        if isinstance(batch.outcome, Exception):
            return batch.outcome
        offset, timestamp = batch.place(index)
        return RecordMetadata(batch.partition.topic, batch.partition.partition, offset, timestamp)

    def _notify(self, notify: Callable[[], object]) -> None:
        self._batch.when_complete(self._index, self._index + 1, notify)

    def _trouble(self) -> Exception | None:
        return self._batch.leaf(self._index)[0].error

    def _is_in_loop(self) -> bool:
        return self._batch.is_in_loop()


class AsyncDelivery(Delivery):
    """The delivery of one record of the asyncio producer."""

    __slots__ = ()

    async def cancel(self) -> bool:
        """See that a delayed record is not delivered; whether it is not.

        Waits until the record is stored. False: it was delivered, or was not delayed. Raises what
        ``result`` raises, QbusError if the record is stored and its place is not known (cancel it
        by its key then), and as :meth:`~qbus.aio.Producer.cancel`.
        """
        place = self._place(await self)
        cancelled: bool = await self._batch.orders.cancel(*place)
        return cancelled

    async def reschedule(
        self,
        *,
        deliver_at: Moment | None = None,
        delay: Duration | None = None,
    ) -> bool:
        """Have a delayed record delivered at another time; whether it will be.

        Otherwise as :meth:`cancel`; the times as in :meth:`~qbus.aio.Producer.send`.
        """
        place = self._place(await self)
        moved: bool = await self._batch.orders.reschedule(
            *place, deliver_at=deliver_at, delay=delay
        )
        return moved


class BulkDelivery(Handle[list[BatchMetadata]]):
    """The delivery of records sent together: where each run of them went.

    It is done when all records are; it fails with the first error among them.
    """

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[tuple[Batch, int, int]]) -> None:
        """``parts``: batches, and which of their records, from and up to."""
        self._parts = parts

    def __len__(self) -> int:
        """Number of records sent."""
        return sum(stop - start for _, start, stop in self._parts)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        state = "done" if self.done() else "under way"
        return f"<BulkDelivery of {len(self)} records: {state}>"

    def done(self) -> bool:
        """Whether all records are delivered or have failed."""
        return all(leaf.outcome is not None for leaf, _, _ in self._leaves())

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Return the error that prevented delivery, if any; wait and raise as ``result`` does."""
        if all(isinstance(batch.outcome, Stored) for batch, _, _ in self._parts):
            return None
        return super().exception(timeout)

    def _leaves(self) -> list[tuple[Batch, int, int]]:
        return [leaf for batch, start, stop in self._parts for leaf in batch.leaves(start, stop)]

    def _outcome(self) -> list[BatchMetadata] | Exception:
        runs = []
        for batch, start, stop in self._leaves():
            if isinstance(batch.outcome, Exception):
                return batch.outcome
            topic, partition = batch.partition
            offset, timestamp = batch.place(start)
            runs.append(BatchMetadata(topic, partition, offset, stop - start, timestamp))
        return runs

    def _failures(self) -> dict[int, Exception]:
        """Return why records were not stored, by their numbers among those sent, once it is done.

        Records of one call can have several outcomes: a batch that is too large is split.
        """
        failures: dict[int, Exception] = {}
        number = 0
        for batch, start, stop in self._leaves():
            outcome = batch.outcome
            for index in range(start, stop):
                if isinstance(outcome, BatchRefused):
                    failures[number] = outcome.of(index)
                elif isinstance(outcome, Exception):
                    failures[number] = outcome
                number += 1
        return failures

    def _notify(self, notify: Callable[[], object]) -> None:
        arrived = notify if len(self._parts) == 1 else Countdown(len(self._parts), notify)
        for batch, start, stop in self._parts:
            batch.when_complete(start, stop, arrived)

    def _trouble(self) -> Exception | None:
        return next((leaf.error for leaf, _, _ in self._leaves() if leaf.error is not None), None)

    def _is_in_loop(self) -> bool:
        return any(batch.is_in_loop() for batch, _, _ in self._parts)
