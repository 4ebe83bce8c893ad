"""Writing records to memory, in C."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from qbus.records._parse cimport Field

cdef extern from *:
    int __builtin_clzll(unsigned long long) noexcept nogil

cdef enum:
    OVERHEAD = 64  # more bytes than a record can have without its key, value and headers


cdef inline int varint_size(int64_t number) noexcept nogil:
    cdef uint64_t rest = (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)
    return (70 - __builtin_clzll(rest | 1)) // 7


cdef inline uint8_t* put_varint(uint8_t* at, int64_t number) noexcept nogil:
    cdef uint64_t rest = (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)
    while rest > 0x7F:
        at[0] = <uint8_t>(rest & 0x7F | 0x80)
        at += 1
        rest >>= 7
    at[0] = <uint8_t>rest
    return at + 1


cdef inline int64_t field_size(Field field) noexcept nogil:
    return varint_size(field.size) + (field.size if field.size > 0 else 0)


cdef inline uint8_t* put_field(uint8_t* at, Field field) noexcept nogil:
    at = put_varint(at, field.size)
    if field.size > 0:
        memcpy(at, field.data, field.size)
        at += field.size
    return at


cdef inline uint8_t* put_record(
    uint8_t* at, int64_t timestamp, int64_t offset, Field key, Field value, Field headers
) noexcept nogil:
    cdef int64_t size = 1 + varint_size(timestamp) + varint_size(offset)
    size += field_size(key) + field_size(value) + headers.size
    at = put_varint(at, size)
    at[0] = 0
    at = put_varint(at + 1, timestamp)
    at = put_varint(at, offset)
    at = put_field(at, key)
    at = put_field(at, value)
    memcpy(at, headers.data, headers.size)
    return at + headers.size
