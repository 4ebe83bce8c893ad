# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
"""The compiled form of ``compact.py``. Raw memory is read only within bounds that were checked.

The map is one table of slots, 24 bytes each, with linear probing: the 16 bytes of SipHash-2-4 of
the key (128 bits of output, J.-P. Aumasson and D. J. Bernstein), and the offset.
"""

import os

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cython cimport final
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from qbus._big_endian cimport be32, be64, put32, put64
from qbus.records._parse cimport (
    HEADERS_MANY,
    MAX_HEADERS,
    NO_FAULT,
    Fault,
    Field,
    Parsed,
    Parser,
    read_record,
)
from qbus.records._write cimport put_varint, varint_size

from qbus.errors import CorruptBatch, OversizedBatch

from .compact import Point, Sifted
from .header import _crc32c

REVISION = 3  # see compact.py

cdef extern from *:
    """
    #define PyBUF_READ_ONLY 0x100

    static CYTHON_INLINE uint64_t le64(const uint8_t* at) {
        return (uint64_t)at[0] | (uint64_t)at[1] << 8 | (uint64_t)at[2] << 16
            | (uint64_t)at[3] << 24 | (uint64_t)at[4] << 32 | (uint64_t)at[5] << 40
            | (uint64_t)at[6] << 48 | (uint64_t)at[7] << 56;
    }

    static CYTHON_INLINE uint64_t turned(uint64_t number, int bits) {
        return number << bits | number >> (64 - bits);
    }

    typedef struct { uint64_t a, b, c, d; } SipState;

    static CYTHON_INLINE void sip_rounds(SipState* s, int count) {
        while (count-- > 0) {
            s->a += s->b; s->b = turned(s->b, 13) ^ s->a; s->a = turned(s->a, 32);
            s->c += s->d; s->d = turned(s->d, 16) ^ s->c;
            s->a += s->d; s->d = turned(s->d, 21) ^ s->a;
            s->c += s->b; s->b = turned(s->b, 17) ^ s->c; s->c = turned(s->c, 32);
        }
    }

    static CYTHON_INLINE void sip_take(SipState* s, uint64_t word) {
        s->d ^= word;
        sip_rounds(s, 2);
        s->a ^= word;
    }

    static void sip_digest(
        const uint8_t* data, size_t size, uint64_t key0, uint64_t key1,
        uint64_t* low, uint64_t* high
    ) {
        SipState s = {
            key0 ^ 0x736f6d6570736575ULL, key1 ^ 0x646f72616e646f6dULL ^ 0xee,
            key0 ^ 0x6c7967656e657261ULL, key1 ^ 0x7465646279746573ULL
        };
        size_t left = size;
        uint64_t last = (uint64_t)size << 56;
        while (left >= 8) {
            sip_take(&s, le64(data));
            data += 8;
            left -= 8;
        }
        while (left > 0) {
            left--;
            last |= (uint64_t)data[left] << (8 * left);
        }
        sip_take(&s, last);
        s.c ^= 0xee;
        sip_rounds(&s, 4);
        *low = s.a ^ s.b ^ s.c ^ s.d;
        s.b ^= 0xdd;
        sip_rounds(&s, 4);
        *high = s.a ^ s.b ^ s.c ^ s.d;
    }

    /* Where among `count` slots to begin to look: the digest's share of them. */
    static CYTHON_INLINE size_t place_of(uint64_t digest, size_t count) {
        return (size_t)(((unsigned __int128)digest * count) >> 64);
    }
    """
    int PyBUF_READ_ONLY
    void sip_digest(
        const uint8_t* data, size_t size, uint64_t key0, uint64_t key1,
        uint64_t* low, uint64_t* high
    ) noexcept nogil
    size_t place_of(uint64_t digest, size_t count) noexcept nogil

cdef enum:
    HEADER_SIZE = 61
    LENGTH_PREFIX = 12
    MAGIC = 2
    LOG_APPEND_TIME = 0x08
    HORIZON = 0x40
    PLAIN = 0x48  # the attributes that a plain batch may have
    ENTRY_BYTES = 24
    LEAST_SLOTS = 16
    LARGE = 2048  # bytes of a batch from which on other threads run meanwhile

