"""What idempotent producers wrote last, so that a batch sent again is stored once (KIP-98).

The rules are Kafka's:

- a batch equal in epoch and sequences to one of the producer's last five is a duplicate, answered
  with the offset it already has;
- a batch of an older epoch is refused: INVALID_PRODUCER_EPOCH;
- where delayed records are held back, and a batch of theirs is stored in parts, the parts that
  follow one another count as one, and what lies within is a duplicate; of a batch whose last parts
  were lost, by a torn write or with a leader, what is missing is taken;
- otherwise its first sequence must follow the last one (2^31 - 1 is followed by 0), and a new epoch
  must begin with 0, else OUT_OF_ORDER_SEQUENCE_NUMBER;
- an unknown producer may begin with any sequence: its records may be gone by retention.

Producers are forgotten when they were not heard of for ``producer.id.expiration.ms`` by this
machine's clock, not by their records' timestamps, which may be old from the start. One whose
transaction is open is not.

A transaction is open from its producer's first transactional batch on until a marker ends it. So is
the *last stable offset* found: before it, every record's transaction has ended, by a marker that is
below the high watermark. A transaction's first batch is taken only after the coordinator was asked
(:class:`Verification`, KIP-890): a batch that was long on its way must not open one that nobody
would end.
"""

import heapq
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from qbus.errors import ApiError, ErrorCode
from qbus.records import BatchHeader, Buffer, CorruptBatch
from qbus.records.control import Marker, read_marker

from .transactions import AbortedTransaction, AbortedTransactions

_logger = logging.getLogger(__name__)

RETAINED_BATCHES: Final = 5
_MAX_SEQUENCE: Final = 2**31 - 1
_MAX_JOINED: Final = 2**30


class RetainedBatch(NamedTuple):
    """One of a producer's last batches. ``offset_delta``: its records less one.

    ``is_joined``: it is several, hidden ones among them, whose sequences and offsets have no gaps.
    """

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    is_joined: bool = False

    @property
    def first_sequence(self) -> int:
        """The first record's sequence."""
        return (self.last_sequence - self.offset_delta) & _MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        """The first record's offset."""
        return self.last_offset - self.offset_delta

    def join(self, following: "RetainedBatch") -> "RetainedBatch | None":
        """Both as one, if nothing is missing between them."""
        delta = self.offset_delta + following.offset_delta + 1
        if (
            following.first_sequence != (self.last_sequence + 1) & _MAX_SEQUENCE
            or following.first_offset != self.last_offset + 1
            or delta > _MAX_JOINED
        ):
            return None
        return RetainedBatch(
            following.last_sequence, following.last_offset, delta, following.timestamp, True
        )

    def part(self, header: BatchHeader) -> "RetainedBatch | None":
        """What ``header`` repeats of this, if it does."""
        if not self.is_joined:
            first, last = header.base_sequence, header.last_sequence
            return self if (self.first_sequence, self.last_sequence) == (first, last) else None
        skipped = (header.base_sequence - self.first_sequence) & _MAX_SEQUENCE
        if skipped + header.last_offset_delta > self.offset_delta:
            return None
        return RetainedBatch(
            header.last_sequence,
            self.first_offset + skipped + header.last_offset_delta,
            header.last_offset_delta,
            self.timestamp,
        )


class StoredPart(NamedTuple):
    """What is stored of a producer's batch: its first ``records_count`` records.

    ``runs`` are where they lie, each the offsets of its first and last record. There are several
    where others wrote before the rest of the batch was stored. ``timestamp`` is the greatest of the
    batch that was stored last.
    """

    records_count: int
    runs: tuple[tuple[int, int], ...]
    timestamp: int

    @property
    def first_offset(self) -> int:
        """The first record's offset."""
        return self.runs[0][0]

    @property
    def last_offset(self) -> int:
        """The last record's offset."""
        return self.runs[-1][1]

    @property
    def is_contiguous(self) -> bool:
        """Whether the records' offsets have no gaps."""
        return len(self.runs) == 1


