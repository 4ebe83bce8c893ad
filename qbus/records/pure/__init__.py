"""The codec in plain Python; ``qbus.records._codec`` is the same, compiled."""

from qbus.records.parse import Decoder
from qbus.records.pure.append_lock import AppendLock, BatchLists, BatchSlot, OpenBatches
from qbus.records.pure.columns import BytesColumn, ColumnsBuffers
from qbus.records.pure.lists import are_bytes, encode_lists, fit, murmur2, partition_for_keys
from qbus.records.pure.rows import Rows
from qbus.records.pure.runs import AsyncRuns, HeldItems, with_item

__all__ = [
    "AppendLock",
    "AsyncRuns",
    "BatchLists",
    "BatchSlot",
    "BytesColumn",
    "ColumnsBuffers",
    "Decoder",
    "HeldItems",
    "OpenBatches",
    "Rows",
    "are_bytes",
    "encode_lists",
    "fit",
    "murmur2",
    "partition_for_keys",
    "with_item",
]
