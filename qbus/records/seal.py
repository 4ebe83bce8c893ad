"""From encoded records to a whole batch: compression, header, checksum."""

from qbus.records.compression import compress
from qbus.records.header import HEADER_SIZE, LENGTH_PREFIX, MAGIC, BatchHeader, write_header

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


def new_header(count: int, base_timestamp: int, max_timestamp: int) -> BatchHeader:
    """The header of a batch of ``count`` records that nobody has given offsets yet."""
    return _NEW._replace(
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        records_count=count,
    )


def seal(batch: bytearray, header: BatchHeader, level: int | None = None) -> bytearray:
    """The whole batch of the records that lie in ``batch``, behind room for the header.

    They are compressed as ``header.attributes`` say; its length and CRC are filled in.
    """
    codec = header.compression
    if codec:
        with memoryview(batch) as view, view[HEADER_SIZE:] as records:
            payload = compress(codec, records, level)
        batch = bytearray(HEADER_SIZE)
        batch += payload
    write_header(batch, header._replace(batch_length=len(batch) - LENGTH_PREFIX))
    return batch
