"""From pyarrow's arrays to their buffers: the accepted types, and the layout of columns.

The layout is Arrow's "Columnar Format", version 1.5. A column has one validity bit per row, the
least significant first; without these bits no row is null. Values of variable length are adjacent
in ``data``: value ``i`` begins at offset ``i`` and ends at offset ``i + 1``. A column may be a
slice of another one, so row 0 need not be the first value.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple

from qbus.errors import MissingExtra
from qbus.extras import lacks
from qbus.records.header import Buffer


def import_pyarrow() -> Any:
    """Return pyarrow, or raise :class:`~qbus.errors.MissingExtra`."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - takes a fifth of a second, and few need it
    except ImportError as error:
        raise MissingExtra(lacks("Arrow needs pyarrow", "arrow"), name="pyarrow") from error
    return pa


class Values(NamedTuple):
    """A column of bytes, or of numbers, which are bytes of a fixed size."""

    validity: Buffer | None
    offsets: Buffer | None
    """Integers in the machine's byte order; None: each value has ``width`` bytes of ``data``."""
    width: int
    """Size in bytes of an offset (4 or 8), or of a value if there are no offsets."""
    data: Buffer
    start: int
    """Index of the value of row 0."""


class Lists(NamedTuple):
    """A column of lists of headers: the pairs of list ``i`` begin at offset ``i``."""

    validity: Buffer | None
    offsets: Buffer
    width: int
    start: int
    pairs: int
    """Number of pairs."""
    key: Values
    value: Values


def chunks_of(table: Any) -> Iterator[Any]:
    """Yield ``table`` as pyarrow RecordBatches, whose columns are not chunked."""
    pa = import_pyarrow()
    if isinstance(table, pa.RecordBatch):
        yield table
        return
    if not isinstance(table, pa.Table):
        table = pa.table(table)
    yield from table.to_batches()


def values_of(chunk: Any, name: str) -> Values:
    """Return the column ``name`` of strings or bytes."""
    array = _column(chunk, name)
    try:
        return _values(array)
    except TypeError:
        raise TypeError(f"column {name!r} is of {array.type}: binary or string is needed") from None


def headers_of(chunk: Any, name: str) -> Lists:
    """Return the column ``name`` of lists of headers."""
    array = _column(chunk, name)
    try:
        return _lists(array)
    except TypeError:
        raise TypeError(
            f"column {name!r} is of {array.type}: list<struct<key, value>> is needed"
        ) from None


def timestamps_of(chunk: Any, name: str) -> Values:
    """Return the column ``name`` of timestamps, in milliseconds since the Unix epoch."""
    pa = import_pyarrow()
    array = _column(chunk, name)
    kind = array.type
    if pa.types.is_timestamp(kind):
        array = array.cast(options=_milliseconds(kind.tz))
    elif not pa.types.is_int64(kind):
        raise TypeError(f"column {name!r} is of {kind}: timestamp or int64 is needed")
    validity, data = array.buffers()
    return _checked(Values(_view(validity), None, 8, _data(data), array.offset), len(array))


def _column(chunk: Any, name: str) -> Any:
    index = chunk.schema.get_field_index(name)
    if index < 0:
        raise KeyError(f"no column {name!r}, or more than one, among {chunk.schema.names}")
    return chunk.column(index)


def _milliseconds(zone: str | None) -> Any:
    pa = import_pyarrow()
    compute = import_module("pyarrow.compute")
    return compute.CastOptions(pa.timestamp("ms", zone), allow_time_truncate=True)


def _values(array: Any) -> Values:
    """Raise TypeError if ``array`` has no strings or bytes."""
    pa = import_pyarrow()
    types = pa.types
    kind = array.type
    if types.is_dictionary(kind):
        return _values(array.dictionary_decode())
    if types.is_string_view(kind) or types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
        kind = array.type
    if types.is_fixed_size_binary(kind):
        validity, data = array.buffers()
        column = Values(_view(validity), None, kind.byte_width, _data(data), array.offset)
    elif types.is_string(kind) or types.is_binary(kind):
        validity, offsets, data = array.buffers()
        column = Values(_view(validity), _data(offsets), 4, _data(data), array.offset)
    elif types.is_large_string(kind) or types.is_large_binary(kind):
        validity, offsets, data = array.buffers()
        column = Values(_view(validity), _data(offsets), 8, _data(data), array.offset)
    elif types.is_null(kind):
        column = Values(bytes((array.offset + len(array) + 7) // 8), None, 0, b"", array.offset)
    else:
        raise TypeError(str(kind))
    return _checked(column, len(array))


def _lists(array: Any) -> Lists:
    """Raise TypeError if ``array`` has no lists of pairs."""
    types = import_pyarrow().types
    kind = array.type
    if types.is_map(kind):
        key, value, width = array.keys, array.items, 4
    elif (types.is_list(kind) or types.is_large_list(kind)) and types.is_struct(kind.value_type):
        fields = [kind.value_type.field(i).name for i in range(kind.value_type.num_fields)]
        if sorted(fields) != ["key", "value"]:
            raise TypeError(str(kind))
        columns = dict(zip(fields, array.values.flatten(), strict=True))
        key, value = columns["key"], columns["value"]
        width = 4 if types.is_list(kind) else 8
    else:
        raise TypeError(str(kind))
    validity, offsets = array.buffers()[:2]
    column = Lists(
        _view(validity),
        _data(offsets),
        width,
        array.offset,
        min(len(key), len(value)),
        _values(key),
        _values(value),
    )
    _check(column.validity, column.offsets, width, array.offset + len(array))
    return column


def _checked(column: Values, length: int) -> Values:
    """Return ``column``; raise ValueError if its buffers hold fewer rows."""
    _check(column.validity, column.offsets, column.width, column.start + length)
    if column.offsets is None and len(column.data) < (column.start + length) * column.width:
        raise ValueError("a column's values are cut")
    return column


def _check(validity: Buffer | None, offsets: Buffer | None, width: int, end: int) -> None:
    if validity is not None and 8 * len(validity) < end:
        raise ValueError("a column's validity is cut")
    if offsets is not None and end and len(offsets) < (end + 1) * width:
        raise ValueError("a column's offsets are cut")


def _view(buffer: Any) -> memoryview | None:
    return None if buffer is None else memoryview(buffer)


def _data(buffer: Any) -> Buffer:
    return b"" if buffer is None else memoryview(buffer)
