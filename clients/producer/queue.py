"""The batches of one partition, in order: open, waiting, in flight, to be sent again.

Pure: it learns what happened and decides what may be sent. An idempotent producer stores each
record once and in order, and recovers by these rules (KIP-98, KIP-360):

- A batch gets an identity and a sequence when it is first sent and keeps them in retries, so that
  the broker recognizes it.
- A broker accepts any first sequence of an unknown identity. Until one batch is delivered, only
  one is in flight: otherwise the broker could take the second for the first. A producer's next
  epoch begins with sequence 0 where the broker remembers the one before: so a transaction need not
  wait in a partition that had a batch of a transaction shortly before.
- A broker recognizes a producer's last five batches. So the first of any five in a row is answered
  before a sixth is sent, even when those between are delivered.
- After a failure nothing is sent until everything in flight is answered; then failed batches are
  sent again, oldest first.
- If the oldest of them was refused as out of sequence, no earlier batch lacks an answer. So neither
  it nor later ones are stored, and all may take the next epoch. Brokers keep sequences by
  partition, so each partition has its own epoch.
- A batch that is too large is not stored, nor are later ones: its halves take its sequences.

In a transaction nothing changes its identity: what is refused as out of sequence is ``displaced``,
and the transaction has to be aborted.
"""

import math
from collections import deque

from qbus.errors import ErrorCode

from ..types import TopicPartition
from .batch import Batch, ProducerIdentity

_MAX_SEQUENCE = 0x7FFFFFFF
_MAX_EPOCH = 0x7FFF
_FIRST_LINGER = 0.0025
"""Seconds that a transaction's first batch for a partition lingers at most: it is the only one in
flight while the coordinator takes the partition in, and more records are gathered meanwhile.
"""
_REMEMBERED_S = 60.0
"""Seconds for which a broker surely remembers a producer that it has stored a batch of."""
OUT_OF_SEQUENCE = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


