"""The header of a record batch, magic 2, and the changes a broker makes to it in place.

The format is Kafka's (KIP-98, "RecordBatch"), big-endian:

====== ==== =======================  =============================================================
offset size field                    notes
====== ==== =======================  =============================================================
0      8    base offset              of the first record; set by the leader
8      4    batch length             bytes that follow this field
12     4    partition leader epoch   set by the leader
16     1    magic                    2
17     4    CRC                      CRC-32C of everything from byte 21 on
21     2    attributes               bits 0-2 compression, 3 timestamp type, 4 transactional,
                                     5 control, 6 delete horizon
23     4    last offset delta
27     8    base timestamp           milliseconds since the Unix epoch; -1 unknown
35     8    max timestamp
43     8    producer id              -1: not idempotent
51     2    producer epoch
53     4    base sequence
57     4    records count
====== ==== =======================  =============================================================

Base offset and leader epoch lie before the CRC's range, so setting them costs no new sum.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from qbus.records.crc import Buffer, crc32c
from qbus.records.errors import CorruptBatch

HEADER_SIZE = 61
LENGTH_PREFIX = 12  # base offset and batch length: what batch_length does not count
MAGIC = 2
MAX_SEQUENCE = 0x7FFFFFFF

_HEADER = struct.Struct(">qiibIhiqqqhii")
_BASE_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_EPOCH_AT = 12
_CRC = struct.Struct(">I")
_CRC_AT = 17
_CRC_FROM = 21
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_AT = 35

_COMPRESSION_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20


class Compression(IntEnum):
    """How the records of a batch are compressed: bits 0-2 of the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    """Who set a record's timestamp: bit 3 of the attributes."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The 61 bytes before a batch's records. Times are milliseconds since the Unix epoch."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, its header included."""
        return self.batch_length + LENGTH_PREFIX

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record (they wrap to 0), or -1 without sequences."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE

    @property
    def compression(self) -> Compression:
        """How the records are compressed; raises :class:`CorruptBatch` for an unknown codec."""
        codec = self.attributes & _COMPRESSION_MASK
        if codec > Compression.ZSTD:
            raise CorruptBatch(f"unknown compression codec {codec}")
        return Compression(codec)

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the producer or the broker set the records' timestamps."""
        return TimestampType(self.is_log_append_time)

    @property
    def is_log_append_time(self) -> bool:
        """Whether every record's timestamp is ``max_timestamp``, set by the broker."""
        return self.attributes & _LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return self.attributes & _TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """Whether the records are markers of the broker's, not a user's."""
        return self.attributes & _CONTROL != 0

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent or transactional producer wrote the batch."""
        return self.producer_id >= 0


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header of the batch at ``pos``; only the header's bytes need be in ``buf``.

    Raises :class:`CorruptBatch` when the buffer is shorter than a header, the magic is not 2, or
    the batch length is too small to be one. The CRC is not checked.
    """
    if pos < 0 or len(buf) - pos < HEADER_SIZE:
        raise CorruptBatch(f"{max(len(buf) - pos, 0)} bytes are too few for a batch header")
    header = BatchHeader._make(_HEADER.unpack_from(buf, pos))
    if header.magic != MAGIC:
        raise CorruptBatch(f"magic {header.magic} is not {MAGIC}")
    if header.batch_length < HEADER_SIZE - LENGTH_PREFIX:
        raise CorruptBatch(f"impossible batch length {header.batch_length}")
    return header


def check_crc(buf: Buffer, header: BatchHeader, pos: int = 0) -> None:
    """Raise :class:`CorruptBatch` unless the batch at ``pos`` is whole and its sum is right."""
    end = pos + header.size
    if end > len(buf):
        raise CorruptBatch(f"batch of {header.size} bytes is cut at {len(buf) - pos}")
    found = crc32c(memoryview(buf)[pos + _CRC_FROM : end])
    if found != header.crc:
        raise CorruptBatch(f"CRC is {found:#010x}, the header says {header.crc:#010x}")


def write_header(buf: bytearray | memoryview, header: BatchHeader) -> None:
    """Write ``header`` to the start of ``buf``, which holds the batch, with its true CRC."""
    _HEADER.pack_into(buf, 0, *header)
    _set_crc(buf, 0, header.size)


def set_base_offset(
    buf: bytearray | memoryview, base_offset: int, leader_epoch: int, pos: int = 0
) -> None:
    """Give the batch at ``pos`` its place in the log, in place; the CRC stays valid."""
    _BASE_OFFSET.pack_into(buf, pos, base_offset)
    _EPOCH.pack_into(buf, pos + _EPOCH_AT, leader_epoch)


def set_log_append_time(buf: bytearray | memoryview, ms: int, pos: int = 0) -> None:
    """Make ``ms`` the timestamp of all records of the batch at ``pos``, in place; sums anew."""
    header = read_header(buf, pos)
    _ATTRIBUTES.pack_into(buf, pos + _CRC_FROM, header.attributes | _LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(buf, pos + _MAX_TIMESTAMP_AT, ms)
    _set_crc(buf, pos, header.size)


def _set_crc(buf: bytearray | memoryview, pos: int, size: int) -> None:
    _CRC.pack_into(buf, pos + _CRC_AT, crc32c(memoryview(buf)[pos + _CRC_FROM : pos + size]))
