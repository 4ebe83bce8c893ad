"""Random records, and batches of any bytes."""

from typing import Any

from hypothesis import strategies as st

from qbus.records import BatchHeader, Compression
from qbus.records.fields import encode_varint
from qbus.records.header import write_header

NOW = 1_700_000_000_000

data = st.none() | st.binary(max_size=200)
header_items = st.lists(st.tuples(st.text(max_size=20), data), max_size=3).map(tuple)
timestamps = st.none() | st.integers(-1, 2**62)
rows = st.tuples(data, data, st.none() | header_items, timestamps)


def batch_of(payload: bytes, count: int = 1, **fields: Any) -> bytes:
    """A batch with a good header and CRC around any bytes."""
    header = BatchHeader(0, 49 + len(payload), -1, 2, 0, 0, count - 1, NOW, NOW, -1, -1, -1, count)
    batch = bytearray(61) + payload
    write_header(batch, header._replace(**fields))
    return bytes(batch)


def record(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


EMPTY = b"\0\0\0\1\0\0"  # attributes, timestamp, offset, no key, an empty value, no headers

HOSTILE: list[tuple[str, bytes, str]] = [
    ("no records", batch_of(b""), "records are cut"),
    ("negative count", batch_of(b"", -1), "impossible records count -1"),
    ("huge count", batch_of(record(EMPTY), 2**31 - 1), "records are cut"),
    ("negative length", batch_of(b"\x01" + EMPTY), "a record's length is negative"),
    ("long negative length", batch_of(b"\x81\x01" + EMPTY), "a record's length is negative"),
    ("length over the end", batch_of(b"\x10" + EMPTY), "records are cut"),
    ("huge length", batch_of(encode_varint(2**63 - 1) + EMPTY), "records are cut"),
    ("endless length", batch_of(b"\xff" * 100), "does not fit 64 bits"),
    ("65 bits", batch_of(b"\xff" * 9 + b"\x02" + EMPTY), "does not fit 64 bits"),
    ("cut integer", batch_of(b"\x80"), "records are cut"),
    ("too short", batch_of(record(EMPTY + b"\0")), "a record ends at 7, its length says 8"),
    ("too long", batch_of(b"\x0a" + EMPTY), "a record ends at 7, its length says 6"),
    ("key over the end", batch_of(record(b"\0\0\0\x7ek")), "records are cut"),
    ("key length -2", batch_of(record(b"\0\0\0\3\0\0")), "impossible length -2"),
    ("value over the end", batch_of(record(b"\0\0\0\1\x7ev")), "records are cut"),
    ("long value", batch_of(record(b"\0\0\0\1\xfe\x01v")), "records are cut"),
    ("huge value", batch_of(record(b"\0\0\0\1" + encode_varint(2**63 - 1))), "records are cut"),
    ("value length -2", batch_of(record(b"\0\0\0\1\3\0")), "impossible length -2"),
    ("no headers count", batch_of(record(b"\0\0\0\1\0")), "records are cut"),
    ("headers count -1", batch_of(record(b"\0\0\0\1\0\1")), "impossible headers count -1"),
    ("2**31 headers", batch_of(record(b"\0\0\0\1\0" + encode_varint(2**31))), "headers count"),
    ("null header key", batch_of(record(b"\0\0\0\1\0\2\1\1")), "a header's key is null"),
    ("header over the end", batch_of(record(b"\0\0\0\1\0\2\x7eh\1")), "records are cut"),
    ("last header cut", batch_of(record(b"\0\0\0\1\0\2\2h\x7e")), "records are cut"),
    ("offset over the last", batch_of(record(b"\0\0\2\1\0\0")), "offset delta 1 after -1, of 0"),
    ("offset delta -1", batch_of(record(b"\0\0\1\1\0\0")), "offset delta -1 after -1, of 0"),
    ("offset delta twice", batch_of(record(EMPTY) * 2, 2), "offset delta 0 after 0, of 1"),
    ("late timestamp", batch_of(record(b"\0" + b"\xfe" + b"\xff" * 8 + b"\x01\0\1\0\0")), "a time"),
    ("late and cut", batch_of(b"\x14\0" + b"\xfe" + b"\xff" * 8 + b"\x01"), "records are cut"),
    ("offsets over the end", batch_of(record(EMPTY), 2, base_offset=2**63 - 1), "offsets, 1 from"),
    ("more bytes", batch_of(record(EMPTY) + b"\0"), "1 bytes after the last record"),
    ("a byte after", batch_of(record(EMPTY)) + b"\0", "in 69"),
    ("unknown codec", batch_of(record(EMPTY), attributes=5), "unknown compression codec 5"),
    ("not gzip", batch_of(record(EMPTY), attributes=Compression.GZIP), "gzip"),
]
