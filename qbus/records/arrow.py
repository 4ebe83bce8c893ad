"""Record batches from the buffers of Arrow tables."""

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from qbus.records import codec
from qbus.records.arrow_buffers import chunks_of, headers_of, timestamps_of, values_of
from qbus.records.encode import check_batch, new_header, seal
from qbus.records.header import HEADER_SIZE, Compression

if TYPE_CHECKING:
    from qbus.records.pure import Rows

MAX_RECORDS = (1 << 31) - 1
"""Maximum number of records in a batch: its header counts them in 32 bits."""


class ArrowColumns:
    """The columns of a table that become records; no value is copied."""

    def __init__(self, chunks: Iterable["Rows"]) -> None:
        self._chunks = [chunk for chunk in chunks if chunk.length]
        self._starts = [0, *accumulate(chunk.length for chunk in self._chunks)]

    @classmethod
    def of(
        cls,
        table: Any,
        value: str = "value",
        key: str | None = None,
        headers: str | None = None,
        timestamp: str | None = None,
    ) -> "ArrowColumns":
        """Select columns of a table by name.

        ``table`` is a pyarrow Table or RecordBatch, or anything with ``__arrow_c_stream__`` or
        ``__arrow_c_array__``, such as a Polars data frame. Values and keys are binary or string (of
        any kind), headers ``list<struct<key, value>>`` or ``map<key, value>``, timestamps int64 in
        milliseconds since the Unix epoch or Arrow timestamps of any unit.

        Raises KeyError for a missing column, TypeError for a column of another type, and
        MissingExtra without pyarrow.
        """
        return cls(
            codec.twin.Rows(
                chunk.num_rows,
                values_of(chunk, value),
                None if key is None else values_of(chunk, key),
                None if headers is None else headers_of(chunk, headers),
                None if timestamp is None else timestamps_of(chunk, timestamp),
            )
            for chunk in chunks_of(table)
        )

    def __len__(self) -> int:
        """The number of rows."""
        return self._starts[-1]

    def fit(self, start: int, max_bytes: int) -> int:
        """Return the row up to which rows from ``start`` on fit a batch of ``max_bytes`` bytes.

        The sizes are upper bounds without compression. At least one row is taken.
        """
        room = max_bytes - HEADER_SIZE
        stop = start
        for chunk, first in self._from(start):
            row, room = chunk.fit(max(start - first, 0), room)
            stop = first + row
            if row < chunk.length:
                break
        return min(max(stop, start + 1), start + MAX_RECORDS, len(self))

    def partitions(self, count: int) -> "array[int]":
        """Return the partition (of ``count``) of each row's key as Kafka's Java client does.

        A null key has partition -1. pyarrow and NumPy take the 32-bit integers without a copy.
        """
        partitions = array("i")
        for chunk in self._chunks:
            partitions.extend(chunk.partitions(count))
        return partitions

    def encode(self, start: int, stop: int, base_timestamp: int) -> tuple[bytearray, int]:
        """Return room for a header followed by the encoded rows, and the largest timestamp."""
        batch = bytearray(HEADER_SIZE)
        latest = []
        for chunk, first in self._from(start):
            if first >= stop:
                break
            begin, end = max(start - first, 0), min(stop - first, chunk.length)
            latest.append(chunk.encode(batch, begin, end, first + begin - start, base_timestamp))
        return batch, max(latest)

    def _from(self, start: int) -> Iterable[tuple["Rows", int]]:
        index = bisect_right(self._starts, start) - 1
        return zip(self._chunks[index:], self._starts[index:], strict=False)


def encode_arrow(  # noqa: PLR0913 - all fields that a producer sets
    columns: ArrowColumns,
    start: int,
    stop: int,
    *,
    base_timestamp: int,
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
    level: int | None = None,
) -> bytearray:
    """Return one batch of the rows from ``start`` to before ``stop``, as ``encode_records`` does.

    Raises IndexError for rows that do not exist, and ValueError for no rows, a null header key, a
    timestamp out of range, or offsets outside of their column.
    """
    if not 0 <= start <= stop <= len(columns):
        raise IndexError(f"rows {start} to {stop} of {len(columns)}")
    check_batch(stop - start, base_timestamp)
    batch, latest = columns.encode(start, stop, base_timestamp)
    header = new_header(
        stop - start,
        base_timestamp,
        latest,
        attributes=attributes | compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return seal(batch, header, level)
