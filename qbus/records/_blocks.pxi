"""Whether compressed records contain a name, without keeping what they decompress to.

What they decompress to is written to a piece of memory that stays in the processor's cache, of
which the last 64 KiB are kept for matches to copy, and searched there. The first name is never
within one match, since the source of that would have it, too: long matches are not searched.

Whatever is malformed, too large, or made otherwise than clients make it, may contain the name: the
libraries say what is wrong. Checksums are not computed: a batch has one of its own.
"""

from libc.stdlib cimport malloc
from libc.string cimport memcpy, memmove, memset

cdef extern from *:
    """
    static const uint8_t XERIAL_MAGIC[] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0};

    static CYTHON_INLINE uint32_t le32(const uint8_t* at) {
        return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    }

    static CYTHON_INLINE uint64_t le64(const uint8_t* at) {
        return le32(at) | (uint64_t)le32(at + 4) << 32;
    }

    static CYTHON_INLINE uint32_t turned32(uint32_t number, int bits) {
        return number << bits | number >> (32 - bits);
    }

    typedef uint8_t Bytes __attribute__((vector_size(32)));
    typedef uint64_t Words __attribute__((vector_size(32)));

    /* glibc chooses the form for the processor when the library is loaded. */
    #if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
    #define FOR_EACH_PROCESSOR __attribute__((target_clones("avx2", "default")))
    #else
    #define FOR_EACH_PROCESSOR
    #endif

    /* Where one byte and then the other are first, beginning before end; NULL: nowhere.
       Reads up to 80 bytes beyond. */
    FOR_EACH_PROCESSOR static const uint8_t* find_pair(
        const uint8_t* at, const uint8_t* end, uint8_t one, uint8_t other
    ) {
        const Bytes ones = (Bytes){0} + one, others = (Bytes){0} + other;
        for (; at < end; at += 64) {
            Bytes found = {0}, here, next;
            for (int part = 0; part < 64; part += 32) {
                memcpy(&here, at + part, 32);
                memcpy(&next, at + part + 1, 32);
                found |= (Bytes)((here == ones) & (next == others));
            }
            Words words = (Words)found;
            if (words[0] | words[1] | words[2] | words[3])
                for (int number = 0; number < 64 && at + number < end; number++)
                    if (at[number] == one && at[number + 1] == other)
                        return at + number;
        }
        return 0;
    }

    /* xxHash, 32 bits, of less than 16 bytes: Y. Collet, the specification of version 0.1.1 */
    static uint32_t short_xxh32(const uint8_t* at, int size) {
        uint32_t sum = 374761393u + (uint32_t)size;
        for (; size >= 4; at += 4, size -= 4)
            sum = turned32(sum + le32(at) * 3266489917u, 17) * 668265263u;
        for (; size > 0; at++, size--)
            sum = turned32(sum + *at * 374761393u, 11) * 2654435761u;
        sum = (sum ^ sum >> 15) * 2246822519u;
        sum = (sum ^ sum >> 13) * 3266489917u;
        return sum ^ sum >> 16;
    }
    """
    const uint8_t* XERIAL_MAGIC
    const uint8_t* find_pair(
        const uint8_t* at, const uint8_t* end, uint8_t one, uint8_t other
    ) noexcept
    uint32_t le32(const uint8_t* at) noexcept
    uint64_t le64(const uint8_t* at) noexcept
    uint32_t short_xxh32(const uint8_t* at, int size) noexcept

cdef enum:
    WINDOW = 65536      # how far back matches reach, and the most that is copied at once
    ROOM = 4 * WINDOW   # what is written until the window is moved back to the start
    STEP = 16           # short copies write that much, and so up to 15 bytes beyond their end
    CAPACITY = ROOM + 3 * WINDOW + 128
    LONG_MATCH = 128    # which costs more to search than to pass over
    LONGEST_NAME = 64
    SHORT = 512         # more than a short sequence takes, and more than it writes
    GUESSES = 4096      # how often what begins like the name may be something else

    LZ4_MAGIC = 0x184D2204
    LZ4_SMALLEST = 11   # a frame: a header of 7 bytes, an end of 4
    LZ4_KNOWN = 0x7C    # flags: no dictionary, nothing that is not defined
    LZ4_VERSION = 0x40
    LZ4_INDEPENDENT = 0x20
    LZ4_BLOCK_SUMS = 0x10
    LZ4_SIZE = 0x08
    LZ4_SUM = 0x04
    LZ4_UNKNOWN_SIZES = 0x8F  # bits of the other byte
    LZ4_SIZE_OF_64K = 4
    LZ4_LEAST_MATCH = 4

    XERIAL_MAGIC_SIZE = 8
    XERIAL_HEADER = 16


