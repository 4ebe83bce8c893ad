"""The codec in plain Python: what ``qbus.records._codec`` is too, compiled."""

from .columns import BytesColumn, ColumnsBuffers
from .decode import decode_list
from .encode import encode_lists
from .lane import Lane, Place
from .lists import are_bytes, fit
from .murmur2 import murmur2, partition_for_keys
from .rows import Rows

__all__ = [
    "BytesColumn",
    "ColumnsBuffers",
    "Lane",
    "Place",
    "Rows",
    "are_bytes",
    "decode_list",
    "encode_lists",
    "fit",
    "murmur2",
    "partition_for_keys",
]
