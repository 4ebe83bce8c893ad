# Arrow's buffers to records.

@final
cdef class Column:
    """A column; holds its buffers as long as it lives."""

    cdef Py_buffer validity
    cdef Py_buffer offsets
    cdef Py_buffer data
    cdef bint has_validity
    cdef bint has_offsets
    cdef Py_ssize_t width
    cdef Py_ssize_t first
    cdef int64_t begin
    cdef int64_t end
    cdef int64_t limit

    def __cinit__(self, validity, offsets, Py_ssize_t width, data, Py_ssize_t first):
        self.width, self.first = width, first
        PyObject_GetBuffer(data, &self.data, PyBUF_SIMPLE)
        self.limit = self.data.len
        if validity is not None:
            PyObject_GetBuffer(validity, &self.validity, PyBUF_SIMPLE)
            self.has_validity = True
        if offsets is not None:
            PyObject_GetBuffer(offsets, &self.offsets, PyBUF_SIMPLE)
            self.has_offsets = True

    def __dealloc__(self):
        PyBuffer_Release(&self.data)
        PyBuffer_Release(&self.validity)
        PyBuffer_Release(&self.offsets)

    cdef int check(self, Py_ssize_t length) except -1:
        """Raise ValueError unless the buffers hold ``length`` rows."""
        cdef Py_ssize_t end = self.first + length
        if length < 0 or self.first < 0 or self.width < 0:
            raise ValueError("a column's size is negative")
        if self.has_validity and 8 * self.validity.len < end:
            raise ValueError("a column's validity is cut")
        if self.has_offsets and self.width != 4 and self.width != 8:
            raise ValueError("a column's offsets are of 4 or 8 bytes")
        if self.has_offsets and end and self.offsets.len // self.width <= end:
            raise ValueError("a column's offsets are cut")
        if not self.has_offsets and self.width and self.limit // self.width < end:
            raise ValueError("a column's values are cut")
        return 0

    cdef inline bint is_valid(self, Py_ssize_t row) noexcept:
        cdef Py_ssize_t index = self.first + row
        if not self.has_validity:
            return True
        return (<const uint8_t*>self.validity.buf)[index >> 3] >> (index & 7) & 1

    cdef inline int find(self, Py_ssize_t row) except -1:
        """Set ``begin`` and ``end`` to the position of the row."""
        cdef Py_ssize_t index = self.first + row
        cdef int32_t pair[2]
        cdef int64_t wide[2]
        if not self.has_offsets:
            self.begin, self.end = index * self.width, (index + 1) * self.width
        elif self.width == 4:
            memcpy(pair, <const char*>self.offsets.buf + 4 * index, 8)
            self.begin, self.end = pair[0], pair[1]
        else:
            memcpy(wide, <const char*>self.offsets.buf + 8 * index, 16)
            self.begin, self.end = wide[0], wide[1]
        if not 0 <= self.begin <= self.end <= self.limit:
            raise ValueError(
                f"impossible offsets {self.begin} to {self.end} of {self.limit}"
            )
        return 0

    cdef inline int get(self, Py_ssize_t row, Field* field) except -1:
        if not self.is_valid(row):
            field[0] = NULL_FIELD
            return 0
        self.find(row)
        field.data = <const uint8_t*>self.data.buf + self.begin
        field.size = self.end - self.begin
        return 0


cdef Column column_of(object values, Py_ssize_t length):
    if values is None:
        return None
    cdef Column column = Column(*values)
    column.check(length)
    return column