cdef struct Output:
    uint8_t* start
    uint8_t* oldest     # from here on matches may copy
    uint8_t* at         # the end of what was written
    uint8_t* searched   # no name ends before this
    int64_t left        # how many bytes may be written still
    int64_t guesses
    const uint8_t* name
    Py_ssize_t length   # of the name


cdef uint8_t* memory = NULL  # for one at a time, which holds the GIL


cdef bint begin(Output* out, const uint8_t* name, Py_ssize_t length, int64_t limit) noexcept:
    """Whether the name can be looked for. ``limit``: bytes that there may be, decompressed."""
    global memory
    if not 2 <= length <= LONGEST_NAME:
        return False
    if memory == NULL:
        memory = <uint8_t*>malloc(CAPACITY)
        if memory == NULL:
            return False
    out.start = out.oldest = out.at = out.searched = memory
    out.left = limit
    out.guesses = GUESSES
    out.name = name
    out.length = length
    return True


cdef bint lacks(Output* out, const uint8_t* end) noexcept:
    """Whether no name ends between ``searched`` and ``end``."""
    cdef const uint8_t* at = out.start
    cdef const uint8_t* last = end - (out.length - 1)  # a name begins before that
    if out.searched - at >= out.length:
        at = out.searched - (out.length - 1)
    while at < last:
        at = find_pair(at, last, out.name[0], out.name[1])
        if at == NULL:
            return True
        out.guesses -= 1
        if memcmp(at, out.name, out.length) == 0 or out.guesses < 0:
            return False
        at += 1
    return True


cdef bint move_back(Output* out) noexcept:
    """Search what was written; keep what matches may copy, and what a name may begin with."""
    cdef Py_ssize_t kept
    if not lacks(out, out.at):
        return False
    kept = max(min(out.at - out.oldest, WINDOW), min(out.at - out.start, out.length - 1))
    out.oldest = out.start + max(out.oldest - (out.at - kept), 0)
    memmove(out.start, out.at - kept, kept)
    out.at = out.searched = out.start + kept
    return True


cdef inline bint has_room(Output* out) noexcept:
    """Have room for a window of literals and a match. False: the name was found."""
    return out.at - out.start <= ROOM or move_back(out)


cdef bint take_literals(Output* out, const uint8_t* source, Py_ssize_t size) noexcept:
    """Write bytes where there is room. False: there are too many, or the name was found."""
    out.left -= size
    if out.left < 0:
        return False
    while size > WINDOW:
        memcpy(out.at, source, WINDOW)
        out.at += WINDOW
        source += WINDOW
        size -= WINDOW
        if not has_room(out):
            return False
    memcpy(out.at, source, size)
    out.at += size
    return True


cdef inline bint take_match(Output* out, Py_ssize_t offset, Py_ssize_t size) noexcept:
    """Write again what was written ``offset`` before. False: as by :func:`take_literals`."""
    cdef uint8_t* at = out.at
    cdef uint8_t* end
    cdef Py_ssize_t number, distance = offset
    if offset < 1 or offset > at - out.oldest:
        return False
    out.left -= size
    if out.left < 0:
        return False
    if size > WINDOW:  # fewer turns of what repeats itself leave the same window
        size -= (size - WINDOW) // offset * offset
    end = at + size
    out.at = end
    if offset == 1:
        memset(at, (at - 1)[0], size)
    elif size >= LONG_MATCH:
        while at < end:  # at each turn there is twice as much to copy
            number = min(end - at, at - (end - size) + offset)
            memcpy(at, end - size - offset, number)
            at += number
    else:
        if offset < STEP:  # some turns before is the same, and far enough for a step
            distance = (STEP + offset - 1) // offset * offset
            for number in range(min(size, distance - offset)):
                at[0] = (at - offset)[0]
                at += 1
        while at < end:
            memcpy(at, at - distance, STEP)
            at += STEP
    if size >= LONG_MATCH:
        if not lacks(out, end - size + out.length - 1):
            return False
        out.searched = end
    return True


