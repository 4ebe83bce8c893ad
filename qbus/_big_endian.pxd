"""Integers in memory as the protocol and the log have them: in big-endian order, or as varints.

What writes returns where the next byte goes; there must be room.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef inline uint32_t be32(const uint8_t* at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef inline uint64_t be64(const uint8_t* at) noexcept nogil:
    return <uint64_t>be32(at) << 32 | be32(at + 4)


cdef inline uint8_t* put16(uint8_t* at, uint32_t number) noexcept nogil:
    """Write the lower 16 bits."""
    at[0] = <uint8_t>(number >> 8)
    at[1] = <uint8_t>number
    return at + 2


cdef inline uint8_t* put32(uint8_t* at, uint32_t number) noexcept nogil:
    at[0] = <uint8_t>(number >> 24)
    at[1] = <uint8_t>(number >> 16)
    at[2] = <uint8_t>(number >> 8)
    at[3] = <uint8_t>number
    return at + 4


cdef inline uint8_t* put64(uint8_t* at, int64_t number) noexcept nogil:
    at = put32(at, <uint32_t>(<uint64_t>number >> 32))
    return put32(at, <uint32_t><uint64_t>number)


cdef inline uint8_t* put_uvarint(uint8_t* at, uint32_t number) noexcept nogil:
    while number > 0x7F:
        at[0] = <uint8_t>(number & 0x7F | 0x80)
        at += 1
        number >>= 7
    at[0] = <uint8_t>number
    return at + 1
