# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
"""The commonest requests and answers in C; ``lean.py`` says what they are.

Raw memory is read only within the bounds of the frame, which every step checks.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from qbus._big_endian cimport be32, be64, put16, put32, put64, put_uvarint

REVISION = 5  # see lean.py

cdef enum:
    PRODUCE = 0
    FETCH = 1
    OFFSET_COMMIT = 8
    END_TXN = 26
    UUID = 16
    FIRST_FLEXIBLE_PRODUCE = 9
    FIRST_FLEXIBLE_FETCH = 12
    FIRST_FLEXIBLE_COMMIT = 8
    FIRST_FLEXIBLE_END = 3
    FIRST_WITH_TOPIC_IDS = 13   # of produce and fetch
    FIRST_COMMIT_WITH_TOPIC_IDS = 10
    FIRST_WITHOUT_REPLICA_ID = 15
    ANSWER = 128  # more than an answer has besides its topic
    POSITION = 16  # of a commit: the bytes of partition, offset and leader epoch
    PARTITION = 4
    MAX_STRING = 0x7FFF
    MAX_UNSORTED = 0xFFFF  # the largest partition in a list that is not in order
    MAX_ITEMS = 100000  # of all arrays of a request together; the general way refuses more


# Reading: from a cursor that stops, for good, at the first thing that is not there or not plain.

cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end
    bint is_plain
    int64_t room  # for items of arrays


cdef inline bint has(Cursor* cursor, int64_t size) noexcept nogil:
    if not cursor.is_plain or size < 0 or cursor.end - cursor.at < size:
        cursor.is_plain = False
    return cursor.is_plain


cdef inline int32_t int8(Cursor* cursor) noexcept nogil:
    cdef const uint8_t* at = cursor.at
    if not has(cursor, 1):
        return 0
    cursor.at += 1
    return <int8_t>at[0]


cdef inline int32_t int16(Cursor* cursor) noexcept nogil:
    cdef const uint8_t* at = cursor.at
    if not has(cursor, 2):
        return 0
    cursor.at += 2
    return <int16_t>(<uint16_t>at[0] << 8 | at[1])


cdef inline int32_t int32(Cursor* cursor) noexcept nogil:
    if not has(cursor, 4):
        return 0
    cursor.at += 4
    return <int32_t>be32(cursor.at - 4)


cdef inline int64_t int64(Cursor* cursor) noexcept nogil:
    if not has(cursor, 8):
        return 0
    cursor.at += 8
    return <int64_t>be64(cursor.at - 8)


cdef inline int64_t uvarint(Cursor* cursor) noexcept nogil:
    """An unsigned varint of at most 32 bits."""
    cdef uint64_t number = 0
    cdef uint8_t byte
    cdef int shift
    for shift in range(0, 35, 7):
        if not has(cursor, 1):
            return 0
        byte = cursor.at[0]
        cursor.at += 1
        number |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            if number > 0x7FFFFFFF:
                break
            return <int64_t>number
    cursor.is_plain = False
    return 0


cdef inline void expect(Cursor* cursor, uint8_t byte) noexcept nogil:
    if has(cursor, 1):
        cursor.is_plain = cursor.at[0] == byte
        cursor.at += 1


cdef inline const uint8_t* ascii(Cursor* cursor, int64_t size) noexcept nogil:
    """The text that begins here; where it is not ASCII, nothing is plain."""
    cdef int64_t index
    cdef uint8_t seen = 0
    cdef const uint8_t* begin = cursor.at
    if not has(cursor, size):
        return begin
    for index in range(size):
        seen |= begin[index]
    cursor.at += size
    cursor.is_plain = seen < 0x80
    return begin


cdef inline bint begin_request(Cursor* cursor, int first_flexible) noexcept nogil:
    """Pass by the client id and the tags of a header of version 2, from behind the version."""
    cdef int32_t size = int16(cursor)
    if size > 0:
        ascii(cursor, size)
    elif size < -1:
        cursor.is_plain = False
    expect(cursor, 0)
    return cursor.is_plain


cdef object topic_key(Cursor* cursor, int version):
    cdef int64_t size
    cdef const uint8_t* begin
    if version >= FIRST_WITH_TOPIC_IDS:
        if not has(cursor, UUID):
            return None
        cursor.at += UUID
        return PyBytes_FromStringAndSize(<char*>cursor.at - UUID, UUID)
    size = uvarint(cursor) - 1
    if not 1 <= size <= MAX_STRING:
        cursor.is_plain = False
        return None
    begin = ascii(cursor, size)
    if not cursor.is_plain:
        return None
    return PyUnicode_DecodeASCII(<char*>begin, size, NULL)


def has_at(frame, Py_ssize_t position, bytes expected not None):
    cdef Py_buffer view
    cdef Py_ssize_t size = PyBytes_GET_SIZE(expected)
    cdef bint found
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    found = (
        0 <= position <= view.len - size
        and memcmp(<const char*>view.buf + position, PyBytes_AS_STRING(expected), size) == 0
    )
    PyBuffer_Release(&view)
    return found


cdef object text(Cursor* cursor, bint may_be_null):
    cdef int64_t size = uvarint(cursor) - 1
    cdef const uint8_t* begin
    if not cursor.is_plain or size > MAX_STRING or (size < 0 and not may_be_null):
        cursor.is_plain = False
        return None
    if size < 0:
        return None
    begin = ascii(cursor, size)
    if not cursor.is_plain:
        return None
    return PyUnicode_DecodeASCII(<char*>begin, size, NULL)


cdef inline int64_t items(Cursor* cursor) noexcept nogil:
    """The number of items of an array that has some."""
    cdef int64_t count = uvarint(cursor) - 1
    if not 1 <= count <= cursor.room:
        cursor.is_plain = False
        return 0
    cursor.room -= count
    return count


def read_produce(frame, int max_version):
    cdef Py_buffer view
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        return plain_produce(frame, <const uint8_t*>view.buf, view.len, max_version, False)
    finally:
        PyBuffer_Release(&view)


def read_transactional(frame, int max_version):
    cdef Py_buffer view
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        return plain_produce(frame, <const uint8_t*>view.buf, view.len, max_version, True)
    finally:
        PyBuffer_Release(&view)


cdef object plain_produce(
    frame, const uint8_t* data, Py_ssize_t size, int max_version, bint is_transactional
):
    cdef Cursor cursor = Cursor(data, data + size, True, MAX_ITEMS)
    cdef int32_t key = int16(&cursor), version = int16(&cursor), correlation_id = int32(&cursor)
    cdef int32_t acks, index
    cdef int32_t timeout_ms
    cdef int64_t length
    cdef Py_ssize_t begin
    if key != PRODUCE or not FIRST_FLEXIBLE_PRODUCE <= version <= max_version:
        return None
    begin_request(&cursor, FIRST_FLEXIBLE_PRODUCE)
    transactional_id = None
    if is_transactional:
        transactional_id = text(&cursor, False)
    else:
        expect(&cursor, 0)  # no transactional id
    acks = int16(&cursor)
    timeout_ms = int32(&cursor)
    expect(&cursor, 2)  # one topic
    topic = topic_key(&cursor, version)
    expect(&cursor, 2)  # one partition
    index = int32(&cursor)
    length = uvarint(&cursor) - 1
    if length <= 0 or not has(&cursor, length):
        return None
    begin = cursor.at - data
    cursor.at += length
    expect(&cursor, 0)  # no tags: of the partition, the topic, the request
    expect(&cursor, 0)
    expect(&cursor, 0)
    if not cursor.is_plain or cursor.at != cursor.end:
        return None
    batch = frame[begin : begin + length]
    if is_transactional:
        return version, correlation_id, acks, timeout_ms, topic, index, batch, transactional_id
    return version, correlation_id, acks, timeout_ms, topic, index, batch


def read_fetch(frame, int max_version):
    cdef Py_buffer view
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        return plain_fetch(<const uint8_t*>view.buf, view.len, max_version)
    finally:
        PyBuffer_Release(&view)


cdef object plain_fetch(const uint8_t* data, Py_ssize_t size, int max_version):
    cdef Cursor cursor = Cursor(data, data + size, True, MAX_ITEMS)
    cdef int32_t key = int16(&cursor), version = int16(&cursor), correlation_id = int32(&cursor)
    cdef int32_t min_bytes, max_bytes, isolation_level, index, leader_epoch, partition_max_bytes
    cdef int32_t session_epoch
    cdef int64_t offset
    if key != FETCH or not FIRST_FLEXIBLE_FETCH <= version <= max_version:
        return None
    begin_request(&cursor, FIRST_FLEXIBLE_FETCH)
    if version < FIRST_WITHOUT_REPLICA_ID and int32(&cursor) != -1:
        return None
    int32(&cursor)  # how long to wait: there is no wait here
    min_bytes = int32(&cursor)
    max_bytes = int32(&cursor)
    isolation_level = int8(&cursor)
    int32(&cursor)  # the session's id
    session_epoch = int32(&cursor)
    if session_epoch not in (-1, 0):
        return None
    expect(&cursor, 2)  # one topic
    topic = topic_key(&cursor, version)
    expect(&cursor, 2)  # one partition
    index = int32(&cursor)
    leader_epoch = int32(&cursor)
    offset = int64(&cursor)
    int32(&cursor)  # the last epoch and
    int64(&cursor)  # the log's start are a follower's
    partition_max_bytes = int32(&cursor)
    expect(&cursor, 0)  # no tags: of the partition, the topic
    expect(&cursor, 0)
    expect(&cursor, 1)  # no forgotten topics
    expect(&cursor, 1)  # no rack
    expect(&cursor, 0)  # no tags
    if not cursor.is_plain or cursor.at != cursor.end:
        return None
    return (
        version,
        correlation_id,
        min_bytes,
        max_bytes,
        isolation_level == 1,
        topic,
        index,
        leader_epoch,
        offset,
        partition_max_bytes,
    )


def read_end(frame, int max_version):
    cdef Py_buffer view
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        return plain_end(<const uint8_t*>view.buf, view.len, max_version)
    finally:
        PyBuffer_Release(&view)


cdef object plain_end(const uint8_t* data, Py_ssize_t size, int max_version):
    cdef Cursor cursor = Cursor(data, data + size, True, MAX_ITEMS)
    cdef int32_t key = int16(&cursor), version = int16(&cursor), correlation_id = int32(&cursor)
    cdef int32_t epoch, is_commit
    cdef int64_t producer_id
    if key != END_TXN or not FIRST_FLEXIBLE_END <= version <= max_version:
        return None
    begin_request(&cursor, FIRST_FLEXIBLE_END)
    transactional_id = text(&cursor, False)
    producer_id = int64(&cursor)
    epoch = int16(&cursor)
    is_commit = int8(&cursor)
    expect(&cursor, 0)  # no tags
    if not cursor.is_plain or cursor.at != cursor.end:
        return None
    return version, correlation_id, transactional_id, producer_id, epoch, is_commit != 0


def read_commit(frame, int max_version):
    cdef Py_buffer view
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        return plain_commit(<const uint8_t*>view.buf, view.len, max_version)
    finally:
        PyBuffer_Release(&view)


cdef object plain_commit(const uint8_t* data, Py_ssize_t size, int max_version):
    cdef Cursor cursor = Cursor(data, data + size, True, MAX_ITEMS)
    cdef int32_t key = int16(&cursor), version = int16(&cursor), correlation_id = int32(&cursor)
    cdef int32_t generation
    cdef int64_t count
    cdef bytes answer
    cdef uint8_t* begin
    cdef uint8_t* at
    if key != OFFSET_COMMIT or not FIRST_FLEXIBLE_COMMIT <= version <= max_version:
        return None
    begin_request(&cursor, FIRST_FLEXIBLE_COMMIT)
    group = text(&cursor, False)
    generation = int32(&cursor)
    member = text(&cursor, False)
    instance = text(&cursor, True)
    count = items(&cursor)
    if not cursor.is_plain:
        return None
    # An answer has of each topic, and of each partition, less than its request.
    answer = PyBytes_FromStringAndSize(NULL, ANSWER + size)
    begin = <uint8_t*>PyBytes_AS_STRING(answer)
    at = put32(begin + 4, correlation_id)
    at[0] = 0  # no tags in the header
    at = put32(at + 1, 0)  # no throttling
    at = put_uvarint(at, <uint32_t>count + 1)
    topics = []
    for _ in range(count):
        at = committed_topic(&cursor, at, version, topics)
        if not cursor.is_plain:
            return None
    expect(&cursor, 0)  # no tags
    if not cursor.is_plain or cursor.at != cursor.end:
        return None
    at[0] = 0
    put32(begin, <int32_t>(at + 1 - begin) - 4)
    return (
        version,
        correlation_id,
        group,
        generation,
        member,
        instance,
        topics,
        answer[: at + 1 - begin],
    )


cdef uint8_t* committed_topic(Cursor* cursor, uint8_t* at, int version, list topics) except NULL:
    """Read a topic of a commit, and write what answers that all of it is stored."""
    cdef const uint8_t* begin = cursor.at
    cdef const uint8_t* position
    cdef Cursor ahead
    cdef int64_t count, size, texts = 0
    cdef int64_t before = -1
    cdef bint is_sorted = True
    cdef uint32_t partition, last = 0
    cdef int32_t longest = 0
    cdef bytes packed
    cdef uint8_t* to
    topic = topic_key(
        cursor, FIRST_WITH_TOPIC_IDS if version >= FIRST_COMMIT_WITH_TOPIC_IDS else 0
    )
    if not cursor.is_plain:
        return at
    memcpy(at, begin, cursor.at - begin)
    at += cursor.at - begin
    count = items(cursor)
    at = put_uvarint(at, <uint32_t>count + 1)
    ahead = cursor[0]
    for _ in range(count):
        position = ahead.at
        texts += pass_position(&ahead)
        if not ahead.is_plain:
            cursor.is_plain = False
            return at
        partition = be32(position)
        is_sorted = is_sorted and partition > before
        before = partition
        last = max(last, partition)
    if not is_sorted and has_twice(cursor[0], count, last):
        cursor.is_plain = False
        return at
    packed = PyBytes_FromStringAndSize(NULL, count * (POSITION + 2) + texts)
    to = <uint8_t*>PyBytes_AS_STRING(packed)
    for _ in range(count):
        position = cursor.at
        size = pass_position(cursor)
        memcpy(to, position, POSITION)
        to = put16(to + POSITION, <int32_t>size)
        memcpy(to, cursor.at - 1 - size, size)
        to += size
        longest = max(longest, <int32_t>size)
        memcpy(at, position, PARTITION)
        at = put16(at + PARTITION, 0)  # no error
        at[0] = 0
        at += 1
    expect(cursor, 0)
    topics.append((topic, packed, count, last, longest))
    at[0] = 0
    return at + 1


cdef bint has_twice(Cursor ahead, int64_t count, uint32_t last) except -1:
    """Whether a partition comes more than once in the next positions, or may.

    Their form is checked already; ``last`` is the largest partition.
    """
    cdef uint8_t* seen
    cdef uint8_t bit
    cdef uint32_t partition
    cdef bint found = False
    if last > MAX_UNSORTED:
        return True
    seen = <uint8_t*>PyMem_Calloc(last // 8 + 1, 1)
    if seen == NULL:
        raise MemoryError
    for _ in range(count):
        partition = be32(ahead.at)
        pass_position(&ahead)
        bit = 1 << (partition & 7)
        found = found or (seen[partition >> 3] & bit) != 0
        seen[partition >> 3] |= bit
    PyMem_Free(seen)
    return found


cdef inline int64_t pass_position(Cursor* cursor) noexcept nogil:
    """Pass by a position of a commit; the size of its metadata, which its one last byte follows."""
    cdef int64_t size
    if not has(cursor, POSITION):
        return 0
    cursor.at += POSITION
    size = max(uvarint(cursor) - 1, 0)  # it may be null
    if size > MAX_STRING:
        cursor.is_plain = False
        return 0
    ascii(cursor, size)
    expect(cursor, 0)  # no tags
    return size


# Writing: to memory that is large enough, but for the topic's name where it says so.

cdef inline uint8_t* put_topic(uint8_t* at, bytes topic, int version) noexcept:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(topic)
    if version < FIRST_WITH_TOPIC_IDS:
        at = put_uvarint(at, <uint32_t>size + 1)
    memcpy(at, PyBytes_AS_STRING(topic), size)
    return at + size


cdef bytes as_bytes(topic):
    return <bytes>topic if isinstance(topic, bytes) else (<str>topic).encode("ascii")


def produced(
    int version,
    int32_t correlation_id,
    topic,
    int32_t index,
    int error_code,
    int64_t base_offset,
    int64_t log_append_time_ms,
    int64_t log_start_offset,
):
    cdef bytes name = as_bytes(topic)
    cdef bytes made = PyBytes_FromStringAndSize(NULL, ANSWER + PyBytes_GET_SIZE(name))
    cdef uint8_t* begin = <uint8_t*>PyBytes_AS_STRING(made)
    cdef uint8_t* at = put32(begin + 4, correlation_id)
    at[0] = 0  # no tags in the header
    at[1] = 2  # one topic
    at = put_topic(at + 2, name, version)
    at[0] = 2  # one partition
    at = put32(at + 1, index)
    at = put16(at, error_code)
    at = put64(at, base_offset)
    at = put64(at, log_append_time_ms)
    at = put64(at, log_start_offset)
    at[0] = 1  # no record is to blame
    at[1] = 0  # no message
    at[2] = 0  # no tags: of the partition, the topic
    at[3] = 0
    at = put32(at + 4, 0)  # no throttling
    at[0] = 0
    put32(begin, <int32_t>(at + 1 - begin) - 4)
    return made[: at + 1 - begin]


def fetched(
    int version,
    int32_t correlation_id,
    topic,
    int32_t index,
    int64_t high_watermark,
    int64_t last_stable_offset,
    int64_t log_start_offset,
    bint is_committed,
    int32_t size,
    int32_t trailer,
):
    cdef bytes name = as_bytes(topic)
    cdef bytes made = PyBytes_FromStringAndSize(NULL, ANSWER + PyBytes_GET_SIZE(name))
    cdef uint8_t* begin = <uint8_t*>PyBytes_AS_STRING(made)
    cdef uint8_t* at = put32(begin + 4, correlation_id)
    at[0] = 0  # no tags in the header
    at = put32(at + 1, 0)  # no throttling
    at = put16(at, 0)  # no error
    at = put32(at, 0)  # no session
    at[0] = 2  # one topic
    at = put_topic(at + 1, name, version)
    at[0] = 2  # one partition
    at = put32(at + 1, index)
    at = put16(at, 0)
    at = put64(at, high_watermark)
    at = put64(at, last_stable_offset)
    at = put64(at, log_start_offset)
    at[0] = 1 if is_committed else 0  # no aborted transactions, or null
    at = put32(at + 1, -1)  # no nearer replica
    at = put_uvarint(at, <uint32_t>size + 1)
    put32(begin, <int32_t>(at - begin) - 4 + size + trailer)
    return made[: at - begin]
