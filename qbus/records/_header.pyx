# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
"""The compiled form of ``plain.py``. Raw memory is read only within a buffer's checked bounds."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.ref cimport PyTypeObject
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from qbus._big_endian cimport be32, be64
from qbus._tuples cimport new_tuple, put

from array import array

from qbus.errors import CorruptBatch

from .header import BatchHeader, _crc32c

REVISION = 6  # see plain.py

cdef extern from *:
    """
    #define PyBUF_READ_ONLY 0x100
    """
    int PyBUF_READ_ONLY

cdef enum:
    HEADER_SIZE = 61
    LENGTH_PREFIX = 12
    MAGIC = 2
    ZSTD = 4
    SNAPPY = 2
    LZ4 = 3
    CODEC = 0x07
    TRANSACTIONAL = 0x10
    MAX_HEADERS = 10000  # see bounds.py
    LARGE = 16384  # bytes of records from which on other threads run meanwhile

cdef object sums = _crc32c


def plain_header(batch):
    cdef Py_buffer view
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        return checked(<const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef object checked(const uint8_t* at, Py_ssize_t size):
    cdef int32_t length, delta, count, sequence
    cdef int16_t attributes, producer_epoch
    cdef int64_t producer_id
    cdef uint32_t crc
    if size < HEADER_SIZE or at[16] != MAGIC:
        return None
    length = <int32_t>be32(at + 8)
    if <int64_t>length + LENGTH_PREFIX != size:
        return None
    attributes = <int16_t>(at[21] << 8 | at[22])
    delta = <int32_t>be32(at + 23)
    producer_id = <int64_t>be64(at + 43)
    producer_epoch = <int16_t>(at[51] << 8 | at[52])
    sequence = <int32_t>be32(at + 53)
    count = <int32_t>be32(at + 57)
    if not 0 <= attributes <= ZSTD or delta < 0 or <int64_t>delta + 1 != count:
        return None
    if producer_id >= 0 and (producer_epoch < 0 or sequence < 0):
        return None
    crc = be32(at + 17)
    content = PyMemoryView_FromMemory(<char*>at + 21, size - 21, PyBUF_READ_ONLY)
    if <uint32_t>sums(content, 0) != crc:
        return None
    header = new_tuple(<PyTypeObject*>BatchHeader, 13)
    put(header, 0, <int64_t>be64(at))
    put(header, 1, length)
    put(header, 2, <int32_t>be32(at + 12))
    put(header, 3, MAGIC)
    put(header, 4, crc)
    put(header, 5, attributes)
    put(header, 6, delta)
    put(header, 7, <int64_t>be64(at + 27))
    put(header, 8, <int64_t>be64(at + 35))
    put(header, 9, producer_id)
    put(header, 10, producer_epoch)
    put(header, 11, sequence)
    put(header, 12, count)
    return header


def lacks_headers(batch, bytes prefix, int64_t limit):
    cdef Py_buffer view
    cdef const uint8_t* wanted = <const uint8_t*><const char*>prefix
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        return batch_lacks(<const uint8_t*>view.buf, view.len, wanted, len(prefix), limit)
    finally:
        PyBuffer_Release(&view)


cdef bint batch_lacks(
    const uint8_t* at, Py_ssize_t size, const uint8_t* prefix, Py_ssize_t length, int64_t limit
) noexcept:
    cdef int32_t count
    cdef int16_t attributes
    cdef Output out
    if size < HEADER_SIZE or at[16] != MAGIC:
        return False
    attributes = <int16_t>(at[21] << 8 | at[22])
    count = <int32_t>be32(at + 57)
    if <int64_t><int32_t>be32(at + 8) + LENGTH_PREFIX != size or count < 1:
        return False
    if attributes & ~(CODEC | TRANSACTIONAL):
        return False
    at += HEADER_SIZE
    size -= HEADER_SIZE
    if attributes & CODEC == 0:
        return size <= limit and are_without(at, size, count, prefix, length)
    if attributes & CODEC == LZ4:
        return begin(&out, prefix, length, limit) and lz4_lacks(&out, at, size)
    if attributes & CODEC == SNAPPY:
        return begin(&out, prefix, length, limit) and snappy_lacks(&out, at, size)
    return False


include "_blocks.pxi"


def may_have_header(payload, int32_t count, bytes prefix):
    cdef Py_buffer view
    cdef const uint8_t* wanted = <const uint8_t*><const char*>prefix
    cdef Py_ssize_t length = len(prefix)
    cdef bint has
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        if view.len < LARGE:
            return not are_without(<const uint8_t*>view.buf, view.len, count, wanted, length)
        with nogil:
            has = not are_without(<const uint8_t*>view.buf, view.len, count, wanted, length)
        return has
    finally:
        PyBuffer_Release(&view)


cdef bint are_without(
    const uint8_t* data, Py_ssize_t size, int32_t count, const uint8_t* prefix, Py_ssize_t length
) noexcept nogil:
    """Whether ``count`` whole records fill ``data``, none with a header that begins like that."""
    cdef Py_ssize_t pos = 0, end
    cdef int64_t number, headers
    cdef int field
    while count > 0:
        count -= 1
        if not varint(data, size, &pos, &number) or number < 1 or number > size - pos:
            return False
        end = pos + number
        pos += 1  # attributes
        for field in range(2):  # time and offset
            if not varint(data, end, &pos, &number):
                return False
        for field in range(2):  # key and value
            if not skip(data, end, &pos):
                return False
        if not varint(data, end, &pos, &headers) or not 0 <= headers <= MAX_HEADERS:
            return False
        while headers > 0:
            headers -= 1
            if not varint(data, end, &pos, &number) or number < 0 or number > end - pos:
                return False
            if number >= length and memcmp(data + pos, prefix, length) == 0:
                return False
            pos += number
            if not skip(data, end, &pos):
                return False
        if pos != end:
            return False
    return pos == size


cdef inline bint skip(const uint8_t* data, Py_ssize_t end, Py_ssize_t* pos) noexcept nogil:
    """Pass over bytes before ``end`` that are told by their length, which is negative for none."""
    cdef int64_t number
    if not varint(data, end, pos, &number) or number > end - pos[0]:
        return False
    if number > 0:
        pos[0] += number
    return True


def record_positions(payload, int32_t count):
    cdef Py_buffer view
    cdef uint32_t[::1] positions
    cdef bint is_whole
    if count < 0:
        raise CorruptBatch(f"there are no {count} records")
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        if count > view.len or view.len > 0x7FFFFFFF:
            raise CorruptBatch("records are cut")
        made = array("I", bytes(4 * (<Py_ssize_t>count + 1)))
        positions = made
        if view.len < LARGE:
            is_whole = find_positions(<const uint8_t*>view.buf, view.len, count, &positions[0])
        else:
            with nogil:
                is_whole = find_positions(<const uint8_t*>view.buf, view.len, count, &positions[0])
        if not is_whole:
            raise CorruptBatch("records are cut")
        return made
    finally:
        PyBuffer_Release(&view)


cdef bint find_positions(
    const uint8_t* data, Py_ssize_t size, int32_t count, uint32_t* positions
) noexcept nogil:
    """Write where each record ends behind the first of ``positions``; whether all are whole."""
    cdef Py_ssize_t pos = 0
    cdef int64_t length
    cdef int32_t number
    for number in range(count):
        if not varint(data, size, &pos, &length) or length < 1 or length > size - pos:
            return False
        pos += length
        positions[number + 1] = <uint32_t>pos
    return True


cdef inline bint varint(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t* pos, int64_t* number
) noexcept nogil:
    """Read a zigzag varint of up to ten bytes before ``size``."""
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while shift < 70 and pos[0] < size:
        byte = data[pos[0]]
        pos[0] += 1
        if shift == 63 and byte > 1:
            return False
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            number[0] = <int64_t>(value >> 1) ^ -<int64_t>(value & 1)
            return True
        shift += 7
    return False
