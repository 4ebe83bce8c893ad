# Records to the buffers of Arrow columns.

cdef int64_t MAX_BYTES = 0x7FFFFFFF


@final
cdef class Vector:
    """Memory that grows. Python sees it as a read-only buffer, and it does not change meanwhile."""

    cdef char* memory
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef Py_ssize_t exports
    cdef bint is_growing

    def __cinit__(self):
        if not self.reserve(64):
            raise MemoryError

    def __dealloc__(self):
        free(self.memory)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        if self.is_growing:
            raise BufferError("columns are being appended to")
        PyBuffer_FillInfo(buffer, self, self.memory, self.size, 1, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer* buffer):
        self.exports -= 1

    cdef inline bint reserve(self, Py_ssize_t size) noexcept nogil:
        if size <= self.capacity - self.size:
            return True
        return self.grow(size)

    cdef bint grow(self, Py_ssize_t size) noexcept nogil:
        cdef Py_ssize_t capacity = max(2 * self.capacity, self.size + size)
        cdef void* memory = realloc(self.memory, capacity)
        if memory == NULL:
            return False
        self.memory = <char*>memory
        self.capacity = capacity
        return True

    cdef inline bint append(self, const void* data, Py_ssize_t size) noexcept nogil:
        if not self.reserve(size):
            return False
        memcpy(self.memory + self.size, data, size)
        self.size += size
        return True

    # Callers of these methods have reserved room.

    cdef inline void push_bit(self, Py_ssize_t index, bint bit) noexcept nogil:
        if not index & 7:
            self.memory[index >> 3] = 0
            self.size += 1
        self.memory[index >> 3] |= <char>(bit << (index & 7))

    cdef void push_bits(self, Py_ssize_t index, Py_ssize_t count, bint bit) noexcept nogil:
        """Push ``count`` equal bits."""
        cdef Py_ssize_t end = index + count
        while index < end and index & 7:
            self.push_bit(index, bit)
            index += 1
        memset(self.memory + self.size, -bit, (end - index) >> 3)
        self.size += (end - index) >> 3
        index += (end - index) & ~7
        while index < end:
            self.push_bit(index, bit)
            index += 1

    cdef inline void push(self, const void* data, Py_ssize_t size) noexcept nogil:
        memcpy(self.memory + self.size, data, size)
        self.size += size


