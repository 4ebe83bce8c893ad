"""The header of a record batch (magic 2), its checksum, and the changes that a broker makes to it.

The format is Kafka's (KIP-98, "RecordBatch"), big-endian:

====== ==== =======================  =============================================================
offset size field                    notes
====== ==== =======================  =============================================================
0      8    base offset              of the first record; set by the leader
8      4    batch length             bytes after this field
12     4    partition leader epoch   set by the leader
16     1    magic                    2
17     4    CRC                      CRC-32C of everything from byte 21 on
21     2    attributes               bits 0-2 compression, 3 timestamp type, 4 transactional,
                                     5 control, 6 delete horizon; ours, in hidden batches:
                                     7 delayed, 8 of a transaction
23     4    last offset delta
27     8    base timestamp           milliseconds since the Unix epoch; -1 unknown
35     8    max timestamp
43     8    producer id              -1: not idempotent
51     2    producer epoch
53     4    base sequence
57     4    records count
====== ==== =======================  =============================================================

The CRC does not cover the base offset and the leader epoch, so it stays valid when they are set.
It is CRC-32C (Castagnoli; RFC 3720, appendix B.4). The ``crc32c`` package computes it with an
instruction of the processor. Without that package crcmod does, about fifty times slower.
"""

import struct
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Final, NamedTuple

from qbus.errors import CorruptBatch

Buffer = bytes | bytearray | memoryview

HEADER_SIZE: Final = 61
LENGTH_PREFIX: Final = 12  # base offset and batch length, which batch_length does not count
MAGIC: Final = 2
MAX_SEQUENCE: Final = 0x7FFFFFFF
ATTRIBUTES_AT: Final = 22
"""Where the low byte of the attributes stands, which has all bits that producers set."""
CODEC_BITS: Final = 0x07
"""The bits of the attributes that say how records are compressed; none: they are not."""

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_BASE_OFFSET: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")
_EPOCH_AT: Final = 12
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_ATTRIBUTES: Final = struct.Struct(">h")
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35

_LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
"""The bit of the attributes that says that a batch belongs to a transaction."""
_CONTROL: Final = 0x20
_DELAYED: Final = 0x80
_HIDDEN_TRANSACTIONAL: Final = 0x100


@cache
def _crcmod() -> Callable[..., int]:
    import crcmod.predefined  # noqa: PLC0415 - builds tables that few machines need

    sums: Callable[..., int] = crcmod.predefined.mkPredefinedCrcFun("crc-32c")
    return sums


def portable_crc32c(data: Buffer, crc: int = 0) -> int:
    """Compute the same as :func:`crc32c`, on any machine."""
    return _crcmod()(data, crc)


def _fastest() -> Callable[[Buffer, int], int]:
    """Load the extension module of the ``crc32c`` package.

    The package itself also imports its command line, which costs every start of a broker 20 ms.
    """
    package = find_spec("crc32c")
    folders = package and package.submodule_search_locations
    spec = folders and PathFinder.find_spec("_crc32c", list(folders))
    if not spec or spec.loader is None:
        return portable_crc32c
    extension = module_from_spec(spec)
    spec.loader.exec_module(extension)
    hardware: Callable[[Buffer, int], int] = extension.crc32c
    return hardware


_crc32c = _fastest()


def crc32c(data: Buffer, crc: int = 0) -> int:
    """Return the CRC-32C of ``data``, an unsigned 32-bit integer.

    ``crc`` is the sum of the bytes before: ``crc32c(b, crc32c(a)) == crc32c(a + b)``.
    """
    return _crc32c(data, crc)


