# Keys to partitions, and parallel lists to records. Lists may change while they are read.

cdef enum:
    MAX_FIXED = 40  # maximum size in bytes of a record without its key, value and headers

cdef Field NULL_FIELD = Field(NULL, -1)
cdef Field NO_HEADERS = Field(<const uint8_t*>b"\0", 1)


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


def murmur2(key):
    """Return the hash of ``key``, an unsigned 32-bit integer."""
    cdef bytes data = to_bytes(key, "key", 0)
    return murmur2_of(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef int32_t check_count(object count) except -1:
    if not 0 < count <= 0x7FFFFFFF:
        raise ValueError(f"impossible partitions count {count}")
    return count


cdef inline int32_t partition_of(Field key, int32_t count) noexcept nogil:
    if key.size < 0:
        return -1
    return <int32_t>((murmur2_of(key.data, key.size) & 0x7FFFFFFF) % <uint32_t>count)


def partition_for_keys(keys, count):
    """Return the partition (of ``count``) of each key as Kafka's Java client does; -1 for None."""
    cdef int32_t partitions = check_count(count)
    cdef Py_ssize_t index
    cdef Field field
    cdef object held
    cdef list found = []
    for index, key in enumerate(keys):
        held = take(key, "key", index, &field)
        found.append(partition_of(field, partitions))
    return found


cdef inline object take(object item, str what, Py_ssize_t index, Field* field):
    """Set ``field`` to the bytes of ``item``; return the object that owns these bytes."""
    if item is None:
        field[0] = NULL_FIELD
        return None
    if type(item) is not bytes:
        item = to_bytes(item, what, index)
    field.data = <const uint8_t*>PyBytes_AS_STRING(item)
    field.size = PyBytes_GET_SIZE(item)
    return item


cdef inline Py_ssize_t size_of(object item) except -1:
    if item is None:
        return 0
    if type(item) is bytes:
        return PyBytes_GET_SIZE(item)
    return len(item)


def are_bytes(items):
    """Whether all items can be keys or values."""
    cdef object fast = PySequence_Fast(items, "keys and values are a list"), item
    cdef Py_ssize_t index = 0
    while index < PySequence_Fast_GET_SIZE(fast):
        item = <object>PySequence_Fast_GET_ITEM(fast, index)
        if not (type(item) is bytes or item is None or type(item) in (bytearray, memoryview)):
            return False
        index += 1
    return True


def fit(values, keys, headers, Py_ssize_t start, Py_ssize_t room, Py_ssize_t overhead):
    """Return the row up to which records from ``start`` on fit ``room`` bytes, and their size."""
    cdef object fast = PySequence_Fast(values, "values are a list")
    cdef object fast_keys = None if keys is None else PySequence_Fast(keys, "keys are a list")
    cdef Py_ssize_t row = start, taken = 0, size
    cdef object value
    if start < 0:
        raise IndexError(f"row {start}")
    while row < PySequence_Fast_GET_SIZE(fast):
        value = <object>PySequence_Fast_GET_ITEM(fast, row)
        size = overhead + size_of(value)
        if fast_keys is not None:
            size += size_of(fast_keys[row])
        if headers is not None:
            size += size_of_headers(headers[row], overhead)
        if taken + size > room:
            break
        taken += size
        row += 1
    return row, taken


cdef Py_ssize_t size_of_headers(object headers, Py_ssize_t overhead) except -1:
    cdef Py_ssize_t size = 0
    if headers is not None:
        for name, data in headers:
            size += overhead + len(name) + size_of(data)
    return size


@final
cdef class Writer:
    """Appends records to a bytearray; ``close`` removes the unused room at its end."""

    cdef bytearray batch
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity

    def __cinit__(self, bytearray batch):
        self.batch = batch
        self.size = self.capacity = len(batch)

    cdef uint8_t* reserve(self, Py_ssize_t size) except NULL:
        """Return where the next ``size`` bytes go, and make room for them."""
        if size > self.capacity - self.size:
            self.capacity = max(2 * self.capacity, self.size + size)
            PyByteArray_Resize(self.batch, self.capacity)
        return <uint8_t*>PyByteArray_AS_STRING(self.batch) + self.size

    cdef int add(
        self, int64_t timestamp, int64_t offset, Field key, Field value, Field headers
    ) except -1:
        cdef Py_ssize_t size = OVERHEAD + headers.size
        size += (key.size if key.size > 0 else 0) + (value.size if value.size > 0 else 0)
        cdef uint8_t* at = self.reserve(size)
        self.size += put_record(at, timestamp, offset, key, value, headers) - at
        return 0

    cdef int close(self) except -1:
        PyByteArray_Resize(self.batch, self.size)
        return 0


cdef extern from *:
    bint __builtin_sub_overflow(int64_t, int64_t, int64_t*) noexcept nogil


cdef inline int64_t delta_of(object timestamp, int64_t base, Py_ssize_t index) except? -1:
    cdef int overflow = 0
    cdef int64_t delta
    if type(timestamp) is int:
        delta = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
        if not overflow and not __builtin_sub_overflow(delta, base, &delta):
            return delta
    return timestamp_delta(timestamp, base, index)


def encode_lists(values, keys, headers, timestamps, base_timestamp):
    """Return room for a header followed by the encoded records, and the largest timestamp."""
    cdef tuple all_values = tuple(values)
    cdef Py_ssize_t count = len(all_values), index
    cdef tuple all_keys = of_length(keys, count)
    cdef tuple all_headers = of_length(headers, count)
    cdef tuple all_timestamps = of_length(timestamps, count)
    cdef int64_t base = base_timestamp, delta = 0, latest = 0
    cdef Field key = NULL_FIELD, value, header
    cdef object held_key = None, held_value, held_header = None, item
    cdef Writer writer = Writer(bytearray(HEADER_SIZE))
    cdef Vector scratch = Vector()
    for index in range(count):
        if all_timestamps is not None:
            item = all_timestamps[index]
            delta = 0 if item is None else delta_of(item, base, index)
        latest = delta if index == 0 or delta > latest else latest
        if all_keys is not None:
            held_key = take(all_keys[index], "key", index, &key)
        held_value = take(all_values[index], "value", index, &value)
        header = NO_HEADERS
        if all_headers is not None and all_headers[index] is not None:
            item = all_headers[index]
            if type(item) is EncodedHeaders:
                take((<EncodedHeaders>item).data, "", index, &header)
            elif put_plain_headers(item, scratch):
                header.data, header.size = <const uint8_t*>scratch.memory, scratch.size
            else:
                held_header = take(encode_headers(item, index), "", index, &header)
        writer.add(delta, index, key, value, header)
    writer.close()
    return writer.batch, base_timestamp + latest


@final
cdef class EncodedHeaders:
    # In place of headers of the plainest types, which take three times as much memory. Nobody else
    # can make one: it is written as it is.
    cdef bytes data


cdef EncodedHeaders encoded_headers(Vector scratch):
    cdef EncodedHeaders made = EncodedHeaders.__new__(EncodedHeaders)
    made.data = PyBytes_FromStringAndSize(<const char*>scratch.memory, scratch.size)
    return made


cdef bint put_plain_headers(object headers, Vector scratch) except -1:
    """Encode headers into ``scratch`` if they are of the plainest types."""
    cdef Py_ssize_t row, count
    cdef object pair, data
    cdef Field name, value
    cdef uint8_t* at
    if type(headers) is not list and type(headers) is not tuple:
        return False
    count = PySequence_Fast_GET_SIZE(headers)
    scratch.size = 0
    if not scratch.reserve(OVERHEAD):
        raise MemoryError
    scratch.size = put_varint(<uint8_t*>scratch.memory, count) - <uint8_t*>scratch.memory
    for row in range(count):  # nothing here runs Python code, which could change the list
        pair = <object>PySequence_Fast_GET_ITEM(headers, row)
        if not is_plain_header(pair):
            return False
        name.data = PyUnicode_1BYTE_DATA(<object>PyTuple_GET_ITEM(pair, 0))
        name.size = PyUnicode_GET_LENGTH(<object>PyTuple_GET_ITEM(pair, 0))
        data = <object>PyTuple_GET_ITEM(pair, 1)
        value = NULL_FIELD
        if data is not None:
            value.data, value.size = <const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)
        if not scratch.reserve(name.size + max(value.size, 0) + OVERHEAD):
            raise MemoryError
        at = put_field(<uint8_t*>scratch.memory + scratch.size, name)
        scratch.size = put_field(at, value) - <uint8_t*>scratch.memory
    return True


cdef tuple of_length(object items, Py_ssize_t count):
    if items is None:
        return None
    items = tuple(items)
    if len(items) != count:
        raise ValueError("sequences are not of one length")
    return items