@dataclass(slots=True)
class Producer:
    """One producer's epoch and its last batches, oldest first; heard of by the broker's clock.

    There are no batches where its epoch began with a transaction's end. ``transaction_start`` is
    the offset of the first record of its open transaction, -1 without one, and
    ``coordinator_epoch`` that of the coordinator that had the last one ended, or -1.
    """

    producer_id: int
    epoch: int
    batches: tuple[RetainedBatch, ...]
    heard_ms: int
    coordinator_epoch: int = -1
    transaction_start: int = -1

    @property
    def last_sequence(self) -> int:
        """The sequence of its last record, -1 if it has none in its epoch."""
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_timestamp(self) -> int:
        """The greatest timestamp of its last batch."""
        return self.batches[-1].timestamp if self.batches else -1


class SnapshotEntry(NamedTuple):
    """An entry of a snapshot: a producer's batch, and what is known of its transactions.

    ``is_ended``: a transaction of no matter whom, from ``transaction_start`` to the marker at the
    batch's last offset.
    """

    producer_id: int
    epoch: int
    batch: RetainedBatch
    coordinator_epoch: int = -1
    transaction_start: int = -1
    is_ended: bool = False


class Verification:
    """That a producer's transaction is being asked for, on behalf of its first batch here.

    It is current until the transaction begins, or its marker comes: then what the coordinator said
    may not be true any more. ``lowest_sequence`` is that of the first one of all batches that wait
    for it. ``begins_with_zero``: the producer has a new epoch for each transaction (KIP-890).
    """

    __slots__ = ("begins_with_zero", "epoch", "lowest_sequence", "producer_id", "since_ms")

    def __init__(
        self, producer_id: int, epoch: int, sequence: int, *, begins_with_zero: bool, now_ms: int
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.begins_with_zero = begins_with_zero
        self.since_ms = now_ms

    def is_void_after(self, epoch: int) -> bool:
        """Whether a marker of this epoch ends the transaction that was asked for.

        Not where the marker has the epoch that its producer has from then on: the transaction asked
        for is the next one, which may be begun while markers of the one before are on their way.
        """
        return self.epoch < epoch or (self.epoch == epoch and not self.begins_with_zero)


class ProducerState:
    """The producers of one log, the one heard of least recently first.

    ``has_transactions``: there is, or was since the log was opened, a transaction. As long as there
    is none, all that is below the high watermark is stable.
    """

    __slots__ = (
        "_ended",
        "_first_open",
        "_open",
        "_producers",
        "_verifications",
        "end_offset",
        "has_transactions",
        "limit",
    )

    def __init__(self, limit: int, end_offset: int = 0) -> None:
        self.limit = limit
        self._producers: dict[int, Producer] = {}
        self.end_offset = end_offset  # the log's records before it are accounted for
        self.has_transactions = False
        self._open: dict[int, int] = {}  # first offsets, ascending, by producer id
        self._first_open = -1  # of these
        # First offsets and markers' offsets of ended ones, as a heap: those whose markers are not
        # known to be below the high watermark, and some others.
        self._ended: list[tuple[int, int]] = []
        self._verifications: dict[int, Verification] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[Producer]:
        return iter(list(self._producers.values()))

    def check(self, header: BatchHeader) -> RetainedBatch | None:
        """The batch that ``header`` repeats, or None when it may be appended.

        Raises ApiError with INVALID_PRODUCER_EPOCH or OUT_OF_ORDER_SEQUENCE_NUMBER, and with
        INVALID_TXN_STATE when the batch is of no transaction though its producer is in one.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        if header.producer_epoch == producer.epoch:
            if header.base_sequence == (producer.last_sequence + 1) & _MAX_SEQUENCE:
                if producer.transaction_start >= 0:
                    _check_transactional(header)
                return None
            for batch in producer.batches:
                known = batch.part(header)
                if known is not None:
                    return known
            raise _out_of_order(header, f"follows {producer.last_sequence}")
        if header.producer_epoch < producer.epoch:
            raise _old_epoch(producer, header.producer_epoch)
        if header.base_sequence != 0:
            raise _out_of_order(header, f"begins epoch {header.producer_epoch}")
        if producer.transaction_start >= 0:
            _check_transactional(header)
        return None

    def check_transaction(
        self, producer_id: int, epoch: int, sequence: int, verification: Verification | None
    ) -> None:
        """Check that a transactional batch, which is no duplicate, may be appended.

        Its transaction is open here, or the coordinator was asked for it, and nothing has happened
        since that would make its word void. Raises ApiError INVALID_TXN_STATE, and
        OUT_OF_ORDER_SEQUENCE_NUMBER when the batch overtook another one that waits.
        """
        if self.is_open(producer_id, epoch):
            return
        if (
            verification is None
            or self._verifications.get(producer_id) is not verification
            or verification.epoch != epoch
        ):
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} has no open transaction here"
            )
        if sequence > verification.lowest_sequence:
            raise _disorder(producer_id, sequence, f"overtakes {verification.lowest_sequence}")
        if verification.begins_with_zero and sequence:
            producer = self._producers.get(producer_id)
            if producer is None or not producer.batches:
                raise _disorder(producer_id, sequence, "begins a transaction")

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Raise ApiError INVALID_PRODUCER_EPOCH if the producer has a newer epoch."""
        producer = self._producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise _old_epoch(producer, epoch)

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has an open transaction of this epoch."""
        if producer_id not in self._open:
            return False
        return self._producers[producer_id].epoch == epoch

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, *, begins_with_zero: bool, now_ms: int
    ) -> Verification | None:
        """What the append of a transaction's first batch needs; None if one is open already.

        Batches of one producer that wait at the same time share it.
        """
        if self.is_open(producer_id, epoch):
            return None
        known = self._verifications.get(producer_id)
        if known is not None and known.epoch == epoch:
            known.lowest_sequence = min(known.lowest_sequence, sequence)
            known.since_ms = now_ms
            return known
        made = Verification(
            producer_id, epoch, sequence, begins_with_zero=begins_with_zero, now_ms=now_ms
        )
        if known is None or known.epoch < epoch:
            self._verifications[producer_id] = made
            if len(self._verifications) > self.limit:
                del self._verifications[next(iter(self._verifications))]
        return made

    @property
    def open_transactions(self) -> dict[int, int]:
        """The first offset of each open transaction, ascending, by its producer's id."""
        return dict(self._open)

    def advance(self, high_watermark: int) -> None:
        """The high watermark is here now: transactions whose markers are below it have ended."""
        ended = self._ended
        while ended and ended[0][1] < high_watermark:
            heapq.heappop(ended)

    def first_unstable(self, high_watermark: int) -> int:
        """The offset before which every transaction has ended below the high watermark.

        At most the high watermark, which :meth:`advance` was told. It never goes back while that
        does not, unless records are cut off. Any thread may ask.
        """
        stable = high_watermark
        for first, last in self._ended[:1]:
            if first < stable and last >= high_watermark:
                stable = first
        return self._first_open if 0 <= self._first_open < stable else stable

    def stored_part(self, header: BatchHeader) -> StoredPart | None:
        """How much of a batch is stored, or None when all of it may be appended.

        All of it, or a beginning: its producer wrote nothing behind that. Raises as :meth:`check`.
        """
        producer = self._producers.get(header.producer_id)
        if producer is not None and producer.epoch == header.producer_epoch:
            stored = _stored_part(producer.batches, header)
            if stored is not None:
                return stored
        self.check(header)
        return None

    def update(self, header: BatchHeader, now_ms: int) -> None:
        """Account for an appended batch of a producer that is no marker."""
        self.add(
            header.producer_id,
            header.producer_epoch,
            RetainedBatch(
                header.last_sequence,
                header.last_offset,
                header.last_offset_delta,
                header.max_timestamp,
                header.is_hidden,
            ),
            now_ms,
        )
        if header.in_transaction:
            self.begin(header.producer_id, header.base_offset)

    def add(self, producer_id: int, epoch: int, batch: RetainedBatch, now_ms: int) -> None:
        """Account for ``batch``, the newest of its producer."""
        known = self._producers.pop(producer_id, None)
        if known is None:
            known = Producer(producer_id, epoch, (batch,), now_ms)
        elif known.epoch == epoch and known.batches:
            last = known.batches[-1]
            joined = last.join(batch) if batch.is_joined or last.is_joined else None
            if joined is not None:
                known.batches = (*known.batches[:-1], joined)
            else:
                known.batches = known.batches[1 - RETAINED_BATCHES :] + (batch,)
            known.heard_ms = now_ms
        else:
            known.epoch, known.batches, known.heard_ms = epoch, (batch,), now_ms
        self._producers[producer_id] = known
        if len(self._producers) > self.limit:
            self._forget_one(known)

    def _forget_one(self, newest: Producer) -> None:
        for producer in self._producers.values():
            if producer.transaction_start < 0 and producer is not newest:
                del self._producers[producer.producer_id]
                return

    def begin(self, producer_id: int, offset: int) -> None:
        """A transactional batch at ``offset`` was appended, and accounted for."""
        producer = self._producers[producer_id]
        self._verifications.pop(producer_id, None)
        if producer.transaction_start < 0:
            producer.transaction_start = offset
            self._open[producer_id] = offset
            if self._first_open < 0:
                self._first_open = offset
            self.has_transactions = True

    def check_end(
        self, producer_id: int, epoch: int, coordinator_epoch: int, *, is_new_epoch: bool
    ) -> bool:
        """Check that a marker may end a producer's transaction; whether there already is one.

        ``is_new_epoch``: the producer gets a new epoch with each end of a transaction, which is
        that of the marker (KIP-890); else the marker's may be that of the records. Raises ApiError:
        INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return False
        if coordinator_epoch < producer.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a coordinator of epoch {producer.coordinator_epoch} has ended transactions of"
                f" producer {producer_id}, this one has {coordinator_epoch}",
            )
        is_ended = is_new_epoch and producer.transaction_start < 0 and not producer.batches
        if epoch == producer.epoch and is_ended and producer.coordinator_epoch >= 0:
            return True
        if epoch < producer.epoch or (is_new_epoch and epoch == producer.epoch):
            raise _old_epoch(producer, epoch)
        return False

    def end(
        self, producer_id: int, epoch: int, offset: int, marker: Marker, now_ms: int
    ) -> AbortedTransaction | None:
        """Account for a marker at ``offset``; the transaction that it aborted, if it did."""
        self.has_transactions = True
        asked = self._verifications.get(producer_id)
        if asked is not None and asked.is_void_after(epoch):
            del self._verifications[producer_id]
        producer = self._hear(producer_id, epoch, now_ms)
        producer.coordinator_epoch = max(producer.coordinator_epoch, marker.coordinator_epoch)
        first, producer.transaction_start = producer.transaction_start, -1
        if self._open.pop(producer_id, None) is None:
            return None
        heapq.heappush(self._ended, (first, offset))
        self._first_open = next(iter(self._open.values()), -1)
        if marker.is_commit:
            return None
        stable = offset + 1 if self._first_open < 0 else self._first_open
        return AbortedTransaction(producer_id, first, offset, stable)

    def hear(self, header: BatchHeader, now_ms: int) -> None:
        """Account for a marker's batch that compaction has emptied: it ends nothing any more."""
        self._hear(header.producer_id, header.producer_epoch, now_ms)

    def _hear(self, producer_id: int, epoch: int, now_ms: int) -> Producer:
        """A producer is heard of by a batch that has no sequence."""
        producer = self._producers.pop(producer_id, None)
        if producer is None:
            producer = Producer(producer_id, epoch, (), now_ms)
        elif producer.epoch < epoch:
            producer.epoch, producer.batches = epoch, ()
        producer.heard_ms = now_ms
        self._producers[producer_id] = producer
        if len(self._producers) > self.limit:
            self._forget_one(producer)
        return producer

    def restore(self, entry: SnapshotEntry, now_ms: int) -> None:
        """Account for an entry of a snapshot, in its order."""
        if entry.is_ended:
            self.has_transactions = True
            heapq.heappush(self._ended, (entry.transaction_start, entry.batch.last_offset))
            return
        if entry.batch.last_offset < 0:
            producer = self._hear(entry.producer_id, entry.epoch, now_ms)
        else:
            self.add(entry.producer_id, entry.epoch, entry.batch, now_ms)
            producer = self._producers[entry.producer_id]
        producer.coordinator_epoch = entry.coordinator_epoch
        if entry.transaction_start >= 0:
            self.has_transactions = True
            producer.transaction_start = entry.transaction_start
            self._open[entry.producer_id] = entry.transaction_start

    def restored(self) -> None:
        """All entries of a snapshot are accounted for."""
        self._open = dict(sorted(self._open.items(), key=_first_offset))
        self._first_open = next(iter(self._open.values()), -1)

    def entries(self) -> Iterator[SnapshotEntry]:
        """What a snapshot is to hold."""
        for first, last in list(self._ended):
            ended = RetainedBatch(-1, last, 0, -1)
            yield SnapshotEntry(-1, -1, ended, transaction_start=first, is_ended=True)
        for producer in self._producers.values():
            newest = len(producer.batches) - 1
            for at, batch in enumerate(producer.batches):
                yield SnapshotEntry(
                    producer.producer_id,
                    producer.epoch,
                    batch,
                    producer.coordinator_epoch if at == newest else -1,
                    producer.transaction_start if at == newest else -1,
                )
            if newest < 0:
                yield SnapshotEntry(
                    producer.producer_id,
                    producer.epoch,
                    RetainedBatch(-1, -1, 0, -1),
                    producer.coordinator_epoch,
                    producer.transaction_start,
                )

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget the producers not heard of for ``expiration_ms``, but those in a transaction."""
        for verification in list(self._verifications.values()):
            if now_ms - verification.since_ms >= expiration_ms:
                del self._verifications[verification.producer_id]
        for producer in self:
            if now_ms - producer.heard_ms < expiration_ms:
                return
            if producer.transaction_start < 0:
                del self._producers[producer.producer_id]


def _first_offset(item: tuple[int, int]) -> int:
    return item[1]


def _check_transactional(header: BatchHeader) -> None:
    if not header.in_transaction:
        raise ApiError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {header.producer_id} is in a transaction, the batch is in none",
        )


def _stored_part(batches: tuple[RetainedBatch, ...], header: BatchHeader) -> StoredPart | None:
    count = timestamp = 0
    runs: list[tuple[int, int]] = []
    for batch in batches:
        following = (header.base_sequence + count) & _MAX_SEQUENCE
        skipped = (following - batch.first_sequence) & _MAX_SEQUENCE
        if skipped <= batch.offset_delta and count < header.records_count:
            begin = batch.first_offset + skipped
            taken = min(batch.offset_delta + 1 - skipped, header.records_count - count)
            first = begin
            if runs and runs[-1][1] + 1 == begin:
                first = runs.pop()[0]
            runs.append((first, begin + taken - 1))
            count += taken
            timestamp = batch.timestamp
    return StoredPart(count, tuple(runs), timestamp) if count else None


def _out_of_order(header: BatchHeader, why: str) -> ApiError:
    return _disorder(header.producer_id, header.base_sequence, why)


def _disorder(producer_id: int, sequence: int, why: str) -> ApiError:
    return ApiError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"producer {producer_id}: sequence {sequence} {why}"
    )


def _old_epoch(producer: Producer, epoch: int) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer.producer_id} has epoch {producer.epoch}, this is of {epoch}",
    )


def take_marker(
    producers: ProducerState,
    aborted: AbortedTransactions,
    header: BatchHeader,
    batch: Buffer,
    now_ms: int,
) -> Marker | None:
    """Account for the ``batch`` of a transaction's marker; the marker, if there is one in it."""
    marker: Marker | None = None
    try:
        marker = read_marker(batch)
    except CorruptBatch as bad:  # its CRC is right: so it is on every replica
        where = header.base_offset
        _logger.error("the marker at offset %d is ignored: %s", where, bad)  # noqa: TRY400
    if marker is None:
        producers.hear(header, now_ms)
        return None
    ended = producers.end(
        header.producer_id, header.producer_epoch, header.base_offset, marker, now_ms
    )
    if ended is not None:
        aborted.add(ended)
    return marker
