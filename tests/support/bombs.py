"""Batches that are small on the wire and large in memory."""

from collections.abc import Sequence

from qbus.records import Compression
from qbus.records.compression import compress
from qbus.records.encode import encode_records
from qbus.records.fields import encode_varint
from qbus.records.header import HEADER_SIZE, LENGTH_PREFIX, BatchHeader, write_header
from tests.support.logs import NOW_MS

DELAYED = (("qbus-delay", b"1h"),)


def large_batch(
    codec: Compression, size: int, headers: Sequence[tuple[str, bytes]] = (), records: int = 1
) -> bytes:
    """A batch of records, each with a value of ``size`` zeros."""
    value = bytes(size)
    return bytes(
        encode_records(
            [value] * records,
            [b"k"] * records,
            [tuple(headers)] * records,
            base_timestamp=NOW_MS,
            compression=codec,
        )
    )


def batch_of_headers(count: int, codec: Compression = Compression.ZSTD) -> bytes:
    """A batch of one delayed record that has ``count`` headers more, of two bytes each."""
    body = b"\0\0\0" + encode_varint(1) + b"k" + encode_varint(-1) + encode_varint(count + 1)
    body += encode_varint(10) + b"qbus-delay" + encode_varint(2) + b"1h" + b"\0\1" * count
    return sealed(encode_varint(len(body)) + body, 1, codec)


def swarm(
    count: int, codec: Compression = Compression.ZSTD, headers: Sequence[bytes] = ()
) -> bytes:
    """A batch of ``count`` smallest records; the first of them has ``headers``."""
    records = bytearray()
    for delta in range(count):
        body = b"\0\0" + encode_varint(delta) + b"\2k\1"
        if not delta and headers:
            body += encode_varint(len(headers)) + b"".join(headers)
        else:
            body += b"\0"
        records += encode_varint(len(body)) + body
    return sealed(bytes(records), count, codec)


DELAY_HEADER = encode_varint(10) + b"qbus-delay" + encode_varint(2) + b"1h"


def sealed(payload: bytes, count: int, codec: Compression) -> bytes:
    """A batch with these bytes as its records, compressed."""
    content = compress(codec, payload)
    batch = bytearray(HEADER_SIZE) + content
    length = HEADER_SIZE - LENGTH_PREFIX + len(content)
    write_header(
        batch,
        BatchHeader(0, length, -1, 2, 0, codec.value, count - 1, NOW_MS, NOW_MS, -1, -1, -1, count),
    )
    return bytes(batch)