@final
cdef class BytesColumn:
    """Nullable values of variable length: their validity bits, their end offsets, their bytes."""

    cdef readonly Vector validity
    cdef readonly Vector offsets
    cdef readonly Vector data
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t null_count

    def __cinit__(self):
        cdef int32_t zero = 0
        self.validity, self.offsets, self.data = Vector(), Vector(), Vector()
        self.offsets.append(&zero, 4)

    cdef inline bint reserve(self, Py_ssize_t rows) noexcept nogil:
        return self.validity.reserve(rows // 8 + 1) and self.offsets.reserve(4 * rows)

    cdef bint add(self, const Field* fields, Py_ssize_t count) noexcept nogil:
        """Add values; only ``data`` still needs room. Returns False if memory ran out."""
        cdef int32_t* end = <int32_t*>(self.offsets.memory + self.offsets.size)
        cdef int64_t size = 0
        cdef Py_ssize_t index, nulls = 0
        for index in range(count):
            if fields[index].size < 0:
                nulls += 1
            else:
                size += fields[index].size
            end[index] = <int32_t>(self.data.size + size)
        if not self.data.reserve(size):
            return False
        cdef char* to = self.data.memory + self.data.size
        for index in range(count):
            if fields[index].size > 0:
                memcpy(to, fields[index].data, fields[index].size)
                to += fields[index].size
        self.data.size += size
        self.offsets.size += 4 * count
        if nulls and nulls != count:
            for index in range(count):
                self.validity.push_bit(self.rows + index, fields[index].size >= 0)
        else:
            self.validity.push_bits(self.rows, count, not nulls)
        self.null_count += nulls
        self.rows += count
        return True

    cdef bint is_shared(self):
        return self.validity.exports + self.offsets.exports + self.data.exports > 0

    cdef void cut(self, Py_ssize_t rows, Py_ssize_t null_count) noexcept:
        """Keep the first ``rows`` rows, which have ``null_count`` nulls."""
        self.rows = rows
        self.null_count = null_count
        self.offsets.size = 4 * (rows + 1)
        self.data.size = (<int32_t*>self.offsets.memory)[rows]
        self.validity.size = (rows + 7) >> 3
        if rows & 7:
            self.validity.memory[rows >> 3] &= <char>((1 << (rows & 7)) - 1)

    cdef Py_ssize_t nbytes(self):
        return self.validity.size + self.offsets.size + self.data.size


cdef enum:
    RUN = 64

cdef struct Run:
    # Parsed records that are not in the columns yet.
    Py_ssize_t count
    int64_t[RUN] offsets
    int64_t[RUN] timestamps
    Field[RUN] keys
    Field[RUN] values
    int64_t[RUN] headers_counts
    Py_ssize_t[RUN] headers_at


cdef inline int64_t read_run(
    Parser* parser, Run* run, int64_t count, int64_t from_offset
) noexcept nogil:
    """Read ``count`` records and keep those from ``from_offset`` on; return ``count``."""
    cdef Parsed record
    cdef int64_t index
    cdef Py_ssize_t at = 0
    for index in range(count):
        if not read_record(parser, &record):
            break
        if record.offset < from_offset:
            continue
        run.offsets[at] = record.offset
        run.timestamps[at] = record.timestamp
        run.keys[at] = record.key
        run.values[at] = record.value
        run.headers_counts[at] = record.headers_count
        run.headers_at[at] = record.headers_at
        at += 1
    run.count = at
    return count


@final
cdef class ColumnsBuffers:
    """The columns of records, without those that are constant for a partition."""

    cdef readonly Py_ssize_t rows
    cdef readonly BytesColumn key
    cdef readonly BytesColumn value
    cdef readonly Vector header_offsets
    cdef readonly BytesColumn header_key
    cdef readonly BytesColumn header_value
    cdef readonly Vector offset
    cdef readonly Vector timestamp
    cdef readonly Vector timestamp_type
    cdef bint is_busy

    def __cinit__(self):
        cdef int32_t zero = 0
        self.key, self.value = BytesColumn(), BytesColumn()
        self.header_key, self.header_value = BytesColumn(), BytesColumn()
        self.header_offsets, self.offset = Vector(), Vector()
        self.timestamp, self.timestamp_type = Vector(), Vector()
        self.header_offsets.append(&zero, 4)

    @property
    def nbytes(self):
        """Size of the columns in bytes."""
        cdef Py_ssize_t pairs = self.header_key.nbytes() + self.header_value.nbytes()
        return self.key.nbytes() + self.value.nbytes() + pairs + (
            self.header_offsets.size + 17 * self.rows
        )

    def extend(self, payload, header, int64_t from_offset):
        """Append the records of ``payload`` from ``from_offset`` on; return their number.

        Raises CorruptBatch, and OverflowError if the columns might exceed their limit; nothing is
        appended then.
        """
        cdef Py_buffer view
        cdef Parser parser
        cdef Py_ssize_t before = self.rows
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            self.check_unshared()
        except BufferError:
            PyBuffer_Release(&view)
            raise
        self.set_growing(True)  # other threads run while the GIL is released
        try:
            if self.longest() + view.len > MAX_BYTES:
                raise OverflowError(f"columns of more than {MAX_BYTES} bytes")
            start(&parser, &view, header)
            self.fill(&parser, header.records_count, header.timestamp_type, from_offset)
        finally:
            self.set_growing(False)
            PyBuffer_Release(&view)
        return self.rows - before

    def clear(self):
        """Drop the records, keep the memory. Raises BufferError while somebody has a view of it."""
        self.check_unshared()
        self.truncate(0, 0, 0, 0, 0)

    cdef void truncate(
        self, Py_ssize_t rows, Py_ssize_t keys, Py_ssize_t values, Py_ssize_t pairs,
        Py_ssize_t header_values
    ) noexcept:
        """Keep the first ``rows`` rows and ``pairs`` headers; the other counts are those of nulls."""
        self.key.cut(rows, keys)
        self.value.cut(rows, values)
        self.header_key.cut(pairs, 0)
        self.header_value.cut(pairs, header_values)
        self.header_offsets.size = 4 * (rows + 1)
        self.offset.size = self.timestamp.size = 8 * rows
        self.timestamp_type.size = self.rows = rows

    cdef int check_unshared(self) except -1:
        cdef Py_ssize_t exports = self.header_offsets.exports + self.offset.exports
        exports += self.timestamp.exports + self.timestamp_type.exports
        exports += self.key.is_shared() + self.value.is_shared()
        exports += self.header_key.is_shared() + self.header_value.is_shared()
        if exports or self.is_busy:
            raise BufferError("columns in use take no more records")
        return 0

    cdef void set_growing(self, bint is_growing) noexcept:
        cdef BytesColumn column
        cdef Vector vector
        self.is_busy = is_growing
        for column in (self.key, self.value, self.header_key, self.header_value):
            for vector in (column.validity, column.offsets, column.data):
                vector.is_growing = is_growing
        for vector in (self.header_offsets, self.offset, self.timestamp, self.timestamp_type):
            vector.is_growing = is_growing

    cdef Py_ssize_t longest(self):
        cdef Py_ssize_t headers = max(self.header_key.data.size, self.header_value.data.size)
        cdef Py_ssize_t columns = max(self.key.data.size, self.value.data.size)
        return max(max(headers, columns), self.header_key.rows)

    cdef int fill(
        self, Parser* parser, int64_t count, int8_t timestamp_type, int64_t from_offset
    ) except -1:
        cdef Py_ssize_t rows = self.rows, pairs = self.header_key.rows
        cdef Py_ssize_t keys = self.key.null_count, values = self.value.null_count
        cdef Py_ssize_t header_values = self.header_value.null_count
        cdef bint is_filled
        try:
            with nogil:
                is_filled = self.parse(parser, count, timestamp_type, from_offset)
            if not is_filled:
                raise MemoryError
            finish(parser)
        except BaseException:
            self.truncate(rows, keys, values, pairs, header_values)
            raise
        return 0

    cdef bint parse(
        self, Parser* parser, int64_t count, int8_t timestamp_type, int64_t from_offset
    ) noexcept nogil:
        """Return False if memory ran out."""
        cdef Run run
        if not self.reserve(min(count, parser.size // 7), parser.size):
            return False
        while count > 0 and parser.fault == NO_FAULT:
            count -= read_run(parser, &run, min(count, RUN), from_offset)
            if not (self.add(&run, timestamp_type) and self.add_headers(parser, &run)):
                return False
        return True

    cdef bint reserve(self, Py_ssize_t rows, Py_ssize_t size) noexcept nogil:
        """Make room for ``rows`` records, whose values rarely have more than ``size`` bytes."""
        return (
            self.value.data.reserve(size)
            and self.value.reserve(rows)
            and self.key.reserve(rows)
            and self.header_offsets.reserve(4 * rows)
            and self.offset.reserve(8 * rows)
            and self.timestamp.reserve(8 * rows)
            and self.timestamp_type.reserve(rows)
        )

    cdef inline bint add(self, const Run* run, int8_t timestamp_type) noexcept nogil:
        cdef Py_ssize_t count = run.count
        self.rows += count
        self.offset.push(run.offsets, 8 * count)
        self.timestamp.push(run.timestamps, 8 * count)
        memset(self.timestamp_type.memory + self.timestamp_type.size, timestamp_type, count)
        self.timestamp_type.size += count
        return self.key.add(run.keys, count) and self.value.add(run.values, count)

    cdef inline bint add_headers(self, Parser* at, const Run* run) noexcept nogil:
        cdef int32_t* end = <int32_t*>(self.header_offsets.memory + self.header_offsets.size)
        cdef Py_ssize_t index
        for index in range(run.count):
            if run.headers_counts[index] and not self.add_pairs(at[0], run, index):
                return False
            end[index] = <int32_t>self.header_key.rows
        self.header_offsets.size += 4 * run.count
        return True

    cdef bint add_pairs(self, Parser parser, const Run* run, Py_ssize_t index) noexcept nogil:
        cdef int64_t pair
        cdef Field key, value
        parser.pos = run.headers_at[index]
        for pair in range(run.headers_counts[index]):
            # They were checked before; if somebody writes to the memory meanwhile, headers end early.
            if not read_header(&parser, &key, &value):
                break
            if not (self.header_key.reserve(1) and self.header_value.reserve(1)):
                return False
            if not (self.header_key.add(&key, 1) and self.header_value.add(&value, 1)):
                return False
        return True
