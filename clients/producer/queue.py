"""The batches of one partition, in their order: open, waiting, in flight, to be sent again.

Pure: it is told what happened and says what may be sent. How an idempotent producer recovers
(KIP-98, KIP-360), which keeps each record stored once and in order:

- A batch gets an identity and a sequence when it is first sent, and keeps them when it is sent
  again, so the broker recognizes what it already has.
- A broker that has never met an identity takes any first sequence: until one batch is delivered,
  only one is in flight, or the second could be taken for the first.
- A broker recognizes a producer's last five batches, so of any five in a row the first is answered
  for before a sixth is sent, even when those between are delivered already.
- After a failure nothing is sent until all that is in flight is answered; then what failed goes
  again, oldest first.
- If then the oldest of them was refused as out of sequence, nothing before it is missing an answer:
  neither it nor what follows is stored, so they may take a fresh identity.
"""

from collections import deque

from qbus.errors import ErrorCode

from ..types import TopicPartition
from .batch import Batch, ProducerIdentity

_MAX_SEQUENCE = 0x7FFFFFFF
OUT_OF_SEQUENCE = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


class PartitionQueue:
    """What is to be sent to one partition. Times are in seconds, of one monotonic clock."""

    def __init__(self, partition: TopicPartition, *, batch_bytes: int, max_in_flight: int) -> None:
        self.partition = partition
        self.identity: ProducerIdentity | None = None
        self._batch_bytes = batch_bytes
        self._max_in_flight = max_in_flight
        self._next_sequence = 0
        self._next_ordinal = 0
        self._is_established = False
        self._open: Batch | None = None
        self._waiting: deque[Batch] = deque()
        self._in_flight: list[Batch] = []
        self._failed: dict[Batch, ErrorCode] = {}
        self._retry_at = 0.0

    def room_in_open(self, size: int) -> Batch | None:
        """The batch that takes ``size`` more bytes, unless a new one has to be opened."""
        batch = self._open
        if batch is not None and batch.size + size > self._batch_bytes:
            self._waiting.append(batch)
            self._open = batch = None
        return batch

    def open(self, batch: Batch) -> None:
        """Gather records in ``batch`` from now on."""
        if self._open is not None:
            self._waiting.append(self._open)
        self._open = batch

    def flush(self) -> list[Batch]:
        """Let no batch stay open for more records; all that are not answered for yet."""
        if self._open is not None:
            self._waiting.append(self._open)
            self._open = None
        return [*self._in_flight, *self._waiting]

    def next_at(self, linger: float) -> float | None:
        """When :meth:`take` will have a batch, if nothing happens until then; None: not at all."""
        if self._failed or not self._has_room():
            return None
        if self._waiting:
            return self._retry_at
        if self._open is None:
            return None
        is_full = self._open.size >= self._batch_bytes
        return max(self._open.created_at + (0.0 if is_full else linger), self._retry_at)

    def take(self, now: float, linger: float) -> Batch | None:
        """The next batch to send, now in flight, if it is time for one."""
        at = self.next_at(linger)
        if at is None or now < at:
            return None
        if self._waiting:
            batch = self._waiting.popleft()
        else:
            assert self._open is not None
            batch, self._open = self._open, None
        if batch.ordinal < 0:
            batch.ordinal = self._next_ordinal
            self._next_ordinal += 1
        self._in_flight.append(batch)
        return batch

    def needs_identity(self, batch: Batch) -> bool:
        """Whether a fresh identity has to be found before ``batch`` can be sent."""
        return batch.identity is None and self.identity is None

    def set_identity(self, identity: ProducerIdentity) -> None:
        """Number what was never sent from 0, as ``identity``."""
        self.identity = identity
        self._next_sequence = 0
        self._is_established = False

    def number(self, batch: Batch) -> None:
        """Give ``batch`` its identity and sequence, unless it has them."""
        if batch.identity is None and self.identity is not None:
            batch.identity = self.identity
            batch.sequence = self._next_sequence
            self._next_sequence = (self._next_sequence + batch.count) & _MAX_SEQUENCE

    def delivered(self, batch: Batch) -> None:
        """``batch`` is stored."""
        if batch.identity == self.identity:
            self._is_established = True
        self.given_up(batch)

    def given_up(self, batch: Batch) -> None:
        """``batch`` is not sent again."""
        self._in_flight.remove(batch)
        self._recover()

    def failed(self, batch: Batch, code: ErrorCode, retry_at: float) -> None:
        """``batch`` has to be sent again, not before ``retry_at``."""
        self._failed[batch] = code
        self._retry_at = retry_at
        self._recover()

    def expired(self, created_before: float) -> list[Batch]:
        """Take out the batches that are older and wait, to give them up."""
        old = [batch for batch in self._waiting if batch.created_at < created_before]
        if old:
            self._waiting = deque(batch for batch in self._waiting if batch not in old)
        if self._open is not None and self._open.created_at < created_before:
            old.append(self._open)
            self._open = None
        return old

    def _has_room(self) -> bool:
        """Whether one more may be in flight."""
        if not self._in_flight:
            return True
        oldest = self._in_flight[0].ordinal
        ordinal = self._waiting[0].ordinal if self._waiting else -1
        if ordinal < 0:
            ordinal = self._next_ordinal
        return self._is_established and ordinal - oldest < self._max_in_flight

    def _recover(self) -> None:
        """Once nothing is on its way, let what failed go first."""
        if not self._failed or len(self._failed) < len(self._in_flight):
            return
        oldest = self._in_flight[0]
        if self._failed[oldest] in OUT_OF_SEQUENCE:
            self.identity = None
            for batch in self._in_flight:
                batch.forget_identity()
        self._waiting.extendleft(reversed(self._in_flight))
        self._in_flight.clear()
        self._failed.clear()