@final
cdef class Rows:
    """Rows of columns of the same length, which become records."""

    cdef readonly Py_ssize_t length
    cdef Column value
    cdef Column key
    cdef Column lists
    cdef Column header_key
    cdef Column header_value
    cdef Column timestamp

    def __cinit__(self, Py_ssize_t length, value, key, headers, timestamp):
        self.length = length
        self.value = column_of(value, length)
        self.key = column_of(key, length)
        self.timestamp = column_of(timestamp, length)
        if self.timestamp is not None and (self.timestamp.has_offsets or self.timestamp.width != 8):
            raise ValueError("timestamps are of 8 bytes")
        if headers is not None:
            self.lists = Column(
                headers.validity, headers.offsets, headers.width, b"", headers.start
            )
            self.lists.check(length)
            self.lists.limit = headers.pairs
            self.header_key = column_of(headers.key, headers.pairs)
            self.header_value = column_of(headers.value, headers.pairs)

    def encode(
        self, bytearray batch, Py_ssize_t begin, Py_ssize_t stop, int64_t first_delta, base_timestamp
    ):
        """Append rows to ``batch``, numbered from ``first_delta``; return the latest timestamp."""
        cdef Py_ssize_t row
        cdef int64_t base = base_timestamp, delta, latest = 0
        cdef Field key = NULL_FIELD, value, header = NO_HEADERS
        cdef Writer writer = Writer(batch)
        cdef Vector scratch = Vector()
        if not 0 <= begin <= stop <= self.length:
            raise IndexError(f"rows {begin} to {stop} of {self.length}")
        try:
            for row in range(begin, stop):
                delta = self.timestamp_delta(row, base)
                latest = delta if row == begin or delta > latest else latest
                if self.key is not None:
                    self.key.get(row, &key)
                self.value.get(row, &value)
                if self.lists is not None:
                    self.put_headers(row, scratch)
                    header.data, header.size = <const uint8_t*>scratch.memory, scratch.size
                writer.add(delta, first_delta + row - begin, key, value, header)
        finally:
            writer.close()
        return base_timestamp + latest

    def fit(self, Py_ssize_t begin, int64_t room):
        """Return the row up to which rows fit ``room`` bytes, and the room that is left."""
        cdef Py_ssize_t row
        cdef int64_t size
        cdef Field field
        cdef Vector scratch = Vector()
        if begin < 0:
            raise IndexError(f"rows {begin} to {self.length} of {self.length}")
        for row in range(begin, self.length):
            self.value.get(row, &field)
            size = MAX_FIXED + max(field.size, 0)
            if self.key is not None:
                self.key.get(row, &field)
                size += max(field.size, 0)
            if self.lists is not None:
                self.put_headers(row, scratch)
                size += scratch.size
            if size > room:
                return row, 0
            room -= size
        return self.length, room

    def partitions(self, count):
        """Return the partition of each row's key, or -1 for a null key."""
        cdef int32_t partitions = check_count(count)
        cdef Field key = NULL_FIELD
        cdef Py_ssize_t row
        found = array("i", bytes(4 * self.length))
        cdef int[::1] view = found
        for row in range(self.length):
            if self.key is not None:
                self.key.get(row, &key)
            view[row] = partition_of(key, partitions)
        return found

    cdef inline int64_t timestamp_delta(self, Py_ssize_t row, int64_t base) except? -1:
        cdef Field field
        cdef int64_t number, delta
        if self.timestamp is None:
            return 0
        self.timestamp.get(row, &field)
        if field.size < 0:
            return 0
        memcpy(&number, field.data, 8)
        if __builtin_sub_overflow(number, base, &delta):
            return timestamp_delta(number, base, row)
        return delta

    cdef int put_headers(self, Py_ssize_t row, Vector scratch) except -1:
        """Encode the row's headers into ``scratch``."""
        cdef int64_t begin, end, index
        cdef Field key, value
        cdef uint8_t* at
        scratch.size = 0
        if not self.lists.is_valid(row):
            scratch.append(NO_HEADERS.data, 1)
            return 0
        self.lists.find(row)
        begin, end = self.lists.begin, self.lists.end
        scratch.size = put_varint(<uint8_t*>scratch.memory, end - begin) - <uint8_t*>scratch.memory
        for index in range(begin, end):
            self.header_key.get(index, &key)
            self.header_value.get(index, &value)
            if key.size < 0:
                raise ValueError(f"a header's key is null in row {row}")
            if not scratch.reserve(key.size + max(value.size, 0) + OVERHEAD):
                raise MemoryError
            at = put_field(<uint8_t*>scratch.memory + scratch.size, key)
            scratch.size = put_field(at, value) - <uint8_t*>scratch.memory
        return 0
