"""The codec in plain Python: what ``qbus.records._codec`` is too, compiled."""

from .columns import BytesColumn, ColumnsBuffers
from .decode import Decoder
from .encode import encode_lists
from .lane import Lane, Place
from .lists import are_bytes, fit
from .murmur2 import murmur2, partition_for_keys
from .rows import Rows

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