cdef object sums = _crc32c


cdef object malformed(Fault fault):
    """The error to raise for a record that could not be read."""
    if fault == HEADERS_MANY:
        return OversizedBatch(f"a record has more than {MAX_HEADERS} headers")
    return CorruptBatch("records are malformed")


cdef struct Slot:
    uint64_t low
    uint64_t high
    int64_t next  # the offset after the key's newest record, 0 in an empty slot


cdef struct Head:
    Py_ssize_t size
    int64_t base_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t last_delta
    int32_t count
    int16_t attributes


cdef bint read_plain(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t position, int64_t offset, Head* head
):
    """Whether a whole plain batch with a right sum is at ``position``, of ``offset`` or later."""
    cdef const uint8_t* at = data + position
    cdef int64_t length
    if position < 0 or size - position < HEADER_SIZE or at[16] != MAGIC:
        return False
    length = <int64_t><int32_t>be32(at + 8) + LENGTH_PREFIX
    if length < HEADER_SIZE or length > size - position:
        return False
    head.size = length
    head.attributes = <int16_t>(at[21] << 8 | at[22])
    head.last_delta = <int32_t>be32(at + 23)
    head.count = <int32_t>be32(at + 57)
    head.base_offset = <int64_t>be64(at)
    if (
        head.attributes & ~PLAIN
        or head.base_offset < offset
        or head.count < 1
        or head.last_delta < 0
        or head.count > <int64_t>head.last_delta + 1
        or head.base_offset > 0x7FFFFFFFFFFFFFFE - head.last_delta
    ):
        return False
    head.base_timestamp = <int64_t>be64(at + 27)
    head.max_timestamp = <int64_t>be64(at + 35)
    head.producer_id = <int64_t>be64(at + 43)
    content = PyMemoryView_FromMemory(<char*>at + 21, length - 21, PyBUF_READ_ONLY)
    return <uint32_t>sums(content, 0) == be32(at + 17)


cdef int take_header(Head* head, object header) except -1:
    head.size = 0
    head.base_offset = header.base_offset
    head.base_timestamp = header.base_timestamp
    head.max_timestamp = header.max_timestamp
    head.producer_id = header.producer_id
    head.last_delta = header.last_offset_delta
    head.count = header.records_count
    head.attributes = header.attributes
    if head.base_offset > 0x7FFFFFFFFFFFFFFE - head.last_delta:
        raise CorruptBatch(f"impossible offsets, {head.last_delta} from {head.base_offset}")
    return 0


cdef void begin(Parser* parser, const uint8_t* data, Py_ssize_t size, Head* head) noexcept nogil:
    parser.data = data
    parser.size = size
    parser.pos = 0
    parser.base_offset = head.base_offset
    parser.base_timestamp = head.base_timestamp
    parser.fixed_timestamp = head.max_timestamp
    parser.has_fixed_timestamp = head.attributes & LOG_APPEND_TIME != 0
    parser.last_delta = -1
    parser.max_delta = head.last_delta
    parser.fault = NO_FAULT
    parser.what = parser.other = 0