# LZ4, the frame and the block format of github.com/lz4/lz4/doc.

cdef bint lz4_lacks(Output* out, const uint8_t* at, Py_ssize_t size) noexcept:
    """Whether ``size`` bytes are one whole frame, without the name."""
    cdef const uint8_t* end = at + size
    cdef const uint8_t* descriptor = at + 4
    cdef uint8_t flags
    cdef int64_t limit = out.left, most
    if size < LZ4_SMALLEST or le32(at) != LZ4_MAGIC:
        return False
    flags = descriptor[0]
    if flags & ~LZ4_KNOWN or not flags & LZ4_VERSION or descriptor[1] & LZ4_UNKNOWN_SIZES:
        return False
    if descriptor[1] >> 4 < LZ4_SIZE_OF_64K:
        return False
    most = <int64_t>1 << (8 + 2 * (descriptor[1] >> 4))
    at += 6
    if flags & LZ4_SIZE:
        at += 8
        if size < LZ4_SMALLEST + 8:
            return False
    if at[0] != <uint8_t>(short_xxh32(descriptor, at - descriptor) >> 8):
        return False
    at += 1
    at = lz4_blocks_lack(out, at, end, flags, most)
    if at == NULL or at + (4 if flags & LZ4_SUM else 0) != end:
        return False
    if flags & LZ4_SIZE and le64(descriptor + 2) != <uint64_t>(limit - out.left):
        return False
    return lacks(out, out.at)


cdef const uint8_t* lz4_blocks_lack(
    Output* out, const uint8_t* at, const uint8_t* end, uint8_t flags, int64_t most
) noexcept:
    """Where the blocks of a frame end, each of ``most`` bytes, NULL where they may have the name."""
    cdef uint32_t size
    cdef int64_t limit
    cdef int sums = 4 if flags & LZ4_BLOCK_SUMS else 0
    while end - at >= 4:
        size = le32(at)
        at += 4
        if size == 0:
            return at
        if flags & LZ4_INDEPENDENT:
            out.oldest = out.at
            if not move_back(out):
                return NULL
        if (size & 0x7FFFFFFF) > most or (size & 0x7FFFFFFF) + sums > end - at:
            return NULL
        limit = out.left
        out.left = min(limit, most)
        limit -= out.left
        if size >> 31:  # stored as it is
            size &= 0x7FFFFFFF
            if not has_room(out) or not take_literals(out, at, size):
                return NULL
        elif not lz4_block_lacks(out, at, at + size):
            return NULL
        out.left += limit
        at += size + sums
    return NULL


cdef bint lz4_block_lacks(Output* out, const uint8_t* at, const uint8_t* end) noexcept:
    """Whether one block is whole and without the name, so far as that was searched for."""
    cdef uint8_t token
    cdef Py_ssize_t literals, offset, size
    while at < end and has_room(out):
        if end - at >= SHORT:
            at = lz4_short_sequences(out, at, end - SHORT)
        token = at[0]
        at += 1
        literals = token >> 4
        if literals == 15 and not lz4_length(&at, end, &literals):
            return False
        if literals <= STEP and end - at >= STEP and out.left >= STEP:
            memcpy(out.at, at, STEP)
            out.at += literals
            out.left -= literals
        elif literals > end - at or not take_literals(out, at, literals):
            return False
        at += literals
        if at == end:
            return True
        if end - at < 2:
            return False
        offset = at[0] | at[1] << 8
        at += 2
        size = token & 15
        if size == 15 and not lz4_length(&at, end, &size):
            return False
        if not take_match(out, offset, size + LZ4_LEAST_MATCH):
            return False
    return False


