"""Prepares rows for their topic: keeps the columns of records, and checks the topic's limits."""

import time
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from qbus.delay import DELAY, ORDERS, more_than, read_order
from qbus.delay import DELIVER_AT as DELIVER_AT_HEADER

from ...producer.arrow_delays import header_lists, with_due_times
from .routing import BadRow
from .topics import TopicLimits

RECORD_COLUMNS = ("value", "key", "headers", "timestamp")
DELIVER_AT = "deliver_at"
_OVERHEAD = 100
"""Upper bound for a batch of one record, without its key, value and headers."""


def now_ms() -> int:
    """Milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


def record_columns(rows: pa.RecordBatch) -> pa.RecordBatch:
    """``rows`` without the columns for routing, and with timestamps in milliseconds.

    The time at which a record is to be delivered becomes a header of it, instead of one that it
    has, as a record has that was delayed before. Raises BadRow for headers of another type.
    """
    if "headers" in rows.schema.names:
        at = rows.schema.get_field_index("headers")
        rows = rows.set_column(at, "headers", _own_headers(rows))
    names = [name for name in RECORD_COLUMNS if name in rows.schema.names]
    columns = [rows.column(name) for name in names]
    if DELIVER_AT in rows.schema.names:
        own = "headers" if "headers" in names else None
        if own is not None:
            headers = _without_times(rows.column(own), rows.column(DELIVER_AT))
            rows = rows.set_column(rows.schema.get_field_index(own), own, headers)
        table, added = with_due_times(rows, own, DELIVER_AT)
        merged = table.column(added).combine_chunks()
        if own is None:
            names.append("headers")
            columns.append(merged)
        else:
            columns[names.index(own)] = merged
    if "timestamp" in names:
        at = names.index("timestamp")
        columns[at] = _milliseconds(columns[at])
    return pa.RecordBatch.from_arrays(columns, names=names)


def check_due_times(topic: str, rows: pa.RecordBatch, limits: TopicLimits) -> None:
    """Raise BadRow for times to deliver at that ``topic`` refuses."""
    if DELIVER_AT not in rows.schema.names:
        return
    times = rows.column(DELIVER_AT)
    if times.null_count == len(times):
        return
    if limits.holds_back is False:
        raise BadRow(f"a row has a time to deliver at, and qbus.delay.enable of {topic} is false")
    bounds = pc.min_max(_milliseconds(times)).as_py()
    if bounds["min"] < 0:
        raise BadRow(f"a row is to be delivered before 1970: {bounds['min']} ms")
    _check_ahead(topic, bounds["max"] - now_ms(), limits)


def check_orders(
    topic: str, rows: pa.RecordBatch, records: pa.RecordBatch, limits: TopicLimits
) -> None:
    """Raise BadRow for headers of ``rows`` about delays that ``topic`` refuses.

    records: the columns of records of these rows. Only rows with such headers of their own are
    looked at, one by one; :func:`check_due_times` checks the column of times.
    """
    if limits.holds_back is not True or "headers" not in rows.schema.names:
        return
    with_orders = _rows_with(_own_headers(rows), ORDERS)
    if not len(with_orders):
        return
    now = now_ms()
    for headers in records.column("headers").take(with_orders).to_pylist():
        try:
            pairs = [(header["key"], header["value"]) for header in headers or ()]
            order = read_order(pairs, now)
        except ValueError as error:
            raise BadRow(f"a row's headers are refused by {topic}: {error}") from error
        if order is not None:
            _check_ahead(topic, order.due - now, limits)


def _check_ahead(topic: str, ahead: int, limits: TopicLimits) -> None:
    if ahead > limits.max_delay_ms:
        wanted, most = more_than(ahead, limits.max_delay_ms)
        raise BadRow(
            f"a row is to be delivered in {wanted}, and qbus.delay.max.ms of {topic}"
            f" ({limits.max_delay_ms}) allows {most}"
        )


def _own_headers(rows: pa.RecordBatch) -> pa.Array:
    try:
        return header_lists(rows.column("headers"), "headers")
    except TypeError as error:
        raise BadRow(str(error)) from error


def _rows_with(headers: pa.Array, names: Iterable[str]) -> pa.Array:
    """The numbers of the rows that have a header of one of ``names``."""
    keys = pc.struct_field(pc.list_flatten(headers), "key")
    is_one = pc.is_in(keys, pa.array(sorted(names)))
    return pc.unique(pc.list_parent_indices(headers).filter(is_one))


def _without_times(headers: pa.Array, times: pa.Array) -> pa.Array:
    """The headers, where there is a time without those that say one."""
    if not len(_rows_with(headers, (DELIVER_AT_HEADER, DELAY))):
        return headers
    kept = [
        own
        if own is None or not has_time
        else [header for header in own if header["key"] not in {DELIVER_AT_HEADER, DELAY}]
        for own, has_time in zip(headers.to_pylist(), pc.is_valid(times).to_pylist(), strict=True)
    ]
    return pa.array(kept, headers.type)


def check_rows(topic: str, rows: pa.RecordBatch, limits: TopicLimits) -> None:
    """Raise :class:`~qbus.clients.spark.sink.routing.BadRow` for rows that ``topic`` rejects."""
    if limits.needs_keys and ("key" not in rows.schema.names or rows.column("key").null_count):
        raise BadRow(f"a row has no key, and {topic} is compacted: its records need one")
    if rows.nbytes + _OVERHEAD > limits.max_batch_bytes:
        _check_sizes(topic, rows, limits.max_batch_bytes)
    if "timestamp" in rows.schema.names:
        _check_times(topic, rows, limits)


def shifted(rows: pa.Table) -> tuple[pa.Table, int]:
    """``rows`` shifted in time so that the latest timestamp is now, and the milliseconds added.

    The staging topic's retention depends on timestamps, and rows may have any.
    """
    if "timestamp" not in rows.schema.names:
        return rows, 0
    latest = pc.max(rows.column("timestamp")).as_py()
    shift = now_ms() - latest
    at = rows.schema.get_field_index("timestamp")
    return rows.set_column(at, "timestamp", pc.add(rows.column(at), shift)), shift


def _milliseconds(column: pa.Array) -> pa.Array:
    options = pc.CastOptions(pa.timestamp("ms", column.type.tz), allow_time_truncate=True)
    return pc.fill_null(column.cast(options=options).cast(pa.int64()), now_ms())


def _check_sizes(topic: str, rows: pa.RecordBatch, most: int) -> None:
    total = pa.scalar(_OVERHEAD, pa.int64())
    for name in ("value", "key"):
        if name in rows.schema.names:
            sizes = pc.fill_null(pc.binary_length(rows.column(name)), 0)
            total = pc.add(total, sizes.cast(pa.int64()))
    if (largest := pc.max(total).as_py()) > most:
        raise BadRow(
            f"a row makes a record of about {largest} bytes, but max.message.bytes of {topic} is"
            f" {most}: raise it, or write smaller values"
        )


def _check_times(topic: str, rows: pa.RecordBatch, limits: TopicLimits) -> None:
    now = now_ms()
    bounds = pc.min_max(rows.column("timestamp")).as_py()
    for name, distance, most in (
        ("before", now - bounds["min"], limits.max_past_ms),
        ("after", bounds["max"] - now, limits.max_future_ms),
    ):
        if distance > most:
            raise BadRow(
                f"a row's timestamp is {distance} ms {name} now, and"
                f" message.timestamp.{name}.max.ms of {topic} is {most}"
            )
