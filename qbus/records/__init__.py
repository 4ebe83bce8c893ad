"""Record batches, magic 2: header, CRC, build, iterate, compression. No IO."""

from .crc import crc32c
from .errors import CorruptBatch
from .header import (
    HEADER_SIZE,
    BatchHeader,
    Compression,
    TimestampType,
    check_crc,
    read_header,
    set_base_offset,
    set_log_append_time,
)

__all__ = [
    "HEADER_SIZE",
    "BatchHeader",
    "Compression",
    "CorruptBatch",
    "TimestampType",
    "check_crc",
    "crc32c",
    "read_header",
    "set_base_offset",
    "set_log_append_time",
]
