# A producer's lock with a fast path. The twin of pure/append_lock.py.


cdef class BatchSlot:
    cdef readonly object _batch
    cdef readonly Py_ssize_t _index

    def __cinit__(self, batch, Py_ssize_t index):
        self._batch = batch
        self._index = index


@final
cdef class AppendLock:
    # `add` calls no Python code before it is done with the batch, so no other thread runs meanwhile
    # and it needs no lock. It only checks that no thread holds the lock.
    cdef readonly dict batches
    cdef object _lock
    cdef object _make
    cdef Py_ssize_t _limit
    cdef Py_ssize_t _overhead
    cdef bint _is_held

    def __init__(self, lock, Py_ssize_t limit, Py_ssize_t overhead, make):
        self.batches = {}
        self._limit = limit
        self._overhead = overhead
        self._make = make
        self.renew(lock)

    def renew(self, lock):
        self._lock = lock
        self._is_held = False
        self.batches.clear()

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

    def add(self, topic, value, callback=None):
        cdef Py_ssize_t size, index
        cdef list values, callbacks
        if self._is_held or type(topic) is not str or type(value) is not bytes:
            return None
        batch = self.batches.get(topic)
        if batch is None or not batch.is_quick:
            return None
        size = batch.size + PyBytes_GET_SIZE(value) + self._overhead
        if size > self._limit:
            return None
        values = batch.values
        batch.size = size
        index = len(values)
        values.append(value)
        if callback is not None:
            callbacks = batch.callbacks
            while len(callbacks) < index:  # building a list of them might start the garbage collector
                callbacks.append(None)
            callbacks.append(callback)
        return self._make(batch, index)
