"""What records may hold: the rules, and the errors, that both twins of the codec share."""

import operator
from collections.abc import Iterable

from qbus.records.crc import Buffer
from qbus.records.varint import encode_varint

MIN_INT64, MAX_INT64 = -(1 << 63), (1 << 63) - 1

HeaderItems = Iterable[tuple[str, Buffer | None]]


def to_bytes(item: Buffer, what: str, index: int) -> bytes:
    """``item``, a bytes-like object of any kind, as bytes; raises TypeError for anything else."""
    if isinstance(item, bytes):
        return item
    try:
        return memoryview(item).tobytes()
    except TypeError:
        kind = type(item).__name__
        raise TypeError(f"{what} {index} is not bytes-like but {kind}") from None


def timestamp_delta(timestamp: int, base_timestamp: int, index: int) -> int:
    """What is written of a timestamp; raises TypeError or ValueError for what is none."""
    try:
        delta = operator.index(timestamp) - base_timestamp
    except TypeError:
        kind = type(timestamp).__name__
        raise TypeError(f"timestamp {index} is not an integer but {kind}") from None
    if not (MIN_INT64 <= timestamp <= MAX_INT64 and MIN_INT64 <= delta <= MAX_INT64):
        raise ValueError(f"timestamp {index} is out of range: {timestamp} from {base_timestamp}")
    return delta


def encode_headers(headers: HeaderItems | None, index: int) -> bytes:
    """The headers of a record as they are written: their count, and each's name and value."""
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
    raise TypeError(f"a header of record {index} is not named by str but {kind}")
