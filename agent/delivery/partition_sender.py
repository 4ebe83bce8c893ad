"""The sender of one partition: it reads files in turn, and has at most a batch in flight.

What is in flight when the agent dies is sent again by the next one. So a sender reads no further
ahead of the checkpointed positions than one batch, in two halves: while one half is in flight, the
other one is read.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import Any, Protocol

from qbus.clients.producer import BulkDelivery
from qbus.clock import Clock
from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.service.backoff import Backoff
from qbus.service.token_bucket import RateLimit

from ..tailing.file import Chunk, TailedFile
from .pending_batch import MemoryBudget, PendingBatch

log = logging.getLogger(__name__)

READ_BYTES = 256 * 1024
"""How much of one file is read at a time, before the next file has its turn."""
_FEWEST_BYTES = 4096
_FORBIDDEN = frozenset(
    {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
)
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0


class SenderContext(Protocol):
    """What all senders share."""

    budget: MemoryBudget
    rate_limit: RateLimit
    clock: Clock
    batch_bytes: int

    def read_chunk(self, file: TailedFile, most: int) -> Chunk | None:
        """Return the next records of a file; None: it has none now.

        After None or a chunk that ``is_last``, the file is added again when it has more.
        """

    def send_now(self, topic: str, partition: int, batch: PendingBatch) -> BulkDelivery | None:
        """Hand records to the producer; None: that has to wait, or fails."""

    async def send(self, topic: str, partition: int, batch: PendingBatch) -> BulkDelivery:
        """Hand records to the producer. Raises :class:`~qbus.errors.QbusError`."""

    def delivered(self, sender: "PartitionSender", batch: PendingBatch) -> None:
        """Checkpoint acknowledged records, then call :meth:`PartitionSender.release`."""

    async def refused(self, topic: str, error: Exception) -> None:
        """Return when records that were refused may be sent again."""

    async def set_aside(self, topic: str, batch: PendingBatch, index: int, why: Exception) -> None:
        """Keep a record that its topic will never take, and say so. Raises OSError."""

    def soon(self, sender: "PartitionSender") -> None:
        """Call :meth:`PartitionSender.go_on` soon, together with others."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what has to wait; an error of it ends delivery."""


