"""Record batches (magic 2): header, CRC, encode, decode, columns, compression. No IO.

The parts that a broker needs are imported at once, the others, with the codec, at their first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from qbus.errors import CorruptBatch
from qbus.records.decode import iter_batches, iter_records
from qbus.records.header import (
    HEADER_SIZE,
    BatchHeader,
    Buffer,
    Compression,
    TimestampType,
    check_crc,
    crc32c,
    read_header,
    set_base_offset,
    set_log_append_time,
)
from qbus.records.record import ConsumerRecord, Record

if TYPE_CHECKING:
    from qbus.records.arrow import ArrowColumns, encode_arrow
    from qbus.records.codec import CODEC, murmur2, partition_for_keys
    from qbus.records.columns import RecordColumns, to_arrow
    from qbus.records.consume import decode_records, decode_some
    from qbus.records.encode import build_batch, build_values_batch, encode_records

__all__ = [
    "CODEC",
    "HEADER_SIZE",
    "ArrowColumns",
    "BatchHeader",
    "Buffer",
    "Compression",
    "ConsumerRecord",
    "CorruptBatch",
    "Record",
    "RecordColumns",
    "TimestampType",
    "build_batch",
    "build_values_batch",
    "check_crc",
    "crc32c",
    "decode_records",
    "decode_some",
    "encode_arrow",
    "encode_records",
    "iter_batches",
    "iter_records",
    "murmur2",
    "partition_for_keys",
    "read_header",
    "set_base_offset",
    "set_log_append_time",
    "to_arrow",
]

_HOMES = {
    "ArrowColumns": "arrow",
    "CODEC": "codec",
    "RecordColumns": "columns",
    "build_batch": "encode",
    "build_values_batch": "encode",
    "decode_records": "consume",
    "decode_some": "consume",
    "encode_arrow": "arrow",
    "encode_records": "encode",
    "murmur2": "codec",
    "partition_for_keys": "codec",
    "to_arrow": "columns",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value
