"""What compiled functions call: the varints and the checks of lengths."""

from typing import Any, NoReturn

from qbus.errors import WireError

Buffer = bytes | bytearray | memoryview


def truncated() -> NoReturn:
    """Raise for a field that is longer than the bytes that remain."""
    raise WireError("a field ends beyond the message")


def lying_count(count: int) -> NoReturn:
    """Raise for an array that cannot fit into the bytes that remain."""
    raise WireError(f"an array of {count} items does not fit into what remains of the message")


def unexpected_null(name: str) -> NoReturn:
    """Raise for a null where none may be."""
    raise WireError(f"{name} is null")


def not_in_version(name: str, version: int) -> NoReturn:
    """Raise for a field that is set although the version cannot carry it."""
    raise WireError(f"version {version} cannot carry {name}")


def uvarint_rest(buf: Buffer, pos: int, first: int) -> tuple[int, int]:
    """Finish an unsigned varint of at most 32 bits whose ``first`` byte is read already."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, pos
    raise WireError("a varint is longer than 32 bits")


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read an unsigned varint; return it and where it ends."""
    first = buf[pos]
    if first < 0x80:
        return first, pos + 1
    return uvarint_rest(buf, pos + 1, first)


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    if value < 0x80:
        return _SMALL[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tags(buf: Buffer, pos: int, end: int, count: int) -> int:
    """Skip ``count`` tagged fields; return where they end."""
    for _ in range(count):
        _, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        pos += size
        if pos > end:
            truncated()
    return pos


def put_tags(tags: list[tuple[int, bytearray]]) -> bytearray:
    """Encode tagged fields, which are in the order of their tags."""
    out = bytearray(uvarint(len(tags)))
    for tag, data in tags:
        out += uvarint(tag)
        out += uvarint(len(data))
        out += data
    return out


def is_small(value: Any) -> bool:
    """Whether copying ``value`` into the message is cheaper than passing it on beside it."""
    return isinstance(value, (bytes, bytearray, memoryview)) and len(value) < _COPY_BELOW


_COPY_BELOW = 1024
_SMALL = [bytes([value]) for value in range(0x80)]