class PartitionQueue:
    """What is to be sent to one partition. Times are in seconds, of one monotonic clock."""

    def __init__(
        self,
        partition: TopicPartition,
        *,
        batch_bytes: int,
        max_in_flight: int,
        idempotent: bool,
        transactional: bool = False,
    ) -> None:
        self.partition = partition
        self.identity: ProducerIdentity | None = None
        self.rejected_id = -1
        """A producer id that cannot be used any more."""
        self.open_batch: Batch | None = None
        self.error: Exception | None = None
        """Why the last batch is sent again."""
        self._batch_bytes = batch_bytes
        self._max_in_flight = max_in_flight
        self._next_sequence = 0
        self._next_ordinal = 0
        self._is_established = not idempotent
        self._stored_id = -1  # the producer of the last batch that was stored
        self._stored_at = -math.inf  # when that was begun
        self._is_idempotent = idempotent
        self._is_transactional = transactional
        self.is_displaced = False
        """Whether the oldest batch of a transaction was refused as out of sequence."""
        self._waiting: deque[Batch] = deque()
        self._in_flight: list[Batch] = []
        self._failed: dict[Batch, ErrorCode] = {}
        self._retry_at = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send or to wait for."""
        return self.open_batch is None and not self._waiting and not self._in_flight

    def fail_attempt(self, error: Exception) -> None:
        """Note why what is queued here could not be sent."""
        self.error = error
        for batch in (*list(self._waiting), *self._in_flight):
            batch.error = error
        if self.open_batch is not None:
            self.open_batch.error = error

    def has_room(self, size: int) -> bool:
        """Whether the open batch accepts ``size`` more bytes."""
        return self.open_batch is not None and self.open_batch.size + size <= self._batch_bytes

    def open(self, batch: Batch) -> None:
        """Gather records in ``batch`` from now on."""
        self.seal()
        self.open_batch = batch

    def push(self, batch: Batch) -> None:
        """Queue ``batch`` as it is."""
        self.seal()
        self._waiting.append(batch)

    def seal(self) -> None:
        """Close the open batch."""
        if self.open_batch is not None:
            self.open_batch.is_quick = False
            self._waiting.append(self.open_batch)
            self.open_batch = None

    def next_at(self, linger: float) -> float | None:
        """Return when :meth:`take` will have a batch, if nothing happens before; None: not at
        all.
        """
        if self._failed or not self._may_send_more():
            return None
        if self._waiting:
            return self._retry_at
        if self.open_batch is None:
            return None
        if self.open_batch.size >= self._batch_bytes or self._is_awaited():
            linger = 0.0
        elif self._is_transactional and not self._is_established:
            linger = min(linger, _FIRST_LINGER)
        return max(self.open_batch.created_at + linger, self._retry_at)

    def _is_awaited(self) -> bool:
        """Whether somebody waits for what is gathered, and it would gain nothing by waiting too.

        While a batch is in flight more records may come, to share the next one with (RFC 896 has
        the same rule for a connection's small packets).
        """
        return not self._in_flight and self.open_batch is not None and self.open_batch.is_hurried

    def since(self) -> float:
        """Return when the batch was begun that is sent next; infinity: there is none."""
        batch = self._waiting[0] if self._waiting else self.open_batch
        return math.inf if batch is None else batch.created_at

    def take(self, now: float, linger: float) -> Batch | None:
        """Return the next batch to send, now in flight, if one is due."""
        at = self.next_at(linger)
        if at is None or now < at:
            return None
        if not self._waiting:
            self.seal()
        batch = self._waiting.popleft()
        if batch.ordinal < 0:
            batch.ordinal = self._next_ordinal
            self._next_ordinal += 1
        batch.was_sent = True
        self._in_flight.append(batch)
        return batch

    def set_identity(self, identity: ProducerIdentity, now: float = math.inf) -> None:
        """Number what was never sent from 0, as ``identity``."""
        self.identity = identity
        self.is_displaced = False
        self._next_sequence = 0
        self._is_established = (
            identity.is_transactional
            and identity.producer_id == self._stored_id
            and now - self._stored_at < _REMEMBERED_S
        )

    def number(self, batch: Batch) -> None:
        """Give ``batch`` its identity and sequence, unless it has them."""
        if batch.identity is None and self.identity is not None:
            batch.identity = self.identity
            batch.sequence = self._next_sequence
            self._next_sequence = (self._next_sequence + batch.count) & _MAX_SEQUENCE

    def delivered(self, batch: Batch) -> None:
        """Remove a stored batch."""
        if batch.identity == self.identity:
            self._is_established = True
        if batch.identity is not None:
            self._stored_id, self._stored_at = batch.identity.producer_id, batch.created_at
        self.given_up(batch)

    def given_up(self, batch: Batch) -> None:
        """Remove a batch that is not sent again."""
        self._in_flight.remove(batch)
        self._recover()

    def failed(self, batch: Batch, code: ErrorCode, retry_at: float) -> None:
        """Send ``batch`` again, not before ``retry_at``."""
        self._failed[batch] = code
        self._retry_at = retry_at
        self._recover()

    def too_large(self, batch: Batch, left: Batch, right: Batch) -> None:
        """Send the halves of a refused batch in its place."""
        place = self._in_flight.index(batch)
        for behind in self._in_flight[place + 1 :]:
            behind.ordinal += 1
        self._next_ordinal += 1
        left.ordinal, right.ordinal = batch.ordinal, batch.ordinal + 1
        self._in_flight[place : place + 1] = left, right
        self._failed[left] = self._failed[right] = ErrorCode.MESSAGE_TOO_LARGE
        self._recover()

    def expired(self, created_before: float) -> list[Batch]:
        """Return the older batches: waiting ones are taken out, those in flight stay."""
        old = [batch for batch in self._waiting if batch.created_at < created_before]
        if old:
            gone = set(old)
            self._waiting = deque(batch for batch in self._waiting if batch not in gone)
        if self.open_batch is not None and self.open_batch.created_at < created_before:
            self.open_batch.is_quick = False
            old.append(self.open_batch)
            self.open_batch = None
        in_flight = (batch for batch in self._in_flight if not batch.is_given_up)
        return [batch for batch in in_flight if batch.created_at < created_before] + old

    def movable(self) -> list[Batch]:
        """Take out the batches that may go to another partition."""
        self.seal()
        moved = [batch for batch in self._waiting if batch.is_movable and not batch.was_sent]
        gone = set(moved)
        self._waiting = deque(batch for batch in self._waiting if batch not in gone)
        return moved

    def _may_send_more(self) -> bool:
        if not self._in_flight:
            return True
        oldest = self._in_flight[0].ordinal
        ordinal = self._waiting[0].ordinal if self._waiting else -1
        if ordinal < 0:
            ordinal = self._next_ordinal
        return self._is_established and ordinal - oldest < self._max_in_flight

    def _recover(self) -> None:
        """Once nothing is in flight, let failed batches go first."""
        if not self._failed or len(self._failed) < len(self._in_flight):
            return
        code = self._failed[self._in_flight[0]]
        if code in OUT_OF_SEQUENCE and self._is_transactional:
            self.is_displaced = True
        elif code in OUT_OF_SEQUENCE:
            self._next_epoch(code)
            for batch in (*self._in_flight, *self._waiting):
                batch.forget_identity()
        again = [batch for batch in self._in_flight if not batch.is_given_up]
        self._waiting.extendleft(reversed(again))
        self._in_flight.clear()
        self._failed.clear()

    def _next_epoch(self, code: ErrorCode) -> None:
        """Start with the next epoch (KIP-360), or with a new producer id when there is none."""
        assert self.identity is not None
        producer_id, epoch, _ = self.identity
        if code == ErrorCode.INVALID_PRODUCER_EPOCH or epoch >= _MAX_EPOCH:
            self.rejected_id = producer_id
            self.identity = None
        else:
            self.set_identity(ProducerIdentity(producer_id, epoch + 1))
