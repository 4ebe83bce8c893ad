# Records to a list.

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(void*)


cdef int start(Parser* parser, Py_buffer* payload, object header) except -1:
    max_delta, base_offset = header.last_offset_delta, header.base_offset
    if base_offset + max_delta > 0x7FFFFFFFFFFFFFFF:
        raise CorruptBatch(f"impossible offsets, {max_delta} from {base_offset}")
    parser.data = <const uint8_t*>payload.buf
    parser.size = payload.len
    parser.pos = 0
    parser.base_offset = base_offset
    parser.base_timestamp = header.base_timestamp
    parser.fixed_timestamp = header.max_timestamp
    parser.has_fixed_timestamp = header.is_log_append_time
    parser.last_delta = -1
    parser.max_delta = max_delta
    parser.fault = NO_FAULT
    return 0


cdef int refuse(Parser* parser) except -1:
    """Raise the error of ``parse.py`` for the fault."""
    cdef Fault fault = parser.fault
    what, other = parser.what, parser.other
    if fault == WIDE:
        raise CorruptBatch("a variable-length integer does not fit 64 bits")
    if fault == NEGATIVE:
        raise CorruptBatch("a record's length is negative")
    if fault == TIMESTAMP:
        raise CorruptBatch("a timestamp does not fit 64 bits")
    if fault == OFFSET:
        raise CorruptBatch(f"offset delta {what} after {other}, of {parser.max_delta}")
    if fault == LENGTH:
        raise CorruptBatch(f"impossible length {what}")
    if fault == HEADERS_COUNT:
        raise CorruptBatch(f"impossible headers count {what}")
    if fault == HEADERS_MANY:
        raise OversizedBatch(f"a record has {what} headers, more than {other}")
    if fault == HEADER_KEY:
        raise CorruptBatch("a header's key is null")
    if fault == RECORD_END:
        raise CorruptBatch(f"a record ends at {what}, its length says {other}")
    raise CorruptBatch("records are cut")


cdef inline int finish(Parser* parser) except -1:
    if parser.fault != NO_FAULT:
        return refuse(parser)
    if parser.pos != parser.size:
        raise CorruptBatch(f"{parser.size - parser.pos} bytes after the last record")
    return 0


cdef inline object bytes_of(Field field):
    if field.size < 0:
        return None
    return PyBytes_FromStringAndSize(<const char*>field.data, field.size)


cdef inline bint same_headers(Parser* parser, Parsed* record, Py_ssize_t at, Py_ssize_t size):
    """Whether a record's headers are the same bytes as those of the one before it."""
    cdef Py_ssize_t own = parser.pos - record.headers_at
    return size == own and memcmp(parser.data + at, parser.data + record.headers_at, own) == 0


cdef tuple headers_of(Parser parser, Parsed* record):
    cdef list headers = []
    cdef Field key = NULL_FIELD, value = NULL_FIELD
    cdef int64_t index
    parser.pos = record.headers_at
    for index in range(record.headers_count):
        if not read_header(&parser, &key, &value):
            refuse(&parser)
        name = PyUnicode_DecodeUTF8(<const char*>key.data, key.size, "replace")
        headers.append((name, bytes_of(value)))
    return tuple(headers)


@final
cdef class Decoder:
    cdef object _payload
    cdef Parser _parser
    cdef object _topic
    cdef object _partition
    cdef object _timestamp_type
    cdef int64_t _from_offset
    cdef int64_t _left

    def __cinit__(self, payload, header, topic, partition, int64_t from_offset):
        cdef Py_buffer view
        self._payload = payload
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            start(&self._parser, &view, header)
        finally:
            PyBuffer_Release(&view)
        self._topic, self._partition = topic, partition
        self._timestamp_type = header.timestamp_type
        self._from_offset = from_offset
        self._left = header.records_count

    def take(self, Py_ssize_t size):
        # The buffer is held only during this call: the garbage collector cannot clear it otherwise.
        cdef Py_buffer view
        PyObject_GetBuffer(self._payload, &view, PyBUF_SIMPLE)
        try:
            self._parser.data, self._parser.size = <const uint8_t*>view.buf, view.len
            return self._take(size)
        finally:
            PyBuffer_Release(&view)

    cdef list _take(self, Py_ssize_t size):
        cdef Parsed parsed
        cdef object record
        cdef PyTypeObject* kind = <PyTypeObject*>ConsumerRecord
        cdef list records = []
        cdef tuple headers = ()
        cdef Py_ssize_t headers_at = 0, headers_size = 0, headers_count = 0
        cdef Py_ssize_t begin = self._parser.pos
        while self._left > 0 and (self._parser.pos - begin < size or not records):
            if not read_record(&self._parser, &parsed):
                break
            self._left -= 1
            if parsed.offset < self._from_offset:
                continue
            record = new_tuple(kind, 8)
            put(record, 0, self._topic)
            put(record, 1, self._partition)
            put(record, 2, parsed.offset)
            put(record, 3, parsed.timestamp)
            put(record, 4, bytes_of(parsed.key))
            put(record, 5, bytes_of(parsed.value))
            if not parsed.headers_count:
                put(record, 6, ())
            else:
                if headers_count != parsed.headers_count or not same_headers(
                    &self._parser, &parsed, headers_at, headers_size
                ):
                    headers = headers_of(self._parser, &parsed)
                    headers_at, headers_size = parsed.headers_at, self._parser.pos - parsed.headers_at
                    headers_count = parsed.headers_count
                put(record, 6, headers)
            put(record, 7, self._timestamp_type)
            PyObject_GC_UnTrack(<void*>record)  # a record is in no cycle, and there may be millions
            records.append(record)
        if self._left <= 0 or self._parser.fault != NO_FAULT:
            finish(&self._parser)
        return records