class PartitionSender:
    """Reads files in turn and sends their records to one partition.

    What can be done without waiting is done at once, in :meth:`go_on`. There is a task only while
    something is waited for; nothing else is read or sent meanwhile.
    """

    def __init__(self, topic: str, partition: int, context: SenderContext) -> None:
        self.topic = topic
        self.partition = partition
        self.outstanding = 0
        """Bytes that were read and are not checkpointed as delivered."""
        self.error: Exception | None = None
        self._context = context
        self._half = max(1, context.batch_bytes // 2)
        self._ready: deque[TailedFile] = deque()
        self._in_flight: deque[PendingBatch] = deque()
        self._has_failed = False
        self._backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self._wait_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_woken = False
        self._is_waiting = False

    @property
    def trouble(self) -> Exception | None:
        """Why its records are not delivered, as far as that is known."""
        if self.error is not None:
            return self.error
        for batch in self._in_flight:
            if batch.delivery is not None and (met := batch.delivery._trouble()) is not None:
                return met
        return None

    def add(self, file: TailedFile) -> None:
        """Add a file that has something to read."""
        self._ready.append(file)
        self.wake()

    def wake(self) -> None:
        """Try to read again soon: there may be room in memory."""
        if not self._is_woken:
            self._is_woken = True
            self._context.soon(self)

    def release(self, batch: PendingBatch) -> None:
        """Note that the delivery of a batch is checkpointed."""
        self.outstanding -= batch.size
        if self._ready:
            self.wake()

    def go_on(self) -> None:
        """Read and send as far as there are records and room."""
        self._is_woken = False
        if self._is_waiting:
            return
        if self._has_failed:
            if all(batch.is_completed for batch in self._in_flight):
                self._wait_for(self._recover())
            return
        self._wait_s = 0.0
        while (batch := self._gather()) is not None:
            self._in_flight.append(batch)
            delivery = self._context.send_now(self.topic, self.partition, batch)
            if delivery is None:
                self._wait_for(self._send(batch))
                return
            batch.delivery = delivery
            delivery.add_done_callback(partial(self._completed, batch))
        if self._wait_s and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._wait_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.wake()

    def _wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        self._is_waiting = True
        self._context.spawn(self._waited(work))

    async def _waited(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            self._is_waiting = False
        self.wake()

    def _gather(self) -> PendingBatch | None:
        """Read up to half a batch, as far as there are records and room; None: nothing."""
        context = self._context
        budget, rate_limit, read_chunk = context.budget, context.rate_limit, context.read_chunk
        if self._has_failed or self.outstanding > self._half or not budget.has_room:
            return None
        batch = PendingBatch()
        while self._ready and batch.size < self._half:
            if rate_limit.rate:
                self._wait_s = rate_limit.wait(context.clock.monotonic())
            if self._wait_s or not budget.has_room:
                break
            file = self._ready.popleft()
            most = max(_FEWEST_BYTES, min(READ_BYTES, self._half - batch.size))
            chunk = read_chunk(file, most)
            if chunk is None:
                continue
            if not chunk.is_last:
                self._ready.append(file)
            if chunk.values:
                before = batch.memory
                batch.add(chunk, file.labels)
                budget.used += batch.memory - before
                rate_limit.spend(chunk.end - chunk.start)
            else:  # the end of a long line is not found yet: other files have their turn
                self.wake()
                break
        if not batch.values:
            return None
        self.outstanding += batch.size
        return batch

    async def _send(self, batch: PendingBatch) -> None:
        """Hand a batch to the producer; retry until it takes it."""
        while True:
            try:
                delivery = await self._context.send(self.topic, self.partition, batch)
            except QbusError as error:
                self._note(error)
                await self._context.refused(self.topic, error)
                await asyncio.sleep(self._backoff.failed())
            else:
                batch.delivery = delivery
                delivery.add_done_callback(partial(self._completed, batch))
                return

    def _completed(self, batch: PendingBatch, delivery: BulkDelivery) -> None:
        """Take in the outcome of a batch."""
        batch.is_completed = True
        if delivery.exception(0) is None:
            self._delivered(batch)
            return
        self._has_failed = True
        self._take_in_failures(batch, delivery)
        self.wake()

    def _take_in_failures(self, batch: PendingBatch, delivery: BulkDelivery) -> None:
        """Keep the records of a batch that are not stored, and why they are not."""
        failures = delivery._failures()
        batch.keep(failures)
        errors = list(failures.values())
        batch.refused = {index: error for index, error in enumerate(errors) if _is_too_large(error)}
        batch.error = next((error for error in errors if not _is_too_large(error)), None)
        if batch.error is not None:
            self._note(batch.error)

    def _delivered(self, batch: PendingBatch) -> None:
        self._in_flight.remove(batch)
        if self.error is not None:
            log.info("%s-%d: records are delivered again", self.topic, self.partition)
        self.error = None
        self._backoff.succeeded()
        self._context.delivered(self, batch)
        if self._has_failed:
            self.wake()

    async def _recover(self) -> None:
        """Resend the failed batches, one after the other; every one in flight is completed.

        Only their records that are not stored are sent again. Those that are too large for the
        topic are set aside, so that the others need not wait for them.
        """
        while self._in_flight:
            batch = self._in_flight[0]
            await self._set_aside(batch)
            if batch.values:
                await self._resend(batch)
            else:
                self._delivered(batch)
        self._has_failed = False

    async def _set_aside(self, batch: PendingBatch) -> None:
        """Set aside the refused records of a batch; retry until they are kept."""
        for index, why in batch.refused.items():
            while True:
                try:
                    await self._context.set_aside(self.topic, batch, index, why)
                    break
                except OSError as error:
                    self._note(error)
                    await asyncio.sleep(self._backoff.failed())
        if batch.refused:
            batch.drop_refused()

    async def _resend(self, batch: PendingBatch) -> None:
        assert batch.error is not None
        await self._context.refused(self.topic, batch.error)
        await asyncio.sleep(self._backoff.failed())
        try:
            delivery = await self._context.send(self.topic, self.partition, batch)
        except QbusError as error:
            batch.error = error
            self._note(error)
            return
        try:
            await delivery
        except QbusError:
            self._take_in_failures(batch, delivery)
        else:
            self._delivered(batch)

    def _note(self, error: Exception) -> None:
        if self.error is None:
            where = f"{self.topic}-{self.partition}"
            log.warning("%s; trying again", explained(where, error, self.topic))
        self.error = error


def _is_too_large(error: Exception) -> bool:
    """Whether the topic will never take a record: it is larger than its ``max.message.bytes``."""
    return isinstance(error, ApiError) and error.code in _TOO_LARGE


def explained(where: str, error: Exception, topic: str = "") -> str:
    """Return what is wrong there, and what is to be done if a permission is missing."""
    topic = topic or where
    why = str(error).removeprefix(f"topic {topic}: ")
    if isinstance(error, ApiError) and error.code in _FORBIDDEN:
        why += f" (its user needs: qbus acl add --producer --topic {topic} --principal User:...)"
    return f"{where}: {why}"
