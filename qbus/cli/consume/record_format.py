"""Output formats of records: lines of bytes, or JSON objects."""

import json
import re
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


_TOKEN = re.compile(r"%([tpoTkhsKS%])|\\([nrt0\\])|%(.?)")
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_FIELDS: dict[str, Callable[["ConsumerRecord"], bytes]] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "k": lambda record: bytes(record.key or b""),
    "s": lambda record: bytes(record.value or b""),
    "h": lambda record: b",".join(
        b"%b=%b" % (name.encode(), bytes(value or b"")) for name, value in record.headers
    ),
    "K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
    "S": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
}


def template(text: str) -> Format:
    r"""Print each record by a format string as kcat's: ``%t %p %o %T %k %h %s %K %S``.

    ``%%`` is a percent sign; ``\n``, ``\t``, ``\r``, ``\0`` and ``\\`` stand for themselves. Raises
    ValueError for anything else behind a percent sign.
    """
    parts: list[bytes | Callable[[ConsumerRecord], bytes]] = []
    end = 0
    for found in _TOKEN.finditer(text):
        parts.append(text[end : found.start()].encode("utf-8", "surrogateescape"))
        end = found.end()
        field, escape, unknown = found.groups()
        if unknown is not None:
            raise ValueError(f"%{unknown} is not known; there are %{' %'.join(_FIELDS)}")
        parts.append(_ESCAPES[escape] if escape else b"%" if field == "%" else _FIELDS[field])
    parts.append(text[end:].encode("utf-8", "surrogateescape"))

    def format_records(batch: "PartitionRecords") -> bytes:
        return b"".join(
            part if isinstance(part, bytes) else part(record)
            for record in batch.records
            for part in parts
        )

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
