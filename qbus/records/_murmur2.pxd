"""MurmurHash2: `pure/murmur2.py` in C."""

from libc.stdint cimport uint8_t, uint32_t


cdef inline uint32_t murmur2_of(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t m = 0x5BD1E995, hashed = 0x9747B28CU ^ <uint32_t>size, mixed
    cdef Py_ssize_t rest = size & 3
    cdef const uint8_t* end = data + (size - rest)
    while data < end:
        mixed = data[0] | data[1] << 8 | data[2] << 16 | <uint32_t>data[3] << 24
        mixed *= m
        mixed ^= mixed >> 24
        hashed = (hashed * m) ^ (mixed * m)
        data += 4
    if rest:
        mixed = data[0]
        if rest > 1:
            mixed |= data[1] << 8
        if rest > 2:
            mixed |= data[2] << 16
        hashed = (hashed ^ mixed) * m
    hashed ^= hashed >> 13
    hashed *= m
    return hashed ^ hashed >> 15
