"""Variable-length integers: Protocol Buffers' zigzag encoding, as records use it."""

from qbus.records.errors import CorruptBatch

_LAST_SHIFT = 63  # of the tenth byte, which has room for one bit of a 64-bit integer


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

    Raises :class:`CorruptBatch` when it does not fit 64 bits, and IndexError at the end of ``buf``:
    callers decode many and catch that once.
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


_SINGLE = [bytes((value,)) for value in range(0x80)]
