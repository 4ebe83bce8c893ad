"""Record batches from records (the format: ``header`` and ``parse``).

:func:`encode_records` takes parallel lists, and is fast for many records. :func:`build_batch` takes
records one by one, and every field of the header.
"""

from collections.abc import Iterable, Sequence

from qbus.records import codec
from qbus.records.compression import compress
from qbus.records.fields import MAX_INT64, MIN_INT64, HeaderItems
from qbus.records.header import (
    HEADER_SIZE,
    LENGTH_PREFIX,
    MAGIC,
    BatchHeader,
    Buffer,
    Compression,
    write_header,
    write_new_header,
)

RecordItem = tuple[Buffer | None, Buffer | None, Iterable[tuple[str, Buffer | None]], int]
"""Key, value, headers, timestamp in milliseconds since the Unix epoch (-1: unknown)."""

_NEW = BatchHeader(
    base_offset=0,
    batch_length=0,
    partition_leader_epoch=-1,
    magic=MAGIC,
    crc=0,
    attributes=0,
    last_offset_delta=-1,
    base_timestamp=-1,
    max_timestamp=-1,
    producer_id=-1,
    producer_epoch=-1,
    base_sequence=-1,
    records_count=0,
)


def encode_records(  # noqa: PLR0913 - all fields that a producer sets
    values: Sequence[Buffer | None],
    keys: Sequence[Buffer | None] | None = None,
    headers: Sequence[HeaderItems | None] | None = None,
    timestamps: Sequence[int | None] | None = None,
    *,
    base_timestamp: int,
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
    level: int | None = None,
) -> bytearray:
    """Return one batch; the parts of a record are at the same index of each sequence.

    A part may be None: a null value or key, no headers, ``base_timestamp`` (milliseconds since the
    Unix epoch). ``attributes`` are additional bits of the header's field. ``level`` is the level of
    the compression; None is its default.

    Raises ValueError for no values, sequences of different lengths, or a timestamp or level out of
    range; TypeError for parts of the wrong type.
    """
    check_batch(len(values), base_timestamp)
    for what, column in (("keys", keys), ("headers", headers), ("timestamps", timestamps)):
        if column is not None and len(column) != len(values):
            raise ValueError(f"{len(column)} {what} for {len(values)} values")
    batch, latest = codec.twin.encode_lists(values, keys, headers, timestamps, base_timestamp)
    if latest == base_timestamp:  # as nearly always
        batch = _compressed(batch, compression, level)
        place = (base_timestamp, producer_id, producer_epoch, base_sequence)
        write_new_header(batch, attributes | compression, len(values), *place)
        return batch
    header = new_header(
        len(values),
        base_timestamp,
        latest,
        attributes=attributes | compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return seal(batch, header, level)


def check_batch(count: int, base_timestamp: int) -> None:
    """Raise ValueError unless a batch can have this many records and this base timestamp."""
    if count < 1:
        raise ValueError("a batch has at least one record")
    if not MIN_INT64 <= base_timestamp <= MAX_INT64:
        raise ValueError(f"base timestamp {base_timestamp} does not fit 64 bits")


def build_batch(
    records: Iterable[RecordItem],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: Compression = Compression.NONE,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """Return one batch of ``records``, each ``(key, value, headers, timestamp)``.

    ``attributes`` are additional bits of the header's field, such as "control". Raises ValueError
    for no records.
    """
    items = list(records)
    base_timestamp = items[0][3] if items else 0
    check_batch(len(items), base_timestamp)
    keys, values, headers, timestamps = zip(*items, strict=True)
    batch, latest = codec.twin.encode_lists(values, keys, headers, timestamps, base_timestamp)
    header = new_header(
        len(items),
        base_timestamp,
        latest,
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
        attributes=attributes | compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return seal(batch, header)


def build_values_batch(
    values: Sequence[Buffer],
    timestamp: int,
    *,
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """Return one batch of records that have a value and ``timestamp``, but no key and no headers.

    Raises ValueError for no values.
    """
    return encode_records(
        values,
        base_timestamp=timestamp,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def new_header(count: int, base_timestamp: int, max_timestamp: int, **fields: int) -> BatchHeader:
    """Return the header of a new batch of ``count`` records, with ``fields`` of the producer."""
    return _NEW._replace(
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        records_count=count,
        **fields,
    )


def seal(batch: bytearray, header: BatchHeader, level: int | None = None) -> bytearray:
    """Return the whole batch of the encoded records in ``batch``, which has room for a header.

    Compresses the records as ``header.attributes`` say, and fills in batch length and CRC.
    """
    batch = _compressed(batch, header.compression, level)
    write_header(batch, header._replace(batch_length=len(batch) - LENGTH_PREFIX))
    return batch


def _compressed(batch: bytearray, compression: Compression, level: int | None) -> bytearray:
    """Return a batch whose records are compressed, if they are to be."""
    if not compression:
        return batch
    with memoryview(batch) as view, view[HEADER_SIZE:] as records:
        payload = compress(compression, records, level)
    batch = bytearray(HEADER_SIZE)
    batch += payload
    return batch
