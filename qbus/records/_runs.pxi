# The items of runs: one after another for `async for`, and those that are held for a time.

cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_ERROR
        PYGEN_RETURN
        PYGEN_NEXT
    PyObject* PyIter_Next(object iterator) except? NULL
    PySendResult PyIter_Send(object iterator, object value, PyObject** result) except PYGEN_ERROR

cdef extern from *:
    """
    static void set_am_send(void* kind, void* function) {
        ((PyTypeObject*)kind)->tp_as_async->am_send = (sendfunc)function;
    }
    """
    void set_am_send(void* kind, void* function) noexcept


@final
cdef class AsyncRuns:
    cdef object _more
    cdef object _close
    cdef object _run

    def __init__(self, more, close=None):
        self._more = more
        self._close = close
        self._run = iter(())

    def __aiter__(self):
        return self

    def __anext__(self):
        cdef NextItem item = NextItem.__new__(NextItem)
        item.runs = self
        return item

    async def wait(self):
        """Return the first item of the next run that has one."""
        while (run := await self._more()) is not None:
            self._run = run
            for item in run:
                return item
        raise StopAsyncIteration

    async def aclose(self):
        """Close the source and end the iteration, as an asynchronous generator does."""
        if self._close is not None:
            await self._close()
        self._more = _no_more
        self._run = iter(())


async def _no_more():
    return None


@final
@freelist(8)
cdef class NextItem:
    """The awaitable of an item, which takes it when it is awaited.

    An item that is there already costs no exception: that is what ``am_send`` is for.
    """

    cdef AsyncRuns runs
    cdef object waiting

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        cdef PyObject* result = NULL
        cdef PySendResult outcome = send_to(self, value, &result)
        sent = <object>result
        Py_DECREF(sent)
        if outcome == PYGEN_RETURN:
            raise StopIteration(sent)
        return sent

    def throw(self, *error):
        if self.waiting is None:
            self.runs = None
            raise error[0]
        return self.waiting.throw(*error)

    def close(self):
        self.runs = None
        if self.waiting is not None:
            self.waiting.close()


cdef PySendResult send_to(NextItem self, object value, PyObject** result) except PYGEN_ERROR:
    cdef PySendResult outcome
    if self.runs is None:
        raise RuntimeError("cannot await the same item twice")
    if self.waiting is None:
        result[0] = PyIter_Next(self.runs._run)
        if result[0] is not NULL:
            self.runs = None
            return PYGEN_RETURN
        self.waiting = self.runs.wait().__await__()
    outcome = PyIter_Send(self.waiting, value, result)
    if outcome == PYGEN_RETURN:
        self.runs = None
    return outcome


set_am_send(<void*>NextItem, <void*>send_to)


@final
cdef class HeldItems:
    # The twin of pure/runs.py.
    cdef public bint is_quick
    cdef object _rest
    cdef object _more
    cdef double _until

    def __init__(self, rest, double until, more):
        self.is_quick = False
        self._rest = rest
        self._until = until
        self._more = more

    def __iter__(self):
        return self

    def __next__(self):
        cdef PyObject* item
        if self.is_quick and <double>monotonic() < self._until:
            item = PyIter_Next(self._rest)
            if item is not NULL:
                found = <object>item
                Py_DECREF(found)
                return found
        return self._more()


def with_item(list records, kind, item):
    """Return ``records``, which are tuples, as a ``kind`` of tuple that has ``item`` behind theirs."""
    cdef list found = []
    cdef Py_ssize_t index, size
    cdef object record, made
    if not (isinstance(kind, type) and issubclass(kind, tuple)):
        raise TypeError("only tuples are made")
    for record in records:
        if not isinstance(record, tuple):
            raise TypeError("only tuples have items")
        size = PyTuple_GET_SIZE(record)
        made = new_tuple(<PyTypeObject*>kind, size + 1)
        for index in range(size):
            put(made, index, <object>PyTuple_GET_ITEM(record, index))
        put(made, size, item)
        PyObject_GC_UnTrack(<void*>made)  # as those of the decoder
        found.append(made)
    return found
