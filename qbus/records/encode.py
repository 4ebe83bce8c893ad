"""Record batches out of records (the format: ``header`` and ``decode``).

:func:`encode_records` takes parallel lists, and is the way for many records. :func:`build_batch`
takes records one by one, and everything that a header may say.
"""

from collections.abc import Iterable, Sequence

from qbus.records import codec
from qbus.records.crc import Buffer
from qbus.records.fields import MAX_INT64, MIN_INT64, HeaderItems
from qbus.records.header import Compression
from qbus.records.pure.encode import encode_lists
from qbus.records.seal import new_header, seal

RecordItem = tuple[Buffer | None, Buffer | None, Iterable[tuple[str, Buffer | None]], int]
"""Key, value, headers, timestamp in milliseconds since the Unix epoch (-1: unknown)."""


def encode_records(  # noqa: PLR0913 - all that a producer may say of a batch
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
    level: int | None = None,
) -> bytearray:
    """One batch of the records whose parts stand at the same index of the sequences.

    A part may be None: a null value or key, no headers, ``base_timestamp`` (milliseconds since the
    Unix epoch). ``level`` is the compression's own, None its default.

    Raises ValueError when there are no values, when the sequences are not of one length, or for a
    timestamp or level out of range; TypeError for parts of the wrong type.
    """
    check_batch(len(values), base_timestamp)
    for what, column in (("keys", keys), ("headers", headers), ("timestamps", timestamps)):
        if column is not None and len(column) != len(values):
            raise ValueError(f"{len(column)} {what} for {len(values)} values")
    batch, latest = codec.twin.encode_lists(values, keys, headers, timestamps, base_timestamp)
    header = new_header(len(values), base_timestamp, latest)._replace(
        attributes=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return seal(batch, header, level)


def check_batch(count: int, base_timestamp: int) -> None:
    """Raise ValueError unless a batch can be of so many records, from that time on."""
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
    """One batch of ``records``, each ``(key, value, headers, timestamp)``.

    ``attributes`` are further bits of the header's field, such as "control". Raises ValueError
    when there are no records.
    """
    items = list(records)
    base_timestamp = items[0][3] if items else 0
    check_batch(len(items), base_timestamp)
    keys, values, headers, timestamps = zip(*items, strict=True)
    batch, latest = encode_lists(values, keys, headers, timestamps, base_timestamp)
    header = new_header(len(items), base_timestamp, latest)._replace(
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
    """One batch of records that have a value and ``timestamp`` but neither key nor headers.

    Raises ValueError when there are no values.
    """
    return encode_records(
        values,
        base_timestamp=timestamp,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
