"""What generated decoders and encoders call: variable-length integers, number arrays, refusals.

Flexible versions write lengths and counts as unsigned varints: seven bits a byte, the least
significant first (KIP-482). Generated code reads and writes varints of one byte in line; these
functions are for longer ones.
"""

from struct import pack, unpack_from
from typing import Any, Final, NoReturn

from qbus.errors import WireError

Buffer = bytes | bytearray | memoryview

MAX_STRING: Final = 0x7FFF
"""Maximum size of a string in bytes, in every version."""

MAX_ITEMS: Final = 2_000_000
"""Maximum number of array items and tagged fields in a response.

An item of three bytes may become an object of 120.
"""

MAX_REQUEST_ITEMS: Final = 100_000
"""The same for a request: all other requests wait while a broker reads and answers it."""

MAX_TAGS: Final = 10_000
"""Maximum number of tagged fields of one struct, as in Kafka."""

STEP: Final = 1000
"""How many items are read or written between two pauses, where a message is read in steps."""

MAX_HEADER_TAGS: Final = 100
"""Maximum number of tagged fields in a header; no known header has any."""

BYTES_LIKE: Final = (bytes, bytearray, memoryview)

COPY_BELOW: Final = 1024
"""Records of fewer bytes are copied into the message: that costs less than a part of their own."""


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits; return it and where it ends."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, pos
    raise WireError("a varint is longer than 32 bits")


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_string_length(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read the length of a compact string, plus one; return it and where it ends."""
    n, pos = read_uvarint(buf, pos)
    if n > MAX_STRING + 1:
        raise WireError(f"a string of {n - 1} bytes, more than {MAX_STRING}")
    return n, pos


def string_length(n: int) -> bytes:
    """Encode ``n``, the length of a compact string plus one."""
    if n > MAX_STRING + 1:
        raise WireError(f"a string of {n - 1} bytes, more than {MAX_STRING}")
    return uvarint(n)


def read_numbers(letter: str, count: int, buf: Buffer, pos: int) -> list[Any]:
    """Read ``count`` values of one fixed width."""
    return [*unpack_from(f">{count}{letter}", buf, pos)]


def write_numbers(letter: str, values: list[Any]) -> bytes:
    """Encode values of one fixed width."""
    return pack(f">{len(values)}{letter}", *values)


def checked_uuid(value: bytes) -> bytes:
    """Return ``value``, which must have 16 bytes: ``struct`` would cut or fill any other size."""
    if len(value) != 16:
        raise WireError(f"a uuid of {len(value)} bytes")
    return value


def skip_header_tags(buf: Buffer, pos: int, end: int) -> int:
    """Skip the tagged fields of a header; return where they end."""
    count, pos = read_uvarint(buf, pos)
    if count > MAX_HEADER_TAGS:
        raise WireError(f"a header with {count} tagged fields")
    return skip_tags(buf, pos, end, count)


def skip_tags(buf: Buffer, pos: int, end: int, count: int) -> int:
    """Skip ``count`` tagged fields; return where they end."""
    for _ in range(count):
        _, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        if size > end - pos:
            wrong_length("tagged field", size, end - pos)
        pos += size
    return pos


def tagged(out: bytearray, tag: int, data: bytearray) -> bytearray:
    """Append a tagged field to ``out``; return ``out``."""
    out += uvarint(tag)
    out += uvarint(len(data))
    out += data
    return out


def wrong_length(name: str, length: int, remaining: int) -> NoReturn:
    """Refuse a null that is not allowed, or a length that is negative or beyond the message."""
    if length == -1:
        raise WireError(f"{name} is null")
    raise WireError(f"{name} has {length} bytes, {remaining} remain")


def wrong_count(name: str, count: int, remaining: int) -> NoReturn:
    """Refuse a null that is not allowed, or an array that does not fit the remaining bytes."""
    if count == -1:
        raise WireError(f"{name} is null")
    raise WireError(f"{name} has {count} items, {remaining} bytes remain")


def too_many_items() -> NoReturn:
    """Refuse a message with more array items and tagged fields in total than it may have."""
    raise WireError("more items than a message may have")


def wrong_tag(tag: int) -> NoReturn:
    """Refuse a tagged field whose content is not as long as its length says."""
    raise WireError(f"tagged field {tag} is not as long as it says")


def not_in_version(name: str, version: int) -> NoReturn:
    """Refuse a field that is set and that the version cannot carry."""
    raise WireError(f"version {version} cannot carry {name}")
