"""Records from untrusted bytes: `parse.py` in C, without the GIL."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef extern from *:
    """
    /* Most integers take one or two bytes; compilers do not inline this unless they must. */
    static inline __attribute__((always_inline)) int short_varint(
        const uint8_t* data, Py_ssize_t size, Py_ssize_t* pos, int64_t* number
    ) {
        const uint8_t* at = data + *pos;
        Py_ssize_t left = size - *pos;
        uint64_t rest;
        if (left > 0 && at[0] < 0x80) {
            rest = at[0];
            *pos += 1;
        } else if (left > 1 && at[1] < 0x80) {
            rest = (uint64_t)(at[0] & 0x7F) | (uint64_t)at[1] << 7;
            *pos += 2;
        } else {
            return 0;
        }
        *number = (int64_t)(rest >> 1) ^ -(int64_t)(rest & 1);
        return 1;
    }

    /* Nearly all records are plain: short integers, no headers, well-formed. */
    typedef struct {
        int64_t timestamp_delta;
        int64_t offset_delta;
        const uint8_t* key;
        int64_t key_size;
        const uint8_t* value;
        int64_t value_size;
    } PlainRecord;

    #define LONGEST_PLAIN_VARINT 3

    static inline __attribute__((always_inline)) int plain_varint(
        const uint8_t** at, int64_t* number
    ) {
        const uint8_t* byte = *at;
        uint32_t rest = byte[0];
        if (rest < 0x80) {
            *at += 1;
        } else if (byte[1] < 0x80) {
            rest = (rest & 0x7F) | (uint32_t)byte[1] << 7;
            *at += 2;
        } else if (byte[2] < 0x80) {
            rest = (rest & 0x7F) | (uint32_t)(byte[1] & 0x7F) << 7 | (uint32_t)byte[2] << 14;
            *at += 3;
        } else {
            return 0;
        }
        *number = (int64_t)(rest >> 1) ^ -(int64_t)(rest & 1);
        return 1;
    }

    static inline __attribute__((always_inline)) int plain_field(
        const uint8_t** at, const uint8_t* end, const uint8_t** field, int64_t* size
    ) {
        if (end - *at < LONGEST_PLAIN_VARINT || !plain_varint(at, size)) return 0;
        if (*size < -1 || *size > end - *at) return 0;
        *field = *at;
        *at += *size > 0 ? *size : 0;
        return 1;
    }

    /* Whether the record is plain; it ends at `pos` then. Otherwise nothing changes. */
    static inline __attribute__((always_inline)) int plain_record(
        const uint8_t* data, Py_ssize_t size, Py_ssize_t* pos, PlainRecord* record
    ) {
        const uint8_t* at = data + *pos;
        const uint8_t* end = data + size;
        int64_t length;
        if (end - at < 3 * LONGEST_PLAIN_VARINT + 1) return 0;
        if (!plain_varint(&at, &length) || length < 0 || length > end - at) return 0;
        end = at + length;
        at += 1;
        if (!plain_varint(&at, &record->timestamp_delta)) return 0;
        if (!plain_varint(&at, &record->offset_delta)) return 0;
        if (!plain_field(&at, end, &record->key, &record->key_size)) return 0;
        if (!plain_field(&at, end, &record->value, &record->value_size)) return 0;
        if (at + 1 != end || *at != 0) return 0;
        *pos = end - data;
        return 1;
    }
    """
    ctypedef struct PlainRecord:
        int64_t timestamp_delta
        int64_t offset_delta
        const uint8_t* key
        int64_t key_size
        const uint8_t* value
        int64_t value_size

    bint __builtin_add_overflow(int64_t, int64_t, int64_t*) noexcept nogil
    bint short_varint(
        const uint8_t* data, Py_ssize_t size, Py_ssize_t* pos, int64_t* number
    ) noexcept nogil
    bint plain_record(
        const uint8_t* data, Py_ssize_t size, Py_ssize_t* pos, PlainRecord* record
    ) noexcept nogil

cdef enum:
    MAX_HEADERS = 10000  # see bounds.py

cdef enum Fault:
    NO_FAULT
    CUT
    WIDE
    NEGATIVE
    TIMESTAMP
    OFFSET
    LENGTH
    HEADERS_COUNT
    HEADERS_MANY
    HEADER_KEY
    RECORD_END

cdef struct Field:
    const uint8_t* data
    int64_t size  # -1: null

cdef struct Parsed:
    int64_t offset
    int64_t timestamp
    Field key
    Field value
    int64_t headers_count
    Py_ssize_t headers_at

cdef struct Parser:
    const uint8_t* data
    Py_ssize_t size
    Py_ssize_t pos
    int64_t base_offset
    int64_t base_timestamp
    int64_t fixed_timestamp
    bint has_fixed_timestamp
    int64_t last_delta
    int64_t max_delta
    Fault fault
    int64_t what    # the wrong number, and the number to compare it with
    int64_t other


cdef inline bint fail(Parser* parser, Fault fault, int64_t what, int64_t other) noexcept nogil:
    parser.fault = fault
    parser.what = what
    parser.other = other
    return False


cdef inline bint read_varint(Parser* parser, int64_t* number) noexcept nogil:
    if short_varint(parser.data, parser.size, &parser.pos, number):
        return True
    return read_long_varint(parser, number)


cdef inline bint read_long_varint(Parser* parser, int64_t* number) noexcept nogil:
    cdef uint64_t rest = 0, byte
    cdef int shift = 0
    while True:
        if parser.pos >= parser.size:
            return fail(parser, CUT, 0, 0)
        byte = parser.data[parser.pos]
        if shift == 63 and byte > 1:
            return fail(parser, WIDE, 0, 0)
        parser.pos += 1
        rest |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    number[0] = <int64_t>(rest >> 1) ^ -<int64_t>(rest & 1)
    return True


cdef inline bint read_field(Parser* parser, Field* field) noexcept nogil:
    cdef int64_t size
    if not read_varint(parser, &size):
        return False
    if size < -1:
        return fail(parser, LENGTH, size, 0)
    field.size = size
    field.data = parser.data + parser.pos
    if size > parser.size - parser.pos:
        return fail(parser, CUT, 0, 0)
    if size > 0:
        parser.pos += size
    return True


cdef inline bint read_header(Parser* parser, Field* key, Field* value) noexcept nogil:
    if not read_field(parser, key):
        return False
    if key.size < 0:
        return fail(parser, HEADER_KEY, 0, 0)
    return read_field(parser, value)


cdef inline bint read_headers(Parser* parser, Parsed* record) noexcept nogil:
    cdef int64_t index
    cdef Field key, value
    if not read_varint(parser, &record.headers_count):
        return False
    if not 0 <= record.headers_count <= (parser.size - parser.pos) // 2:
        return fail(parser, HEADERS_COUNT, record.headers_count, 0)
    if record.headers_count > MAX_HEADERS:
        return fail(parser, HEADERS_MANY, record.headers_count, MAX_HEADERS)
    record.headers_at = parser.pos
    for index in range(record.headers_count):
        if not read_header(parser, &key, &value):
            return False
    return True


cdef inline bint place(
    Parser* parser, Parsed* record, int64_t timestamp_delta, int64_t offset_delta
) noexcept nogil:
    """Set the timestamp and the offset of a record from its deltas."""
    if parser.has_fixed_timestamp:
        record.timestamp = parser.fixed_timestamp
    elif __builtin_add_overflow(parser.base_timestamp, timestamp_delta, &record.timestamp):
        return fail(parser, TIMESTAMP, 0, 0)
    if not parser.last_delta < offset_delta <= parser.max_delta:
        return fail(parser, OFFSET, offset_delta, parser.last_delta)
    parser.last_delta = offset_delta
    record.offset = parser.base_offset + offset_delta
    return True


cdef inline bint read_record(Parser* parser, Parsed* record) noexcept nogil:
    """Read and check the next record. Returns False if it is malformed; `fault` says why."""
    cdef PlainRecord plain
    if not plain_record(parser.data, parser.size, &parser.pos, &plain):
        return read_any_record(parser, record)
    record.key.data, record.key.size = plain.key, plain.key_size
    record.value.data, record.value.size = plain.value, plain.value_size
    record.headers_count = 0
    return place(parser, record, plain.timestamp_delta, plain.offset_delta)


cdef inline bint read_any_record(Parser* parser, Parsed* record) noexcept nogil:
    cdef int64_t length, timestamp_delta, offset_delta
    cdef Py_ssize_t end
    if not read_varint(parser, &length):
        return False
    if length < 0:
        return fail(parser, NEGATIVE, 0, 0)
    if length > parser.size - parser.pos:
        return fail(parser, CUT, 0, 0)
    end = parser.pos + length
    parser.pos += 1  # the attributes, which are unused
    if not read_varint(parser, &timestamp_delta):
        return False
    if not read_varint(parser, &offset_delta):
        return False
    if not place(parser, record, timestamp_delta, offset_delta):
        return False
    if not read_field(parser, &record.key):
        return False
    if not read_field(parser, &record.value):
        return False
    if not read_headers(parser, record):
        return False
    if parser.pos != end:
        return fail(parser, RECORD_END, parser.pos, end)
    return True
