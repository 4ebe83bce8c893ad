# A producer's lock with a fast path. The twin of pure/append_lock.py.


cdef class BatchSlot:
    cdef readonly object _batch
    cdef readonly Py_ssize_t _index

    def __init__(self, batch, Py_ssize_t index):
        self._batch = batch
        self._index = index


cdef class BatchLists:
    cdef public list values
    cdef public list keys
    cdef public list headers
    cdef public list timestamps
    cdef public list callbacks
    cdef public Py_ssize_t size
    cdef public bint is_quick
    cdef public bint is_movable

    def __init__(self):
        self.values = []
        self.callbacks = []


@final
cdef class OpenBatches:
    cdef public BatchLists sticky
    cdef readonly list by_partition
    cdef readonly bint is_by_key

    def __init__(self, Py_ssize_t partitions, bint is_by_key):
        self.by_partition = [None] * partitions
        self.is_by_key = is_by_key


@final
cdef class AppendLock:
    # `add` calls no Python code before it is done with the batch, so no other thread runs meanwhile
    # and it needs no lock. It only checks that no thread holds the lock. It creates no object either
    # that the garbage collector counts: a collection runs Python code.
    cdef readonly dict topics
    cdef public Py_ssize_t buffered
    cdef object _lock
    cdef object _make
    cdef Py_ssize_t _batch_limit
    cdef Py_ssize_t _buffer_limit
    cdef Py_ssize_t _overhead
    cdef Vector _scratch
    cdef bint _is_held

    def __init__(
        self, lock, Py_ssize_t batch_limit, Py_ssize_t buffer_limit, Py_ssize_t overhead, make
    ):
        self.topics = {}
        self._scratch = Vector()
        self._batch_limit = batch_limit
        self._buffer_limit = buffer_limit
        self._overhead = overhead
        if not issubclass(make, BatchSlot):
            raise TypeError("only slots are made")
        self._make = make
        self.renew(lock)

    def renew(self, lock):
        self._lock = lock
        self._is_held = False
        self.topics.clear()

    def acquire(self, blocking=True, timeout=-1):
        cdef bint is_held = self._lock.acquire(blocking, timeout)
        if is_held:
            self._is_held = True
        return is_held

    def release(self):
        self._is_held = False
        self._lock.release()

    def __enter__(self):
        self._lock.acquire()
        self._is_held = True
        return True

    def __exit__(self, *_):
        self.release()

    def add(
        self,
        topic,
        value,
        key=None,
        headers=None,
        partition=None,
        timestamp=None,
        callback=None,
    ):
        cdef Py_ssize_t size, index
        cdef BatchLists batch
        cdef BatchSlot slot
        if self._is_held or self.buffered >= self._buffer_limit:
            return None
        if not (is_plain(value) and is_plain(key) and is_plain_timestamp(timestamp)):
            return None
        batch = self.batch_of(topic, key, partition)
        if batch is None or not batch.is_quick:
            return None
        size = self._overhead + plain_size(value) + plain_size(key)
        if headers is not None:
            index = plain_headers_size(headers, self._overhead)
            if index < 0:
                return None
            size += index
            if not PySequence_Fast_GET_SIZE(headers):
                headers = None
        if batch.size + size > self._batch_limit:
            return None
        if (
            (key is not None and batch.keys is None)
            or (headers is not None and batch.headers is None)
            or (timestamp is not None and batch.timestamps is None)
        ):
            return None
        if headers is not None and put_plain_headers(headers, self._scratch):
            headers = encoded_headers(self._scratch)
        index = append_record(batch, value, key, headers, timestamp)
        batch.size += size
        self.buffered += size
        if partition is not None or key is not None:
            batch.is_movable = False
        if callback is not None:
            while len(batch.callbacks) < index:
                batch.callbacks.append(None)
            batch.callbacks.append(callback)
        slot = BatchSlot.__new__(<type>self._make)
        slot._batch = batch
        slot._index = index
        return slot

    cdef BatchLists batch_of(self, object topic, object key, object partition):
        cdef OpenBatches opened
        cdef Py_ssize_t index
        cdef int overflow = 0
        cdef Field field
        if type(topic) is not str:
            return None
        opened = self.topics.get(topic)
        if opened is None:
            return None
        if partition is not None:
            if type(partition) is not int:
                return None
            index = PyLong_AsLongLongAndOverflow(partition, &overflow)
            if overflow:
                return None
        elif not opened.is_by_key:
            return None
        elif key is None:
            return opened.sticky
        elif not opened.by_partition:
            return None
        else:
            field.data = <const uint8_t*>PyBytes_AS_STRING(key)
            field.size = PyBytes_GET_SIZE(key)
            index = partition_of(field, <int32_t>len(opened.by_partition))
        if not 0 <= index < len(opened.by_partition):
            return None
        return opened.by_partition[index]


cdef inline bint is_plain(object item) noexcept:
    return item is None or type(item) is bytes


cdef inline Py_ssize_t plain_size(object item) noexcept:
    return 0 if item is None else PyBytes_GET_SIZE(item)


cdef inline bint is_plain_timestamp(object timestamp) except -1:
    cdef int overflow = 0
    if timestamp is None:
        return True
    if type(timestamp) is not int:
        return False
    return PyLong_AsLongLongAndOverflow(timestamp, &overflow) >= -1 and not overflow


cdef inline Py_ssize_t plain_headers_size(object headers, Py_ssize_t overhead) except? -2:
    """Return the size of headers of the plainest types; -1 for others."""
    cdef Py_ssize_t size = 0, row
    cdef object pair
    if type(headers) is not list and type(headers) is not tuple:
        return -1
    for row in range(PySequence_Fast_GET_SIZE(headers)):
        pair = <object>PySequence_Fast_GET_ITEM(headers, row)
        if not is_plain_header(pair):
            return -1
        size += overhead + PyUnicode_GET_LENGTH(<object>PyTuple_GET_ITEM(pair, 0))
        size += plain_size(<object>PyTuple_GET_ITEM(pair, 1))
    return size


cdef inline bint is_plain_header(object pair) noexcept:
    cdef object name
    if type(pair) is not tuple or PyTuple_GET_SIZE(pair) != 2:
        return False
    name = <object>PyTuple_GET_ITEM(pair, 0)
    # Only ASCII is encoded without an error and without a copy.
    return (
        type(name) is str
        and PyUnicode_IS_COMPACT_ASCII(name)
        and is_plain(<object>PyTuple_GET_ITEM(pair, 1))
    )


cdef inline Py_ssize_t append_record(
    BatchLists batch, object value, object key, object headers, object timestamp
) except -1:
    """Append a record for whose parts the batch has lists; return its index."""
    cdef Py_ssize_t index = len(batch.values)
    if batch.keys is not None:
        batch.keys.append(key)
    if batch.headers is not None:
        batch.headers.append(headers)
    if batch.timestamps is not None:
        batch.timestamps.append(timestamp)
    batch.values.append(value)
    return index