@final
cdef class OffsetMap:
    cdef Slot* _slots
    cdef size_t _size
    cdef size_t _count
    cdef size_t _most
    cdef Fault _fault
    cdef uint64_t _key0
    cdef uint64_t _key1
    cdef public int64_t latest
    cdef public bint is_full

    def __cinit__(self, memory, records, double load=0.9):
        size = max(min(memory // ENTRY_BYTES, int(records / load) + 1), LEAST_SLOTS)
        secret = os.urandom(16)
        self._size = size
        self._most = max(min(<size_t>(size * load), self._size - 1), 1)
        self._slots = <Slot*>calloc(self._size, sizeof(Slot))
        if self._slots is NULL:
            raise MemoryError(f"{size * ENTRY_BYTES} bytes for the offsets of keys")
        self._key0 = int.from_bytes(secret[:8], "big")
        self._key1 = int.from_bytes(secret[8:], "big")
        self.latest = -1
        self.is_full = False

    def __dealloc__(self):
        free(self._slots)

    def __len__(self):
        return self._count

    def get(self, key):
        cdef Py_buffer view
        PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
        try:
            return self._find(<const uint8_t*>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    cdef Slot* _slot(self, const uint8_t* key, size_t size, uint64_t* low, uint64_t* high) noexcept nogil:
        """The slot of a key, or the empty one where it would go."""
        cdef Slot* slot
        sip_digest(key, size, self._key0, self._key1, low, high)
        slot = self._slots + place_of(low[0], self._size)
        while slot.next and (slot.low != low[0] or slot.high != high[0]):
            slot += 1
            if slot == self._slots + self._size:
                slot = self._slots
        return slot

    cdef int64_t _find(self, const uint8_t* key, size_t size) noexcept nogil:
        cdef uint64_t low, high
        return self._slot(key, size, &low, &high).next - 1

    cdef bint _put(self, const uint8_t* key, size_t size, int64_t offset) noexcept nogil:
        """Whether there was room."""
        cdef uint64_t low, high
        cdef Slot* slot = self._slot(key, size, &low, &high)
        if not slot.next:
            if self._count >= self._most:
                return False
            self._count += 1
            slot.low, slot.high = low, high
        slot.next = offset + 1
        return True

    cdef bint _take(
        self, const uint8_t* data, Py_ssize_t size, Head* head, int64_t start_offset
    ) noexcept nogil:
        """Take in records. Returns False if one is malformed."""
        cdef Parser parser
        cdef Parsed record
        cdef int32_t left = head.count
        begin(&parser, data, size, head)
        self._fault = NO_FAULT
        while left > 0:
            left -= 1
            if not read_record(&parser, &record):
                self._fault = parser.fault
                return False
            if record.key.size < 0 or record.offset < start_offset:
                continue
            if not self._put(record.key.data, record.key.size, record.offset):
                self.is_full = True
                self.latest = max(self.latest, record.offset - 1)
                return True
        if parser.pos != size:
            return False
        self.latest = max(self.latest, head.base_offset + head.last_delta)
        return True

    def take_run(
        self, data, Py_ssize_t position, int64_t offset, int64_t start_offset
    ):
        cdef Py_buffer view
        cdef const uint8_t* at
        cdef Head head
        cdef bint is_good
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            at = <const uint8_t*>view.buf
            while read_plain(at, view.len, position, offset, &head):
                at += position + HEADER_SIZE
                if head.size < LARGE:
                    is_good = self._take(at, head.size - HEADER_SIZE, &head, start_offset)
                else:
                    with nogil:
                        is_good = self._take(at, head.size - HEADER_SIZE, &head, start_offset)
                if not is_good or self.is_full:
                    break
                at = <const uint8_t*>view.buf
                position += head.size
                offset = head.base_offset + head.last_delta + 1
            return position, offset
        finally:
            PyBuffer_Release(&view)

    def take(self, payload, header, int64_t start_offset):
        cdef Py_buffer view
        cdef Head head
        cdef bint is_good
        take_header(&head, header)
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            with nogil:
                is_good = self._take(<const uint8_t*>view.buf, view.len, &head, start_offset)
            if not is_good:
                raise malformed(self._fault)
        finally:
            PyBuffer_Release(&view)


cdef struct Left:
    Py_ssize_t size
    int32_t count
    int32_t tombstones
    int64_t max_timestamp
    Fault fault


@final
cdef class Sifter:
    cdef OffsetMap _offsets
    cdef object _newest
    cdef int64_t _now_ms
    cdef int64_t _interval
    cdef int64_t _unindexed
    cdef public bytearray out
    cdef public list points
    cdef public int64_t position
    cdef public int64_t end_offset
    cdef public int64_t first_timestamp
    cdef public int64_t max_timestamp
    cdef public int64_t max_timestamp_offset
    cdef public int64_t records
    cdef public int64_t kept

    def __cinit__(self, OffsetMap offsets not None, newest, int64_t now_ms, int64_t index_interval_bytes):
        self._offsets = offsets
        self._newest = newest
        self._now_ms = now_ms
        self._interval = index_interval_bytes
        self._unindexed = 0
        self.out = bytearray()
        self.points = []
        self.position = self.end_offset = 0
        self.first_timestamp = self.max_timestamp = -1
        self.max_timestamp_offset = 0
        self.records = self.kept = 0

    cdef bint _sift(
        self, const uint8_t* data, Py_ssize_t size, Head* head, uint8_t* out, Left* left
    ) noexcept nogil:
        """Copy what is left of records to ``out``, which has room for all of them.

        Returns False if one is malformed.
        """
        cdef Parser parser
        cdef Parsed record
        cdef Py_ssize_t start, run = 0
        cdef int32_t number = 0
        cdef bint tombstones_stay = (
            not head.attributes & HORIZON or self._now_ms < head.base_timestamp
        )
        cdef bint stays
        left.size = 0
        left.count = left.tombstones = 0
        left.max_timestamp = -1
        left.fault = NO_FAULT
        begin(&parser, data, size, head)
        while number < head.count:
            number += 1
            start = parser.pos
            if not read_record(&parser, &record):
                left.fault = parser.fault
                return False
            stays = record.offset > self._offsets.latest or (
                record.key.size >= 0
                and record.offset >= self._offsets._find(record.key.data, record.key.size)
                and (record.value.size >= 0 or tombstones_stay)
            )
            if stays:
                left.count += 1
                left.tombstones += record.value.size < 0
                left.max_timestamp = max(left.max_timestamp, record.timestamp)
            else:
                memcpy(out + left.size, data + run, start - run)
                left.size += start - run
                run = parser.pos
        if parser.pos != size:
            return False
        memcpy(out + left.size, data + run, size - run)
        left.size += size - run
        if head.attributes & LOG_APPEND_TIME:
            left.max_timestamp = head.max_timestamp
        return True

    def sift_run(self, data, Py_ssize_t position, int64_t offset):
        cdef Py_buffer view
        cdef const uint8_t* batch
        cdef uint8_t* out
        cdef Head head
        cdef Left left
        cdef Py_ssize_t begin_at
        cdef bint is_good
        cdef bytearray made = self.out
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            while read_plain(<const uint8_t*>view.buf, view.len, position, offset, &head):
                batch = <const uint8_t*>view.buf + position
                begin_at = PyByteArray_GET_SIZE(made)
                PyByteArray_Resize(made, begin_at + head.size)
                out = <uint8_t*>PyByteArray_AS_STRING(made) + begin_at
                if head.size < LARGE:
                    is_good = self._sift(
                        batch + HEADER_SIZE, head.size - HEADER_SIZE, &head, out + HEADER_SIZE, &left
                    )
                else:
                    with nogil:
                        is_good = self._sift(
                            batch + HEADER_SIZE,
                            head.size - HEADER_SIZE,
                            &head,
                            out + HEADER_SIZE,
                            &left,
                        )
                if (
                    not is_good
                    or (left.tombstones and not head.attributes & HORIZON)
                    or (
                        not left.count
                        and head.producer_id >= 0
                        and head.base_offset + head.last_delta in self._newest
                    )
                ):
                    PyByteArray_Resize(made, begin_at)
                    break
                self.records += head.count
                self.kept += left.count
                position += head.size
                offset = head.base_offset + head.last_delta + 1
                if not left.count:
                    PyByteArray_Resize(made, begin_at)
                    continue
                memcpy(out, batch, HEADER_SIZE)
                if left.count < head.count:
                    head.size = left.size + HEADER_SIZE
                    head.max_timestamp = left.max_timestamp
                    put32(out + 8, <uint32_t>(head.size - LENGTH_PREFIX))
                    put64(out + 35, <uint64_t>left.max_timestamp)
                    put32(out + 57, <uint32_t>left.count)
                    content = PyMemoryView_FromMemory(
                        <char*>out + 21, head.size - 21, PyBUF_READ_ONLY
                    )
                    put32(out + 17, <uint32_t>sums(content, 0))
                    PyByteArray_Resize(made, begin_at + head.size)
                self._account(head.size, offset - 1, head.max_timestamp)
            return position, offset
        finally:
            PyBuffer_Release(&view)

    cdef int _account(self, Py_ssize_t size, int64_t last_offset, int64_t timestamp) except -1:
        if not self.position:
            self.first_timestamp = timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = timestamp, last_offset
        if self._unindexed > self._interval:
            self._unindexed = 0
            self.points.append(
                Point(self.position, last_offset, self.max_timestamp, self.max_timestamp_offset)
            )
        self._unindexed += size
        self.position += size
        self.end_offset = last_offset + 1
        return 0

    def sift(self, payload, header):
        cdef Py_buffer view
        cdef Head head
        cdef Left left
        cdef bint is_good
        cdef bytes out
        cdef uint8_t* at
        take_header(&head, header)
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            out = PyBytes_FromStringAndSize(NULL, view.len)
            at = <uint8_t*>PyBytes_AS_STRING(out)
            with nogil:
                is_good = self._sift(<const uint8_t*>view.buf, view.len, &head, at, &left)
            if not is_good:
                raise malformed(left.fault)
            return Sifted(out[: left.size], left.count, left.max_timestamp, left.tombstones)
        finally:
            PyBuffer_Release(&view)

    def add(self, batch, header):
        cdef Py_buffer view
        cdef int64_t timestamp
        PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
        try:
            if view.len < HEADER_SIZE:
                raise CorruptBatch(f"{view.len} bytes are too few for a batch")
            timestamp = <int64_t>be64(<const uint8_t*>view.buf + 35)
            self.out += batch
            self._account(view.len, header.last_offset, timestamp)
        finally:
            PyBuffer_Release(&view)


def rebased(payload, header, int64_t base_timestamp):
    cdef Py_buffer view
    cdef const uint8_t* data
    cdef uint8_t* out
    cdef Py_ssize_t position = 0, start, rest, end
    cdef int64_t length, delta
    cdef bytearray made
    cdef object moved = header.base_timestamp - base_timestamp
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        data = <const uint8_t*>view.buf
        made = bytearray(view.len + 20 * (view.len // 7 + 1))
        out = <uint8_t*>PyByteArray_AS_STRING(made)
        while position < view.len:
            if not varint(data, view.len, &position, &length):
                raise CorruptBatch("records are cut")
            start = position
            if length < 1 or length > view.len - start:
                raise CorruptBatch("records are cut")
            end = start + length
            rest = start + 1
            if not varint(data, end, &rest, &delta):
                raise CorruptBatch("records are cut")
            new = delta + moved
            if not -(1 << 63) <= new < 1 << 63:
                raise CorruptBatch("a timestamp does not fit 64 bits")
            delta = new
            out = put_varint(out, 1 + varint_size(delta) + end - rest)
            out[0] = data[start]
            out = put_varint(out + 1, delta)
            memcpy(out, data + rest, end - rest)
            out += end - rest
            position = end
        return bytes(memoryview(made)[: out - <uint8_t*>PyByteArray_AS_STRING(made)])
    finally:
        PyBuffer_Release(&view)


cdef inline bint varint(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t* pos, int64_t* number
) noexcept:
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


def keyless(payload, header, Py_ssize_t most):
    cdef Py_buffer view
    cdef Head head
    cdef Parser parser
    cdef list found = []
    take_header(&head, header)
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        begin(&parser, <const uint8_t*>view.buf, view.len, &head)
        if view.len < LARGE:
            find_keyless(&parser, head.count, most, found)
        else:
            with nogil:
                find_keyless(&parser, head.count, most, found)
        if parser.fault != NO_FAULT or parser.pos != view.len:
            raise malformed(parser.fault)
        return found
    finally:
        PyBuffer_Release(&view)


cdef int find_keyless(Parser* parser, int32_t count, Py_ssize_t most, list found) except -1 nogil:
    """Add the numbers of the first records without a key to ``found``. Stops at a fault."""
    cdef Parsed record
    cdef int32_t number
    for number in range(count):
        if not read_record(parser, &record):
            break
        if record.key.size < 0 and most > 0:
            most -= 1
            with gil:
                found.append(number)
    return 0
