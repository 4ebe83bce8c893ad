"""What idempotent producers wrote last, so that a batch sent again is stored once (KIP-98).

The rules are Kafka's:

- a batch equal in epoch and sequences to one of the producer's last five is a duplicate, answered
  with the offset it already has;
- a batch of an older epoch is refused: INVALID_PRODUCER_EPOCH;
- otherwise its first sequence must follow the last one (2^31 - 1 is followed by 0), and a new epoch
  must begin with 0, else OUT_OF_ORDER_SEQUENCE_NUMBER;
- an unknown producer may begin with any sequence: its records may be gone by retention.

Producers are forgotten when they were not heard of for ``producer.id.expiration.ms`` by this
machine's clock, not by their records' timestamps, which may be old from the start.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from qbus.errors import ApiError, ErrorCode
from qbus.records import BatchHeader

RETAINED_BATCHES = 5
_MAX_SEQUENCE = 2**31 - 1


class RetainedBatch(NamedTuple):
    """One of a producer's last batches. ``offset_delta``: its records less one."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The first record's sequence."""
        return (self.last_sequence - self.offset_delta) & _MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        """The first record's offset."""
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class Producer:
    """One producer's epoch and its last batches, oldest first; heard of by the broker's clock."""

    producer_id: int
    epoch: int
    batches: tuple[RetainedBatch, ...]
    heard_ms: int

    @property
    def last_sequence(self) -> int:
        """The sequence of its last record."""
        return self.batches[-1].last_sequence

    @property
    def last_timestamp(self) -> int:
        """The greatest timestamp of its last batch."""
        return self.batches[-1].timestamp


class ProducerState:
    """The producers of one log, the one heard of least recently first."""

    __slots__ = ("_producers", "end_offset", "limit")

    def __init__(self, limit: int, end_offset: int = 0) -> None:
        self.limit = limit
        self._producers: dict[int, Producer] = {}
        self.end_offset = end_offset  # the log's records before it are accounted for

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[Producer]:
        return iter(list(self._producers.values()))

    def check(self, header: BatchHeader) -> RetainedBatch | None:
        """The batch that ``header`` repeats, or None when it may be appended.

        Raises ApiError with INVALID_PRODUCER_EPOCH or OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        if header.producer_epoch == producer.epoch:
            first, last = header.base_sequence, header.last_sequence
            if first == (producer.last_sequence + 1) & _MAX_SEQUENCE:
                return None
            for batch in producer.batches:
                if batch.last_sequence == last and batch.first_sequence == first:
                    return batch
            raise _out_of_order(header, f"follows {producer.last_sequence}")
        if header.producer_epoch < producer.epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {producer.epoch},"
                f" the batch is of {header.producer_epoch}",
            )
        if header.base_sequence != 0:
            raise _out_of_order(header, f"begins epoch {header.producer_epoch}")
        return None

    def update(self, header: BatchHeader, now_ms: int) -> None:
        """Account for an appended batch of a producer."""
        if header.is_control:
            self._marked(header.producer_id, header.producer_epoch, now_ms)
            return
        self.add(
            header.producer_id,
            header.producer_epoch,
            RetainedBatch(
                header.last_sequence,
                header.last_offset,
                header.last_offset_delta,
                header.max_timestamp,
            ),
            now_ms,
        )

    def _marked(self, producer_id: int, epoch: int, now_ms: int) -> None:
        """A transaction's end is heard of; with a newer epoch, what was before does not count."""
        known = self._producers.pop(producer_id, None)
        if known is not None and known.epoch >= epoch:
            known.heard_ms = now_ms
            self._producers[producer_id] = known

    def add(self, producer_id: int, epoch: int, batch: RetainedBatch, now_ms: int) -> None:
        """Account for ``batch``, the newest of its producer."""
        known = self._producers.pop(producer_id, None)
        batches: tuple[RetainedBatch, ...] = (batch,)
        if known is not None and known.epoch == epoch:
            batches = known.batches[1 - RETAINED_BATCHES :] + batches
        self._producers[producer_id] = Producer(producer_id, epoch, batches, now_ms)
        if len(self._producers) > self.limit:
            del self._producers[next(iter(self._producers))]

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget the producers not heard of for ``expiration_ms``."""
        for producer in self:
            if now_ms - producer.heard_ms < expiration_ms:
                return
            del self._producers[producer.producer_id]


def _out_of_order(header: BatchHeader, why: str) -> ApiError:
    return ApiError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id}: sequence {header.base_sequence} {why}",
    )
