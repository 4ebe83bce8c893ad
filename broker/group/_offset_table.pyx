# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
"""The compiled form of ``offset_table.py``, which says what it is.

Raw memory is read and written only within bounds that were checked before. Nothing is kept of a row
over a call that could run Python code, such as one that makes an object: another thread may read a
table meanwhile.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.ref cimport Py_XDECREF, Py_XINCREF, PyObject, PyTypeObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from cython cimport final
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy, memset

from qbus._big_endian cimport be32, be64, put16, put32, put64, put_uvarint
from qbus._tuples cimport new_tuple, put
from qbus.records._write cimport put_varint, varint_size

from .offsets import NO_TOPIC_ID, Offset

REVISION = 2  # see offset_table.py

cdef enum:
    HEAD = 18  # of a packed position: what comes before the metadata
    UUID = 16
    FIRST_ROWS = 4
    AROUND_RECORD = 48  # more than a record has besides key and value
    KEY_END = 4  # the partition
    CLASSIC = 3  # versions of values
    FLEXIBLE = 4
    AROUND_CLASSIC = 24  # what their values have besides metadata
    AROUND_FLEXIBLE = 41  # and besides the length of that
    MOST_TEXT = 0xFFFF

cdef object offset_type = Offset
cdef bytes no_topic_id = NO_TOPIC_ID


# Packed positions

cdef struct Position:
    int32_t partition
    int32_t leader_epoch
    int64_t offset
    const uint8_t* text
    Py_ssize_t size  # of the text


cdef inline const uint8_t* next_position(
    const uint8_t* at, const uint8_t* end, Position* position
) noexcept nogil:
    """Read the position at ``at``; what comes after it, or NULL: it is cut."""
    if end - at < HEAD:
        return NULL
    position.partition = <int32_t>be32(at)
    position.offset = <int64_t>be64(at + 4)
    position.leader_epoch = <int32_t>be32(at + 12)
    position.size = at[16] << 8 | at[17]
    at += HEAD
    if end - at < position.size:
        return NULL
    position.text = at
    return at + position.size


cdef inline str text_of(Position* position):
    if position.size == 0:
        return ""
    return PyUnicode_DecodeUTF8(<char*>position.text, position.size, NULL)


cdef Py_ssize_t check_packed(bytes packed, Py_ssize_t count) except -1:
    """The size of all their metadata. Raises ValueError unless there are so many positions."""
    cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(packed)
    cdef const uint8_t* end = at + PyBytes_GET_SIZE(packed)
    cdef Py_ssize_t left = count, texts = 0
    cdef Position position
    if count < 0:
        raise ValueError(f"there are no {count} positions")
    while left > 0:
        at = next_position(at, end, &position)
        if at == NULL:
            raise ValueError("positions are cut")
        texts += position.size
        left -= 1
    if at != end:
        raise ValueError("something follows the positions")
    return texts


def positions(bytes packed not None, Py_ssize_t count):
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef Position position
    cdef list found = []
    check_packed(packed, count)
    at = <const uint8_t*>PyBytes_AS_STRING(packed)
    end = at + PyBytes_GET_SIZE(packed)
    for _ in range(count):
        at = next_position(at, end, &position)
        if at == NULL:
            raise ValueError("positions are cut")
        text = text_of(&position)
        found.append((position.partition, position.offset, position.leader_epoch, text))
    return found


def add_records(
    bytearray batch not None,
    int64_t first,
    bytes prefix not None,
    bytes packed not None,
    Py_ssize_t count,
    int64_t committed_at,
    bytes topic_id not None,
):
    cdef Py_ssize_t texts = check_packed(packed, count), size = PyByteArray_GET_SIZE(batch)
    cdef Py_ssize_t length = PyBytes_GET_SIZE(prefix), room
    cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(packed)
    cdef const uint8_t* end = at + PyBytes_GET_SIZE(packed)
    cdef const uint8_t* name = <const uint8_t*>PyBytes_AS_STRING(prefix)
    cdef const uint8_t* identity = <const uint8_t*>PyBytes_AS_STRING(topic_id)
    cdef Position position
    cdef uint8_t* begin
    cdef uint8_t* to
    if PyBytes_GET_SIZE(topic_id) != UUID:
        raise ValueError("a topic's id has 16 bytes")
    if memcmp(identity, PyBytes_AS_STRING(no_topic_id), UUID) == 0:
        identity = NULL
    room = AROUND_RECORD + length + KEY_END + AROUND_FLEXIBLE
    PyByteArray_Resize(batch, size + texts + count * room)
    begin = <uint8_t*>PyByteArray_AS_STRING(batch)
    to = begin + size
    for _ in range(count):
        at = next_position(at, end, &position)
        if at == NULL:
            raise ValueError("positions are cut")
        to = put_record(to, first, name, length, &position, committed_at, identity)
        first += 1
    PyByteArray_Resize(batch, to - begin)


cdef inline uint8_t* put_record(
    uint8_t* to,
    int64_t delta,
    const uint8_t* prefix,
    Py_ssize_t length,
    Position* position,
    int64_t committed_at,
    const uint8_t* topic_id,
) noexcept nogil:
    """Write a record to where there is room for it; ``topic_id``: NULL for none."""
    cdef Py_ssize_t key = length + KEY_END, value = position.size
    if topic_id == NULL:
        value += AROUND_CLASSIC
    else:
        value += AROUND_FLEXIBLE + uvarint_size(<uint32_t>position.size + 1)
    to = put_varint(
        to, 3 + varint_size(delta) + varint_size(key) + key + varint_size(value) + value
    )
    to[0] = 0  # attributes
    to[1] = 0  # the time is that of the batch
    to = put_varint(put_varint(to + 2, delta), key)
    memcpy(to, prefix, length)
    to = put_varint(put32(to + length, <uint32_t>position.partition), value)
    to = put16(to, CLASSIC if topic_id == NULL else FLEXIBLE)
    to = put32(put64(to, position.offset), <uint32_t>position.leader_epoch)
    if topic_id == NULL:
        to = put16(to, <uint32_t>position.size)
    else:
        to = put_uvarint(to, <uint32_t>position.size + 1)
    memcpy(to, position.text, position.size)
    to = put64(to + position.size, committed_at)
    if topic_id != NULL:
        to[0] = 1  # one tagged field:
        to[1] = 0  # the topic's id
        to[2] = UUID
        memcpy(to + 3, topic_id, UUID)
        to += 3 + UUID
    to[0] = 0  # no headers
    return to + 1


cdef inline int uvarint_size(uint32_t number) noexcept nogil:
    return 1 if number < 1 << 7 else 2 if number < 1 << 14 else 3


# The table

cdef struct Row:
    int64_t offset
    int64_t committed_at
    int64_t expires_at
    PyObject* text  # owned; NULL: there is none
    PyObject* topic_id  # owned; NULL: there is none
    int32_t partition
    int32_t leader_epoch
    bint expires


@final
cdef class OffsetTable:
    cdef Row* rows
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef Py_ssize_t following  # the row that is likely to be asked for next
    cdef dict places  # the row of each partition
    cdef bint is_shared  # whether ``places`` is a copy's, too

    def __cinit__(self):
        self.places = {}

    def __dealloc__(self):
        cdef Py_ssize_t at
        for at in range(self.count):
            Py_XDECREF(self.rows[at].text)
            Py_XDECREF(self.rows[at].topic_id)
        PyMem_Free(self.rows)

    # Rows

    cdef Py_ssize_t find(self, int32_t partition) except -2:
        """The row of a partition, or -1."""
        cdef Py_ssize_t at = self.following
        if at >= self.count or self.rows[at].partition != partition:
            place = self.places.get(partition)
            if place is None:
                return -1
            at = place
            if at >= self.count or self.rows[at].partition != partition:
                return -1  # another thread is at it
        self.following = at + 1
        return at

    cdef int reserve(self, Py_ssize_t capacity) except -1:
        cdef Row* rows
        if capacity > self.capacity:
            rows = <Row*>PyMem_Realloc(self.rows, capacity * sizeof(Row))
            if rows == NULL:
                raise MemoryError
            self.rows = rows
            self.capacity = capacity
        return 0

    cdef int own_places(self) except -1:
        if self.is_shared:
            self.places = self.places.copy()
            self.is_shared = False
        return 0

    cdef int put_row(
        self,
        int32_t partition,
        int64_t offset,
        int32_t leader_epoch,
        str text,
        int64_t committed_at,
        object expires_at,
        bytes topic_id,
    ) except -1:
        """Set a partition's row, which is made if there is none."""
        cdef int64_t expiry = 0 if expires_at is None else expires_at
        cdef Py_ssize_t at = self.find(partition)
        cdef Row row
        cdef Row former
        row.offset = offset
        row.committed_at = committed_at
        row.expires_at = expiry
        row.expires = expires_at is not None
        row.partition = partition
        row.leader_epoch = leader_epoch
        row.text = <PyObject*>text if text else NULL
        row.topic_id = <PyObject*>topic_id if topic_id is not no_topic_id else NULL
        if at < 0:
            if self.count == self.capacity:
                self.reserve(max(FIRST_ROWS, 2 * self.capacity))
            self.own_places()
            self.places[partition] = self.count
            memset(&self.rows[self.count], 0, sizeof(Row))
            at = self.count
            self.count += 1
            self.following = self.count
        former = self.rows[at]
        Py_XINCREF(row.text)
        Py_XINCREF(row.topic_id)
        self.rows[at] = row
        Py_XDECREF(former.text)
        Py_XDECREF(former.topic_id)
        return 0

    cdef object offset_at(self, Py_ssize_t at):
        cdef Row row = self.rows[at]
        text = "" if row.text == NULL else <object>row.text  # held: the row may change from now on
        topic_id = no_topic_id if row.topic_id == NULL else <object>row.topic_id
        made = new_tuple(<PyTypeObject*>offset_type, 6)
        put(made, 0, row.offset)
        put(made, 1, row.leader_epoch)
        put(made, 2, text)
        put(made, 3, row.committed_at)
        put(made, 4, row.expires_at if row.expires else None)
        put(made, 5, topic_id)
        return made

    # As of a dict

    def __len__(self):
        return self.count

    def __contains__(self, int32_t partition):
        return self.find(partition) >= 0

    def __iter__(self):
        return iter(self.places)

    def __getitem__(self, int32_t partition):
        cdef Py_ssize_t at = self.find(partition)
        if at < 0:
            raise KeyError(partition)
        return self.offset_at(at)

    def __setitem__(self, int32_t partition, offset):
        position, leader_epoch, text, committed_at, expires_at, topic_id = offset
        self.put_row(partition, position, leader_epoch, text, committed_at, expires_at, topic_id)

    def __delitem__(self, int32_t partition):
        cdef Py_ssize_t at = self.find(partition), last = self.count - 1
        cdef Row former
        if at < 0:
            raise KeyError(partition)
        self.own_places()
        del self.places[partition]
        former = self.rows[at]
        if at != last:
            self.places[self.rows[last].partition] = at
            self.rows[at] = self.rows[last]
        self.count = last
        Py_XDECREF(former.text)
        Py_XDECREF(former.topic_id)

    def __eq__(self, other):
        if not hasattr(other, "items"):
            return NotImplemented
        return dict(self.items()) == dict(other.items())

    def __repr__(self):
        return repr(dict(self.items()))

    def get(self, int32_t partition, default=None):
        cdef Py_ssize_t at = self.find(partition)
        return default if at < 0 else self.offset_at(at)

    def pop(self, int32_t partition, default=None):
        cdef Py_ssize_t at = self.find(partition)
        if at < 0:
            return default
        found = self.offset_at(at)
        del self[partition]
        return found

    def keys(self):
        return self.places.keys()

    def values(self):
        return [offset for _, offset in self.items()]

    def items(self):
        cdef int32_t partition
        cdef Py_ssize_t at
        cdef list found = []
        for partition in list(self.places):
            at = self.find(partition)
            if at >= 0:
                found.append((partition, self.offset_at(at)))
        return found

    def copy(self):
        cdef OffsetTable made = OffsetTable()
        cdef Py_ssize_t at
        made.reserve(self.count)
        if self.count:
            memcpy(made.rows, self.rows, self.count * sizeof(Row))
        for at in range(self.count):
            Py_XINCREF(made.rows[at].text)
            Py_XINCREF(made.rows[at].topic_id)
        made.count = self.count
        made.places = self.places
        made.is_shared = self.is_shared = True
        return made

    def positions(self, indexes):
        cdef Py_ssize_t at
        cdef Row row
        cdef list found = []
        for index in indexes:
            at = self.find(index)
            if at < 0:
                found.append((index, -1, -1, ""))
                continue
            row = self.rows[at]
            text = "" if row.text == NULL else <object>row.text  # held, as above
            found.append((index, row.offset, row.leader_epoch, text))
        return found

    def store(
        self,
        bytes packed not None,
        Py_ssize_t count,
        int64_t committed_at,
        bytes topic_id not None,
    ):
        cdef const uint8_t* at
        cdef const uint8_t* end
        cdef Position position
        check_packed(packed, count)
        at = <const uint8_t*>PyBytes_AS_STRING(packed)
        end = at + PyBytes_GET_SIZE(packed)
        if topic_id == no_topic_id:
            topic_id = no_topic_id
        for _ in range(count):
            at = next_position(at, end, &position)
            if at == NULL:
                raise ValueError("positions are cut")
            self.put_row(
                position.partition,
                position.offset,
                position.leader_epoch,
                text_of(&position),
                committed_at,
                None,
                topic_id,
            )
