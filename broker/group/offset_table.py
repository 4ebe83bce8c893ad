"""The offsets of one group and topic by partition, and positions that come packed, in C.

A table takes packed positions without an object for each: it keeps rows of integers, and makes an
:class:`Offset` of a row where one is asked for. Otherwise it is a mapping as any other.

Packed are the positions of one topic, one after the other, each in big-endian integers:

====== ==== ==============================
offset size field
====== ==== ==============================
0      4    partition
4      8    the offset
12     4    leader epoch, -1: unknown
16     2    length of the metadata
18          metadata in UTF-8
====== ==== ==============================

Where nothing was compiled a table is a dict, and nothing comes packed.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from .offsets import Offset

try:
    from . import _offset_table
except ImportError:
    _revision = 0
else:
    _revision = _offset_table.REVISION

REVISION: Final = 2
"""What the compiled form offers; another number means that it was built from other sources."""

IS_BUILT: Final = _revision == REVISION and os.environ.get("QBUS_CODEC") != "python"
"""Whether :func:`store`, :func:`positions` and :func:`add_records` can be called."""

Table: TypeAlias = "_offset_table.OffsetTable | dict[int, Offset]"

Position = tuple[int, int, int, str]
"""A partition's index, and the offset, the leader epoch and the metadata that are committed."""

_NO_COMMIT: Final = Offset(-1)


def new_table() -> Table:
    """An empty table."""
    return _offset_table.OffsetTable() if IS_BUILT else {}


def store(table: Table, packed: bytes, count: int, committed_at: int, topic_id: bytes) -> None:
    """Store ``count`` packed positions, with the time of their commit and the topic's id.

    ``committed_at`` in milliseconds since the Unix epoch. Raises ValueError unless there are as
    many, and nothing else.
    """
    assert not isinstance(table, dict), "nothing comes packed where nothing was compiled"
    table.store(packed, count, committed_at, topic_id)


def positions(packed: bytes, count: int) -> list[Position]:
    """The same positions, unpacked. Raises ValueError as :func:`store`."""
    return _offset_table.positions(packed, count)


def positions_of(table: Mapping[int, Offset], indexes: Iterable[int]) -> list[Position]:
    """The position of each of some partitions; offset -1 where there is none."""
    if IS_BUILT and isinstance(table, _offset_table.OffsetTable):
        return table.positions(indexes)
    found = []
    for index in indexes:
        offset, leader_epoch, metadata, _, _, _ = table.get(index, _NO_COMMIT)
        found.append((index, offset, leader_epoch, metadata))
    return found


def add_records(
    batch: bytearray,
    first: int,
    prefix: bytes,
    packed: bytes,
    count: int,
    committed_at: int,
    topic_id: bytes,
) -> None:
    """Append the records that store packed positions to those of a batch.

    They are what :mod:`.offset_records` would encode, with the time of the batch. ``first``: the
    offset of the first of them, counted from that of the batch. ``prefix``: their keys without the
    partition. Raises ValueError as :func:`store`.
    """
    _offset_table.add_records(batch, first, prefix, packed, count, committed_at, topic_id)
