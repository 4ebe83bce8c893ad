"""The fields of records: varints, and the rules and errors that both codecs share.

Integers in records are varints, in the zigzag encoding of Protocol Buffers.
"""

import operator
from collections.abc import Iterable

from qbus.errors import CorruptBatch
from qbus.records.header import Buffer

MIN_INT64, MAX_INT64 = -(1 << 63), (1 << 63) - 1

_SINGLE = [bytes((value,)) for value in range(0x80)]
_LAST_SHIFT = 63  # of the tenth byte, which has room for one bit of a 64-bit integer

HeaderItems = Iterable[tuple[str, Buffer | None]]


def encode_varint(value: int) -> bytes:
    """Encode a signed 64-bit integer in one to ten bytes."""
    rest = (value << 1) ^ (value >> 63)
    if rest < 0x80:
        return _SINGLE[rest]
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def decode_varint(buf: bytes, pos: int) -> tuple[int, int]:
    """Return the integer at ``pos`` and the position after it.

    Raises :class:`CorruptBatch` if it does not fit 64 bits, and IndexError at the end of ``buf``:
    callers decode many integers and catch that error once.
    """
    byte = buf[pos]
    rest = byte & 0x7F
    shift = 7
    while byte > 0x7F:
        pos += 1
        byte = buf[pos]
        if shift == _LAST_SHIFT and byte > 1:
            raise CorruptBatch("a variable-length integer does not fit 64 bits")
        rest |= (byte & 0x7F) << shift
        shift += 7
    return (rest >> 1) ^ -(rest & 1), pos + 1


def to_bytes(item: Buffer, what: str, index: int) -> bytes:
    """Return any bytes-like object as bytes; raise TypeError for anything else."""
    if isinstance(item, bytes):
        return item
    try:
        return memoryview(item).tobytes()
    except TypeError:
        kind = type(item).__name__
        raise TypeError(f"{what} {index} is not bytes-like but {kind}") from None


def timestamp_delta(timestamp: int, base_timestamp: int, index: int) -> int:
    """Return the delta that a record has. Raises TypeError or ValueError for a bad timestamp."""
    try:
        delta = operator.index(timestamp) - base_timestamp
    except TypeError:
        kind = type(timestamp).__name__
        raise TypeError(f"timestamp {index} is not an integer but {kind}") from None
    if not (MIN_INT64 <= timestamp <= MAX_INT64 and MIN_INT64 <= delta <= MAX_INT64):
        raise ValueError(f"timestamp {index} is out of range: {timestamp} from {base_timestamp}")
    return delta


def encode_headers(headers: HeaderItems | None, index: int) -> bytes:
    """Encode the headers of a record: their count, then each name and value."""
    if not headers:
        return b"\0"
    items = list(headers)
    parts = [encode_varint(len(items))]
    for name, value in items:
        key = _name_to_bytes(name, index)
        parts += (encode_varint(len(key)), key)
        if value is None:
            parts.append(b"\1")
        else:
            value = to_bytes(value, "a header's value of record", index)
            parts += (encode_varint(len(value)), value)
    return b"".join(parts)


def _name_to_bytes(name: object, index: int) -> bytes:
    if isinstance(name, str):
        return name.encode()
    kind = type(name).__name__
    raise TypeError(f"a header's name of record {index} is not str but {kind}")
