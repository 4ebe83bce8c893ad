"""The codec in plain Python: what ``qbus.records._codec`` is too, compiled."""

from .columns import BytesColumn, ColumnsBuffers
from .decode import decode_list
from .encode import encode_lists
from .lane import Lane, Place
from .murmur2 import murmur2, partition_for_keys
from .rows import Rows

__all__ = [
    "BytesColumn",
    "ColumnsBuffers",
    "Lane",
    "Place",
    "Rows",
    "decode_list",
    "encode_lists",
    "murmur2",
    "partition_for_keys",
]
