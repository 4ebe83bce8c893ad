"""The codec in plain Python: what ``qbus.records._codec`` is too, compiled."""

from qbus.records.pure.columns import BytesColumn, ColumnsBuffers
from qbus.records.pure.decode import Decoder
from qbus.records.pure.encode import encode_lists
from qbus.records.pure.lane import Lane, Place
from qbus.records.pure.lists import are_bytes, fit
from qbus.records.pure.murmur2 import murmur2, partition_for_keys
from qbus.records.pure.rows import Rows

__all__ = [
    "BytesColumn",
    "ColumnsBuffers",
    "Decoder",
    "Lane",
    "Place",
    "Rows",
    "are_bytes",
    "encode_lists",
    "fit",
    "murmur2",
    "partition_for_keys",
]
