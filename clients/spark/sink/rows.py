"""Prepares rows for their topic: keeps the columns of records, and checks the topic's limits."""

import time

import pyarrow as pa
import pyarrow.compute as pc

from ...producer.arrow_delays import with_delays
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

    The time at which a record is to be delivered becomes a header of it.
    """
    names = [name for name in RECORD_COLUMNS if name in rows.schema.names]
    columns = [rows.column(name) for name in names]
    if DELIVER_AT in rows.schema.names:
        own = "headers" if "headers" in names else None
        table, added = with_delays(rows, own, DELIVER_AT)
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
    """Raise BadRow for rows that are to be delivered later than ``topic`` can hold them back."""
    if DELIVER_AT not in rows.schema.names:
        return
    times = rows.column(DELIVER_AT)
    if times.null_count == len(times):
        return
    if not limits.holds_back:
        raise BadRow(f"a row has a time to deliver at, and qbus.delay.enable of {topic} is false")
    ahead = pc.max(_milliseconds(times)).as_py() - now_ms()
    if ahead > limits.max_delay_ms:
        raise BadRow(
            f"a row is to be delivered {ahead} ms from now, and qbus.delay.max.ms of {topic} is"
            f" {limits.max_delay_ms}"
        )


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
