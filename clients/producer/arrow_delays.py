"""The column of due times of an Arrow table, as headers."""

from importlib import import_module
from typing import Any, Final

from qbus.delay import DELIVER_AT
from qbus.records.arrow_buffers import import_pyarrow

_COLUMN: Final = "qbus headers with the due time"


def with_due_times(table: Any, headers: str | None, deliver_at: str) -> tuple[Any, str]:
    """A table with one more column of headers, and that column's name.

    Each row has the headers of the column ``headers``, if there is one, and one with the time of
    the column ``deliver_at``: int64 (ms) or a timestamp; null: no header. Raises KeyError for a
    missing column, TypeError for one of another type.
    """
    pa = import_pyarrow()
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    added = _due_headers(_column(table, deliver_at), deliver_at)
    merged = added if headers is None else _joined(_column(table, headers), added, headers)
    return table.append_column(_COLUMN, merged), _COLUMN


def header_lists(column: Any, name: str) -> Any:
    """A column of headers as a list of ``struct<key: string, value: binary>`` for each row.

    Takes lists of structs of ``key`` and ``value`` in any order, and maps. Raises TypeError for
    others; ``name`` is the column's, for the message.
    """
    pa, compute = import_pyarrow(), import_module("pyarrow.compute")
    kind = column.type
    wrong = TypeError(f"column {name!r} is of {kind}: list<struct<key, value>> is needed")
    if pa.types.is_map(kind):
        column = column.cast(
            pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
        )
        kind = column.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not is_list or not pa.types.is_struct(kind.value_type):
        raise wrong
    fields = [(field.name, field.type) for field in kind.value_type]
    if fields == [("key", pa.string()), ("value", pa.binary())]:
        return column
    if sorted(field for field, _ in fields) != ["key", "value"]:
        raise wrong
    pairs = column.flatten()
    try:
        keys = compute.struct_field(pairs, "key").cast(pa.string())
        values = compute.struct_field(pairs, "value").cast(pa.binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise wrong from None
    return _lists(_counts(column), keys, values)


def _column(table: Any, name: str) -> Any:
    if table.schema.get_field_index(name) < 0:
        raise KeyError(f"no column {name!r}, or more than one, among {table.schema.names}")
    column = table.column(name).combine_chunks()
    pa = import_pyarrow()
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def _due_headers(times: Any, name: str) -> Any:
    """A list of one header for each time, none for null."""
    pa, compute = import_pyarrow(), import_module("pyarrow.compute")
    if pa.types.is_timestamp(times.type):
        unit = pa.timestamp("ms", times.type.tz)
        cut = times.cast(options=compute.CastOptions(unit, allow_time_truncate=True))
        # Rounded up: never early.
        is_cut = compute.less(cut.cast(times.type), times).cast(pa.int64())
        times = compute.add(cut.cast(pa.int64()), is_cut)
    elif not pa.types.is_int64(times.type):
        raise TypeError(f"column {name!r} is of {times.type}: timestamp or int64 is needed")
    if (least := compute.min(times).as_py()) is not None and least < 0:
        raise ValueError(f"column {name!r}: deliver_at must not be before 1970: {least}")
    values = times.drop_null().cast(pa.string()).cast(pa.binary())
    keys = pa.repeat(pa.scalar(DELIVER_AT), len(values))
    return _lists(compute.is_valid(times).cast(pa.int32()), keys, values)


def _joined(own: Any, added: Any, name: str) -> Any:
    """The headers of both, row by row."""
    pa, compute = import_pyarrow(), import_module("pyarrow.compute")
    parts = [header_lists(own, name), added]
    rows = pa.concat_arrays([compute.list_parent_indices(part).cast(pa.int64()) for part in parts])
    order = compute.sort_indices(rows)  # a stable sort
    pairs = [part.flatten() for part in parts]
    keys = pa.concat_arrays([compute.struct_field(pair, "key") for pair in pairs])
    values = pa.concat_arrays([compute.struct_field(pair, "value") for pair in pairs])
    counts = compute.add(*(_counts(part) for part in parts))
    return _lists(counts, keys.take(order), values.take(order))


def _counts(lists: Any) -> Any:
    """The number of headers of each row; 0 for null."""
    pa, compute = import_pyarrow(), import_module("pyarrow.compute")
    lengths = compute.list_value_length(lists).cast(pa.int32())
    return compute.coalesce(lengths, pa.scalar(0, pa.int32()))


def _lists(counts: Any, keys: Any, values: Any) -> Any:
    """Lists of headers, of so many each."""
    pa, compute = import_pyarrow(), import_module("pyarrow.compute")
    first = pa.array([0], pa.int64())
    ends = compute.cumulative_sum(counts.cast(pa.int64()))
    offsets = pa.concat_arrays([first, ends])
    pairs = pa.StructArray.from_arrays([keys, values], ["key", "value"])
    return pa.LargeListArray.from_arrays(offsets, pairs)