class Compression(IntEnum):
    """How the records of a batch are compressed: bits 0-2 of the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    """Who sets the timestamps of records: bit 3 of the attributes."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The 61 bytes in front of the records. Times are milliseconds since the Unix epoch."""

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
        """Size of the whole batch in bytes, header included."""
        return self.batch_length + LENGTH_PREFIX

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record (numbers wrap to 0), or -1 without sequences."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE

    @property
    def compression(self) -> Compression:
        """How the records are compressed. Raises :class:`CorruptBatch` for an unknown codec."""
        codec = self.attributes & CODEC_BITS
        if codec > Compression.ZSTD:
            raise CorruptBatch(f"unknown compression codec {codec}")
        return Compression(codec)

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the producer or the broker sets the timestamps."""
        return TimestampType(self.is_log_append_time)

    @property
    def is_log_append_time(self) -> bool:
        """Whether every record has the timestamp ``max_timestamp``, set by the broker."""
        return self.attributes & _LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """Whether the records are markers of the broker instead of a user's records."""
        return self.attributes & _CONTROL != 0

    @property
    def is_hidden(self) -> bool:
        """Whether it is a control batch of Qbus's own, which consumers are not sent.

        Kafka's, the markers that end transactions, are transactional.
        """
        return self.attributes & (_CONTROL | TRANSACTIONAL) == _CONTROL

    @property
    def is_delayed(self) -> bool:
        """Whether it is hidden, and holds a producer's records until they are due."""
        hidden_and_delayed = _CONTROL | _DELAYED
        return self.attributes & (hidden_and_delayed | TRANSACTIONAL) == hidden_and_delayed

    @property
    def is_marker(self) -> bool:
        """Whether it is Kafka's control batch that ends a transaction."""
        ends = _CONTROL | TRANSACTIONAL
        return self.attributes & ends == ends

    @property
    def in_transaction(self) -> bool:
        """Whether its records count only once a marker has committed their transaction."""
        attributes = self.attributes
        if attributes & _CONTROL:
            return attributes & (TRANSACTIONAL | _HIDDEN_TRANSACTIONAL) == _HIDDEN_TRANSACTIONAL
        return attributes & TRANSACTIONAL != 0

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent or transactional producer wrote the batch."""
        return self.producer_id >= 0


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Read the header of the batch at ``pos``; ``buf`` may end after the header.

    Raises :class:`CorruptBatch` if the buffer is shorter than a header, the magic is not 2, or the
    batch length is too small. The CRC is not checked.
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
    """Raise :class:`CorruptBatch` unless the batch at ``pos`` is whole and its CRC is right."""
    end = pos + header.size
    if end > len(buf):
        raise CorruptBatch(f"batch of {header.size} bytes is cut at {len(buf) - pos}")
    found = _crc32c(memoryview(buf)[pos + _CRC_FROM : end], 0)
    if found != header.crc:
        raise CorruptBatch(f"CRC is {found:#010x}, the header says {header.crc:#010x}")


def write_header(buf: bytearray | memoryview, header: BatchHeader) -> None:
    """Write ``header`` to the start of ``buf``, which holds the batch, and compute its CRC."""
    _HEADER.pack_into(buf, 0, *header)
    _set_crc(buf, 0, header.size)


def write_new_header(
    buf: bytearray,
    attributes: int,
    records_count: int,
    timestamp: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> None:
    """Write the header of the new batch that fills ``buf``, and compute its CRC.

    There is a record for each offset, and all have the same ``timestamp``.
    """
    _HEADER.pack_into(
        buf,
        0,
        0,
        len(buf) - LENGTH_PREFIX,
        -1,
        MAGIC,
        0,
        attributes,
        records_count - 1,
        timestamp,
        timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
    )
    _set_crc(buf, 0, len(buf))


def set_base_offset(
    buf: bytearray | memoryview, base_offset: int, leader_epoch: int, pos: int = 0
) -> None:
    """Set the base offset and the leader epoch of the batch at ``pos``; the CRC stays valid."""
    _BASE_OFFSET.pack_into(buf, pos, base_offset)
    _EPOCH.pack_into(buf, pos + _EPOCH_AT, leader_epoch)


def set_log_append_time(buf: bytearray | memoryview, ms: int, pos: int = 0) -> None:
    """Make ``ms`` the timestamp of all records of the batch at ``pos``; compute its CRC anew."""
    header = read_header(buf, pos)
    _ATTRIBUTES.pack_into(buf, pos + _CRC_FROM, header.attributes | _LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(buf, pos + _MAX_TIMESTAMP_AT, ms)
    _set_crc(buf, pos, header.size)


def set_transactional(buf: bytearray | memoryview) -> None:
    """Make the batch in ``buf`` one of a transaction of its producer; compute its CRC anew."""
    header = read_header(buf)
    _ATTRIBUTES.pack_into(buf, _CRC_FROM, header.attributes | TRANSACTIONAL)
    _set_crc(buf, 0, header.size)


def hide_delayed(buf: bytearray | memoryview, ms: int) -> None:
    """Make the batch in ``buf`` one that holds its records until they are due; compute its CRC.

    Its maximum timestamp is ``ms`` from now on: when the broker took it in. Where it is of a
    transaction, another bit says so: a control batch that is transactional would be a marker.
    """
    header = read_header(buf)
    attributes = header.attributes | _CONTROL | _DELAYED
    if header.is_transactional:
        attributes = attributes & ~TRANSACTIONAL | _HIDDEN_TRANSACTIONAL
    _ATTRIBUTES.pack_into(buf, _CRC_FROM, attributes)
    _MAX_TIMESTAMP.pack_into(buf, _MAX_TIMESTAMP_AT, ms)
    _set_crc(buf, 0, header.size)


def _set_crc(buf: bytearray | memoryview, pos: int, size: int) -> None:
    _CRC.pack_into(buf, pos + _CRC_AT, _crc32c(memoryview(buf)[pos + _CRC_FROM : pos + size], 0))
