"""Output formats of records: lines of bytes, or JSON objects."""

import json
from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qbus.clients.types import PartitionRecords
    from qbus.records import ConsumerRecord, Record

Format = Callable[["PartitionRecords"], bytes]


def raw_values(batch: "PartitionRecords") -> bytes:
    """Each value and a newline; a null value is an empty line."""
    lines = [record.value or b"" for record in batch.records]
    lines.append(b"")
    return b"\n".join(lines)


def raw_with_keys(separator: bytes) -> Format:
    """Each key, ``separator``, value and newline; for a null key, value and newline."""

    def format_records(batch: "PartitionRecords") -> bytes:
        lines = [
            record.value or b""
            if record.key is None
            else b"".join((record.key, separator, record.value or b""))
            for record in batch.records
        ]
        lines.append(b"")
        return b"\n".join(lines)

    return format_records


def json_objects(batch: "PartitionRecords") -> bytes:
    """One JSON object per line for each record."""
    place = {"topic": batch.topic, "partition": batch.partition}
    lines = [
        json.dumps({**place, **record_fields(record)}, ensure_ascii=False)
        for record in batch.records
    ]
    lines.append("")
    return "\n".join(lines).encode("utf-8", "replace")


def record_fields(record: "Record | ConsumerRecord") -> dict[str, Any]:
    """A record as JSON can hold it.

    Bytes become text. Bytes that are not UTF-8 become base64, and a field ``<name>_encoding`` is
    ``base64``.
    """
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": record.timestamp_type.name.lower(),
        **_text("key", record.key),
        **_text("value", record.value),
        "headers": [{"key": key, **_text("value", value)} for key, value in record.headers],
    }


def _text(name: str, value: Any) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    data = bytes(value)
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name: b64encode(data).decode(), f"{name}_encoding": "base64"}