cdef const uint8_t* lz4_short_sequences(
    Output* out, const uint8_t* at, const uint8_t* last
) noexcept:
    """Take what nearly all sequences of texts are; where the first is that is left, or ``last``.

    Those are short, and copy what lies far enough before for a step.
    """
    cdef uint8_t* to = out.at
    cdef const uint8_t* end = to + min(out.left, ROOM - (to - out.start)) - SHORT
    cdef const uint8_t* oldest = out.oldest
    cdef const uint8_t* source
    cdef const uint8_t* next
    cdef Py_ssize_t literals, size, number
    while at <= last and to <= end:
        literals = at[0] >> 4
        size = (at[0] & 15) + LZ4_LEAST_MATCH
        next = at + 1
        if literals == 15:
            if next[0] == 255:
                break
            literals += next[0]
            next += 1
        memcpy(to, next, STEP)
        number = STEP
        while number < literals:
            memcpy(to + number, next + number, STEP)
            number += STEP
        next += literals + 2
        source = to + literals - ((next - 2)[0] | (next - 1)[0] << 8)
        if source < oldest or source + STEP > to + literals:
            break
        if size == 15 + LZ4_LEAST_MATCH:
            size += next[0]
            next += 1
            if size >= LONG_MATCH:
                break
        to += literals
        memcpy(to, source, STEP)
        number = STEP
        while number < size:
            memcpy(to + number, source + number, STEP)
            number += STEP
        to += size
        at = next
    out.left -= to - out.at
    out.at = to
    return at


cdef inline bint lz4_length(const uint8_t** at, const uint8_t* end, Py_ssize_t* length) noexcept:
    """Add the bytes behind a length of 15, up to the first that is not 255."""
    cdef uint8_t byte
    while at[0] < end:
        byte = at[0][0]
        at[0] += 1
        length[0] += byte
        if byte != 255:
            return True
    return False


# Snappy: github.com/google/snappy/format_description.txt, raw or in the framing of snappy-java.

cdef bint snappy_lacks(Output* out, const uint8_t* at, Py_ssize_t size) noexcept:
    """Whether ``size`` bytes are whole blocks without the name."""
    cdef const uint8_t* end = at + size
    if size < XERIAL_HEADER or memcmp(at, XERIAL_MAGIC, XERIAL_MAGIC_SIZE) != 0:
        return snappy_block_lacks(out, at, end) and lacks(out, out.at)
    at += XERIAL_HEADER
    while at < end:
        if end - at < 4:
            return False
        size = be32(at)
        at += 4
        if size < 1 or size > end - at:
            return False
        out.oldest = out.at
        if not move_back(out) or not snappy_block_lacks(out, at, at + size):
            return False
        at += size
    return lacks(out, out.at)


cdef bint snappy_block_lacks(Output* out, const uint8_t* at, const uint8_t* end) noexcept:
    """Whether one block is whole and without the name, so far as that was searched for."""
    cdef Py_ssize_t size, offset, extra
    cdef uint8_t tag
    cdef int64_t stated, limit
    if not snappy_size(&at, end, &stated) or stated > out.left:
        return False
    limit = out.left - stated
    out.left = stated
    while at < end:
        if not has_room(out):
            return False
        tag = at[0]
        at += 1
        size = (tag >> 2) + 1
        if tag & 3 == 0:
            if size > 60:
                extra = size - 60
                if extra > end - at:
                    return False
                size = snappy_number(at, extra) + 1
                at += extra
            if size <= STEP and end - at >= STEP and out.left >= STEP:
                memcpy(out.at, at, STEP)
                out.at += size
                out.left -= size
            elif size > end - at or not take_literals(out, at, size):
                return False
            at += size
            continue
        extra = 4 if tag & 3 == 3 else tag & 3
        if extra > end - at:
            return False
        offset = snappy_number(at, extra)
        at += extra
        if extra == 1:
            offset |= <Py_ssize_t>(tag >> 5) << 8
            size = (tag >> 2 & 7) + 4
        if not take_match(out, offset, size):
            return False
    stated = out.left
    out.left = limit
    return stated == 0


cdef inline Py_ssize_t snappy_number(const uint8_t* at, Py_ssize_t size) noexcept:
    """A number of one to four bytes, the lowest first."""
    cdef Py_ssize_t number = 0, place
    for place in range(size):
        number |= <Py_ssize_t>at[place] << (8 * place)
    return number


cdef bint snappy_size(const uint8_t** at, const uint8_t* end, int64_t* size) noexcept:
    """Read how many bytes a block says that it holds, at most 32 bits in groups of seven."""
    cdef int shift = 0
    cdef uint8_t byte
    size[0] = 0
    while at[0] < end and shift < 35:
        byte = at[0][0]
        at[0] += 1
        size[0] |= <int64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return size[0] <= 0xFFFFFFFF
        shift += 7
    return False
