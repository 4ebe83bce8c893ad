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
machine's clock, not by their records' timestamps, which may be old from the start.
"""

import logging
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from qbus.errors import ApiError, ErrorCode
from qbus.records import BatchHeader, crc32c

from .files import Files, read_file, replace_file
from .names import SNAPSHOT_SUFFIX, numbered, parse_numbered

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
            if header.base_sequence == (producer.last_sequence + 1) & _MAX_SEQUENCE:
                return None
            for batch in producer.batches:
                known = batch.part(header)
                if known is not None:
                    return known
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
        """Account for an appended batch of a producer."""
        if header.is_control and not header.is_hidden:
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
                header.is_hidden,
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
            last = known.batches[-1]
            joined = last.join(batch) if batch.is_joined or last.is_joined else None
            if joined is not None:
                batches = (*known.batches[:-1], joined)
            else:
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
    return ApiError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id}: sequence {header.base_sequence} {why}",
    )


VERSION: Final = 1

_HEADER: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_NONE: Final = -1
_JOINED: Final = -2


# Producer state on disk, so that opening a log need not read it all.
#
# File format (Kafka's ``.snapshot``, version 1), big-endian; the name is the offset before which
# all records are accounted for:
#
# ===================== ============================================================
# version               int16, 1
# CRC                   uint32, CRC-32C of all that follows
# count                 int32
# then for each entry:
# producer id           int64
# epoch                 int16
# last sequence         int32
# last offset           int64
# offset delta          int32, last sequence less first
# timestamp             int64, greatest of the batch
# coordinator epoch     int32, -1: no transaction was ended; -2: the entry is joined (ours)
# transaction start     int64, -1: no transaction is open
# ===================== ============================================================
#
# Kafka keeps one entry for each producer: its last batch. Here a producer's last five follow one
# another, oldest first, so that a restart does not forget what may still be sent again; Kafka's own
# reader takes the last of them, which is the same.
#
# Crash policy: a snapshot that does not check is removed, and the one before it is used; without
# any, producer state is rebuilt from the log.


class BadSnapshot(ValueError):  # noqa: N818 - what was found
    """A snapshot that is torn, damaged or of an unknown version."""


def encode_snapshot(producers: ProducerState) -> bytes:
    """The file's content."""
    entries = [
        _ENTRY.pack(
            producer.producer_id,
            producer.epoch,
            batch.last_sequence,
            batch.last_offset,
            batch.offset_delta,
            batch.timestamp,
            _JOINED if batch.is_joined else _NONE,
            _NONE,
        )
        for producer in producers
        for batch in producer.batches
    ]
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _HEADER.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[tuple[int, int, RetainedBatch]]:
    """Producer id, epoch and batch of each entry. Raises BadSnapshot."""
    if len(data) < _HEADER.size + _COUNT.size:
        raise BadSnapshot(f"{len(data)} bytes are too few")
    version, crc = _HEADER.unpack_from(data)
    if version != VERSION:
        raise BadSnapshot(f"unknown version {version}")
    body = memoryview(data)[_HEADER.size :]
    if crc32c(body) != crc:
        raise BadSnapshot("the CRC does not match")
    (count,) = _COUNT.unpack_from(body)
    if count * _ENTRY.size != len(body) - _COUNT.size:
        raise BadSnapshot(f"{count} entries do not fit {len(body)} bytes")
    return [
        (producer_id, epoch, RetainedBatch(sequence, offset, delta, timestamp, mark == _JOINED))
        for producer_id, epoch, sequence, offset, delta, timestamp, mark, _ in _ENTRY.iter_unpack(
            body[_COUNT.size :]
        )
    ]


_logger = logging.getLogger(__name__)

Decoded = TypeVar("Decoded")


# A log's producer state on disk: finding, writing and removing ``.snapshot`` files.


class SnapshotFiles:
    """The snapshots of one kind in one log's directory."""

    __slots__ = ("_directory", "_files", "_suffix")

    def __init__(self, files: Files, directory: str, suffix: str = SNAPSHOT_SUFFIX) -> None:
        self._files = files
        self._directory = directory
        self._suffix = suffix

    def offsets(self) -> list[int]:
        """The offsets of all snapshots, ascending. Raises OSError."""
        numbers = map(parse_numbered, self._files.list(self._directory))
        return sorted(n[0] for n in numbers if n and n[1] == self._suffix)

    def newest(self) -> int:
        """The offset of the newest snapshot, -1 without any. Raises OSError."""
        return max(self.offsets(), default=-1)

    def load(self, end_offset: int, *, limit: int, start_offset: int, now_ms: int) -> ProducerState:
        """The state that the newest good snapshot up to ``end_offset`` holds.

        Without any the state is empty, and ends with ``start_offset``. Raises OSError.
        """
        found = self.newest_good(end_offset, decode_snapshot)
        if found is None:
            return ProducerState(limit, start_offset)
        state = ProducerState(limit, found[0])
        for producer_id, epoch, batch in found[1]:
            state.add(producer_id, epoch, batch, now_ms)
        return state

    def newest_good(
        self, end_offset: int, decode: Callable[[bytes], Decoded]
    ) -> tuple[int, Decoded] | None:
        """The offset and content of the newest snapshot up to ``end_offset`` that is good.

        Removes those above it, which speak of records that are gone, and damaged ones: those of
        which ``decode`` raises BadSnapshot. Raises OSError.
        """
        offsets = self.offsets()
        self._remove_above(end_offset, offsets)
        for offset in reversed([offset for offset in offsets if offset <= end_offset]):
            try:
                return offset, decode(read_file(self._files, self._path(offset)))
            except BadSnapshot as bad:
                _logger.warning("%s is passed over: %s", self._path(offset), bad)
                self._files.remove(self._path(offset))
        return None

    def _remove_above(self, end_offset: int, offsets: list[int]) -> None:
        """For good, before other records get the same offsets."""
        above = [offset for offset in offsets if offset > end_offset]
        for offset in above:
            self._files.remove(self._path(offset))
        if above:
            self._files.sync_directory(self._directory)

    def write(self, offset: int, content: bytes, *, sync: bool) -> None:
        """Write the snapshot of ``offset``. Raises OSError."""
        replace_file(self._files, self._path(offset), content, sync=sync)

    def remove(self, unwanted: Callable[[int], bool]) -> None:
        """Remove the snapshots whose offsets are ``unwanted``. Raises OSError."""
        for offset in self.offsets():
            if unwanted(offset):
                self._files.remove(self._path(offset))

    def keep_newest(self, count: int) -> None:
        """Remove all but the newest ``count``. Raises OSError."""
        for offset in self.offsets()[:-count]:
            self._files.remove(self._path(offset))

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{numbered(offset, self._suffix)}"
