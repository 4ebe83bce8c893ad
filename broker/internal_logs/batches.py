"""Between records of an internal log and the batches that hold them."""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from qbus.records import BatchHeader, Buffer, CorruptBatch, iter_batches, iter_records
from qbus.records.header import LENGTH_PREFIX, MAGIC, TRANSACTIONAL, write_header

from ..log import Log
from .machine import LogRecord, Producer

NO_PRODUCER: Final = (-1, -1)
NO_SEQUENCE: Final = -1

_MARKER_KEY: Final = Struct(">hh")
_ABORT: Final = 0
_COMMIT: Final = 1
_READ_BYTES: Final = 1 << 20


class StoredRecord(NamedTuple):
    """A record of the log; ``producer`` is that of its transaction, if it is in one."""

    offset: int
    timestamp: int
    key: bytes
    value: bytes | None
    producer: Producer | None


class Marker(NamedTuple):
    """The end of a producer's transaction."""

    producer_id: int
    epoch: int
    committed: bool


class Chunk(NamedTuple):
    """What lies in a part of the log, in order, and the offset that follows it."""

    entries: list[StoredRecord | Marker]
    next_offset: int


def encode_batch(
    records: Sequence[LogRecord], now_ms: int, producer: Producer | None = None
) -> bytearray:
    """One batch of records, which belong to a transaction of ``producer`` if there is one.

    Like a coordinator of Kafka's, it writes each batch of a transaction with the sequence 0.
    """
    from qbus.records import codec  # noqa: PLC0415 - which a broker without groups need not load

    keys, values = zip(*records, strict=True)
    batch, latest = codec.twin.encode_lists(values, keys, None, None, now_ms)
    attributes, sequence = 0, NO_SEQUENCE
    if producer is not None:
        attributes, sequence = TRANSACTIONAL, 0
    producer_id, epoch = producer or NO_PRODUCER
    count = len(records)
    write_header(
        batch,
        BatchHeader(
            0,
            len(batch) - LENGTH_PREFIX,
            -1,
            MAGIC,
            0,
            attributes,
            count - 1,
            now_ms,
            latest,
            producer_id,
            epoch,
            sequence,
            count,
        ),
    )
    return batch


def read_chunk(log: Log, offset: int, limit: int) -> Chunk:
    """What lies from ``offset`` on, as far as one read goes, below ``limit``. For a thread.

    Raises ApiError, OSError.
    """
    found = log.read(offset, _READ_BYTES, limit, wait=True)
    if found is None:
        return Chunk([], limit)
    with found:
        found.warm()
        data, following = found.read(), found.next_offset
    return Chunk(list(_entries(data, offset)), following)


def _entries(data: Buffer, offset: int) -> Iterator[StoredRecord | Marker]:
    for header, batch in iter_batches(data):
        if header.is_control:
            if header.is_transactional:
                yield _marker(header, batch)
            continue
        producer = None
        if header.is_transactional:
            producer = header.producer_id, header.producer_epoch
        for record in iter_records(batch):
            if record.offset >= offset and record.key is not None:
                yield StoredRecord(
                    record.offset, record.timestamp, record.key, record.value, producer
                )


def _marker(header: BatchHeader, batch: memoryview) -> Marker:
    """Read Kafka's control record: a key of version and type, 2 bytes each (KIP-98)."""
    for record in iter_records(batch):
        if record.key is not None and len(record.key) >= _MARKER_KEY.size:
            _, kind = _MARKER_KEY.unpack_from(record.key)
            if kind in {_ABORT, _COMMIT}:
                return Marker(header.producer_id, header.producer_epoch, kind == _COMMIT)
    raise CorruptBatch(f"the control batch at {header.base_offset} ends no transaction")
