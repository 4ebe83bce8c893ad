"""Variable-length integers: Protocol Buffers' zigzag encoding, as records use it."""

from .errors import CorruptBatch

_MAX_BYTES = 10  # a 64-bit integer at seven bits a byte


def encode_varint(value: int) -> bytes:
    """``value``, a signed 64-bit integer, in one to ten bytes."""
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
    """The integer at ``pos`` and the position after it.

    Raises :class:`CorruptBatch` when it does not end within ten bytes, and IndexError at the end of
    ``buf``: callers decode many and catch that once.
    """
    byte = buf[pos]
    rest = byte & 0x7F
    shift = 7
    start = pos
    while byte > 0x7F:
        pos += 1
        if pos - start >= _MAX_BYTES:
            raise CorruptBatch("a variable-length integer does not end")
        byte = buf[pos]
        rest |= (byte & 0x7F) << shift
        shift += 7
    return (rest >> 1) ^ -(rest & 1), pos + 1


_SINGLE = [bytes((value,)) for value in range(0x80)]
