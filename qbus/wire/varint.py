"""Unsigned variable-length integers: seven bits a byte, least significant first (KIP-482).

Lengths and counts of flexible versions. Most take one byte, which generated code reads and writes
in place; these functions take the others.
"""

from qbus.errors import WireError

from .primitives import MAX_STRING


def encode_uvarint(value: int) -> bytes:
    """The bytes of ``value``, which must not be negative."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def decode_uvarint(buf: memoryview, pos: int) -> tuple[int, int]:
    """The number at ``pos``, and the position behind it.

    Raises:
        WireError: it has more than 32 bits.
        IndexError: the buffer ends within it.
    """
    value = shift = 0
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise WireError("variable-length integer of more than five bytes")
    if value > 0xFFFFFFFF:
        raise WireError("variable-length integer of more than 32 bits")
    return value, pos


def encode_string_length(length_plus_one: int) -> bytes:
    """The length of a compact string that is longer than one byte can say.

    Raises:
        WireError: no string may be as long.
    """
    if length_plus_one > MAX_STRING + 1:
        raise WireError(f"string of {length_plus_one - 1} bytes: the limit is {MAX_STRING}")
    return encode_uvarint(length_plus_one)


def decode_string_length(buf: memoryview, pos: int) -> tuple[int, int]:
    """As :func:`decode_uvarint`, for the length of a compact string."""
    length_plus_one, pos = decode_uvarint(buf, pos)
    if length_plus_one > MAX_STRING + 1:
        raise WireError(f"string of {length_plus_one - 1} bytes: the limit is {MAX_STRING}")
    return length_plus_one, pos


def skip_tagged_fields(buf: memoryview, pos: int) -> int:
    """The position behind the section of tagged fields at ``pos``: none of them is known here.

    Raises:
        WireError: a field reaches beyond the buffer.
        IndexError: the buffer ends within the section.
    """
    count, pos = decode_uvarint(buf, pos)
    for _ in range(count):
        _, pos = decode_uvarint(buf, pos)
        length, pos = decode_uvarint(buf, pos)
        pos += length
        if pos > len(buf):
            raise WireError("a tagged field reaches beyond the message")
    return pos
