"""Converts the SDK's Arrow batches to those that Spark expects: its columns, types and order."""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

_LARGEST_MS = ((1 << 63) - 1) // 1000


class RowsForSpark:
    """Converts decoded batches to a schema, column by column and mostly without copies."""

    def __init__(self, schema: StructType) -> None:
        """``schema``: some of the source's columns."""
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def convert(self, batch: Any, topic: str, partition: int) -> Any:
        """Convert a batch of :func:`~qbus.records.to_arrow`."""
        import pyarrow as pa  # noqa: PLC0415 - only where records are read

        arrays = [
            _COLUMNS[field.name](batch, field.type, topic, partition) for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def before(batch: Any, end: int) -> Any:
    """The rows with offsets below ``end``."""
    if not batch.num_rows or batch.column("offset")[-1].as_py() < end:
        return batch
    offsets = batch.column("offset")
    numbers = memoryview(offsets.buffers()[1]).cast("q")
    first = offsets.offset
    return batch.slice(0, bisect_left(numbers, end, first, first + len(batch)) - first)


def _as_it_is(name: str) -> Callable[[Any, Any, str, int], Any]:
    def column(batch: Any, kind: Any, _topic: str, _partition: int) -> Any:
        found = batch.column(name)
        return found if found.type.equals(kind) else found.cast(kind)

    return column


def _topic(batch: Any, kind: Any, topic: str, _partition: int) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    return pa.repeat(pa.scalar(topic, kind), batch.num_rows)


def _partition(batch: Any, kind: Any, _topic: str, partition: int) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    return pa.repeat(pa.scalar(partition, kind), batch.num_rows)


def _timestamp(batch: Any, kind: Any, _topic: str, _partition: int) -> Any:
    """Timestamps in microseconds; values out of range become the nearest one in range."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    times = batch.column("timestamp")
    try:
        return times.cast(kind)
    except pa.ArrowInvalid:
        numbers = pc.min_element_wise(times.cast(pa.int64()), _LARGEST_MS)
        numbers = pc.max_element_wise(numbers, -_LARGEST_MS)
        return pc.multiply(numbers, 1000).cast(kind)


_COLUMNS: Mapping[str, Callable[[Any, Any, str, int], Any]] = {
    "key": _as_it_is("key"),
    "value": _as_it_is("value"),
    "topic": _topic,
    "partition": _partition,
    "offset": _as_it_is("offset"),
    "timestamp": _timestamp,
    "timestampType": _as_it_is("timestamp_type"),
    "headers": _as_it_is("headers"),
}
