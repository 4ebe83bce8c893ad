"""Record batches, magic 2: header, CRC, build, iterate, compression. No IO."""

from .crc import crc32c
from .decode import Record, iter_batches, iter_records
from .encode import build_batch, build_values_batch
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
    "Record",
    "TimestampType",
    "build_batch",
    "build_values_batch",
    "check_crc",
    "crc32c",
    "iter_batches",
    "iter_records",
    "read_header",
    "set_base_offset",
    "set_log_append_time",
]
