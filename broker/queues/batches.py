"""The batches of a partition as its queues read them: in memory as long as they are worked through.

What was read lately is kept, up to a number of bytes for all partitions of the broker. Who takes
one record after the other so reads each batch once.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from types import ModuleType
from typing import Final, NamedTuple

from qbus.delay import TTL, parse_duration
from qbus.errors import ApiError, CorruptBatch, ErrorCode, OversizedBatch
from qbus.records import (
    HEADER_SIZE,
    BatchHeader,
    Buffer,
    ConsumerRecord,
    check_crc,
    iter_batches,
    read_header,
)
from qbus.records.bounds import MAX_RECORDS_SIZE
from qbus.records.decode import records_of
from qbus.records.header import CODEC_BITS, LENGTH_PREFIX, write_header
from qbus.records.plain import record_positions
from qbus.records.record import Headers

from ..log import Log
from .ranges import RangeMap

_MOST_BYTES: Final = 64 << 20
_READ_BYTES: Final = 256 << 10
_LEAST_READ_BYTES: Final = 16 << 10
_CACHED_BYTES: Final = 32 << 10  # read at once in the event loop: small batches take their time
_AHEAD: Final = 32  # records that are decoded at once where fewer are asked for
_AHEAD_BYTES: Final = 32 << 10
_SLICE: Final = 64 << 10  # bytes that are decoded at once where all are asked for
_AT_ONCE_BYTES: Final = 256 << 10  # of records, that the event loop decompresses at once
_LOADED_BYTES: Final = 16 << 20  # of batches, decompressed, after which no more are read
_SPAN_BYTES: Final = 200  # that a range takes besides its batch
_LEAST_RECORD_BYTES: Final = 7  # that a record takes: a byte for each of its fields
_TTL_NAME: Final = TTL.encode()
_LARGE_BYTES: Final = 8 << 10  # from which on part of a batch is worth making


class StoredBatch:
    """A batch of producers' records that was read.

    Of a batch that has a record for each of its offsets nothing is decoded before it is asked for.
    """

    __slots__ = (
        "_ahead",
        "_is_sound",
        "_most_bytes",
        "_offsets",
        "_payload",
        "_positions",
        "has_ttl",
        "header",
        "is_broken",
        "is_oversized",
        "raw",
    )

    def __init__(self, header: BatchHeader, raw: bytes, most: int = MAX_RECORDS_SIZE) -> None:
        """``most``: how many bytes its records may take, decompressed; more are broken."""
        self.header = header
        self.raw = raw
        self._payload: bytes | None = None
        self._positions: array[int] | None = None
        self._offsets: array[int] | None = None
        self._ahead: tuple[int, list[ConsumerRecord]] = (0, [])  # decoded before it is asked for
        self._is_sound = False  # its checksum was compared
        self.is_broken = False
        """Whether its records cannot be read, though its checksum is right: so it was written."""
        self.is_oversized = False
        self.has_ttl = False
        self._most_bytes = most
        try:
            if not self.is_dense:
                self._find_offsets()
            self.has_ttl = self._may_have_ttl()
            self.is_broken = header.records_count > self._most_records()
        except CorruptBatch as error:
            self.is_broken, self.is_oversized = True, isinstance(error, OversizedBatch)

    @property
    def is_dense(self) -> bool:
        """Whether there is a record for each offset."""
        return self.header.records_count == self.header.last_offset_delta + 1

    @property
    def size(self) -> int:
        """How many bytes of memory it takes at most, when all its records were asked for."""
        payload = self.raw if self._payload is None else self._payload
        ahead = min(len(payload), _AHEAD_BYTES)
        return len(self.raw) + len(payload) + ahead + 4 * self.header.records_count + _SPAN_BYTES

    def _may_have_ttl(self) -> bool:
        """Whether a record may have the header ``qbus-ttl``: its name is somewhere in the bytes."""
        if self.header.attributes & CODEC_BITS:
            return _TTL_NAME in self.payload
        return _TTL_NAME in self.raw

    def _most_records(self) -> int:
        """How many records there is room for, about. Decompressed already, if they have to be."""
        payload = self.raw if self._payload is None else self._payload
        return len(payload) // _LEAST_RECORD_BYTES

    @property
    def payload(self) -> bytes:
        """The bytes of the records, decompressed. Raises CorruptBatch."""
        payload = self._payload
        if payload is None:
            raw, header = self.raw, self.header
            if header.attributes & CODEC_BITS or header.size != len(raw):
                records = records_of(raw, header, self._most_bytes)
                payload = b"" if records is None else bytes(records)
            else:
                payload = raw[HEADER_SIZE:]
            self._payload = payload
        return payload

    @property
    def positions(self) -> "array[int]":
        """Where each record begins in :attr:`payload`, and where the last ends.

        Raises CorruptBatch.
        """
        if self._positions is None:
            try:
                self._positions = record_positions(self.payload, self.header.records_count)
            except CorruptBatch:
                self.is_broken = True  # and is not looked through for each of its records
                raise
        return self._positions

    def part(self, first: int, last: int) -> Buffer:
        """A batch that has the records from offset ``first`` to ``last``, and perhaps others.

        That is all of it where no smaller one can be made, or hardly. Else it is as if the others
        had been compacted away: the offsets and times of its records, and its own last offset, are
        what they were. It is not compressed then.
        """
        header = self.header
        begin, end = first - header.base_offset, last - header.base_offset + 1
        if len(self.raw) < _LARGE_BYTES or 2 * (end - begin) > header.records_count:
            return self.raw
        if not self.is_dense or self.is_broken or begin < 0:
            return self.raw
        try:
            if not self._is_sound:  # else a new checksum would say that it is
                check_crc(self.raw, header)
                self._is_sound = True
            positions = self.positions
        except CorruptBatch:  # which is told by whoever reads it
            return self.raw
        start, stop = positions[begin], positions[end]
        if HEADER_SIZE + stop - start >= len(self.raw):
            return self.raw
        made = bytearray(HEADER_SIZE)
        made += self.payload[start:stop]
        changed = header._replace(
            batch_length=len(made) - LENGTH_PREFIX,
            attributes=header.attributes & ~CODEC_BITS,
            records_count=end - begin,
        )
        write_header(made, changed)
        return made

    def _find_offsets(self) -> None:
        offsets = array("q")
        decoder = _codec().twin.Decoder(self.payload, self.header, "", 0, 0)
        while records := decoder.take(_SLICE):
            offsets.extend([record.offset for record in records])
        self._offsets = offsets

    def gaps(self) -> list[tuple[int, int]]:
        """The ranges of its offsets that have no record."""
        if self._offsets is None:
            return []
        found = []
        expected = self.header.base_offset
        for offset in self._offsets:
            if offset > expected:
                found.append((expected, offset - 1))
            expected = offset + 1
        if expected <= self.header.last_offset:
            found.append((expected, self.header.last_offset))
        return found

    def records(self, first: int, last: int) -> list[ConsumerRecord]:
        """The records from offset ``first`` to ``last``. Raises CorruptBatch."""
        if self._offsets is None:
            begin, end = first - self.header.base_offset, last - self.header.base_offset + 1
        else:
            begin, end = bisect_left(self._offsets, first), bisect_right(self._offsets, last)
        return self._decode(max(begin, 0), min(end, self.header.records_count))

    def _decode(self, begin: int, end: int) -> list[ConsumerRecord]:
        """The records from number ``begin`` to before number ``end``."""
        if begin >= end:
            return []
        start, ahead = self._ahead
        if start <= begin and end <= start + len(ahead):
            return ahead[begin - start : end - start]
        if self.header.records_count <= _AHEAD and self._take_all():
            return self._ahead[1][begin:end]
        positions = self.positions
        to = end
        if end - begin < _AHEAD and positions[end] - positions[begin] < _AHEAD_BYTES:
            to = min(begin + _AHEAD, self.header.records_count)
            while positions[to] - positions[begin] > _AHEAD_BYTES and to > end:
                to = (to + end) // 2
        payload = self.payload[positions[begin] : positions[to]]
        part = self.header._replace(records_count=to - begin)
        try:
            records = _decoded(payload, part)
        except CorruptBatch:
            if to == end:
                raise
            payload = self.payload[positions[begin] : positions[end]]  # without those behind
            return _decoded(payload, self.header._replace(records_count=end - begin))
        if to > end:
            self._ahead = (begin, records)
        return records[: end - begin]

    def _take_all(self) -> bool:
        """Decode all of the few records that there are, if they are small; whether they are."""
        payload = self.payload
        if len(payload) > _AHEAD_BYTES or self._ahead[1]:
            return False
        try:
            records = _decoded(payload, self.header)
        except CorruptBatch:
            return False
        if len(records) != self.header.records_count:
            return False
        self._ahead = (0, records)
        return True


def _decoded(payload: bytes, header: BatchHeader) -> list[ConsumerRecord]:
    """The records that ``payload`` has, as ``header`` says. Raises CorruptBatch."""
    records: list[ConsumerRecord] = (
        _codec().twin.Decoder(payload, header, "", 0, 0).take(len(payload) + 1)
    )
    return records


@cache
def _codec() -> ModuleType:
    """The codec, which a broker without queues need not load."""
    from qbus.records import codec  # noqa: PLC0415 - for that

    return codec


def ttl_of(headers: Headers) -> int:
    """For how long from its timestamp on a record is worth something, in milliseconds; -1: ever.

    Its header ``qbus-ttl`` says so.
    """
    for name, value in headers:
        if name == TTL and value is not None:
            try:
                return parse_duration(value.decode("ascii"))
            except ValueError:
                return -1
    return -1


def _stored(header: BatchHeader, raw: bytes, *, wait: bool) -> StoredBatch:
    """A batch; what takes long is done now, if a thread may ``wait`` for it.

    Raises BlockingIOError otherwise.
    """
    if wait:
        stored = StoredBatch(header, raw)
        if stored.size > _LOADED_BYTES and not stored.is_broken:
            with suppress(CorruptBatch):
                _ = stored.positions
        return stored
    stored = StoredBatch(header, raw, _AT_ONCE_BYTES)
    if stored.is_oversized:  # for the event loop
        raise BlockingIOError
    return stored


class Stretch(NamedTuple):
    """The offsets from ``first`` to ``last``: those of a batch, or without records (None).

    Of damaged batches there may be records, which cannot be read.
    """

    first: int
    last: int
    batch: StoredBatch | None
    is_damaged: bool = False


class BatchCache:
    """Bounds what is kept in memory of the batches of all logs: the latest ``most_bytes``."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._read: OrderedDict[tuple[LogBatches, int], int] = OrderedDict()
        self._owners: dict[LogBatches, int] = {}  # how many stretches each has
        self.size = 0

    @property
    def window(self) -> int:
        """How many bytes of a log are read at once, so that there is room for all that are used."""
        most = self._most_bytes // (4 * max(len(self._owners), 1))
        return max(min(most, _READ_BYTES), _LEAST_READ_BYTES)

    def add(self, owner: "LogBatches", first: int, size: int) -> None:
        """Count in a stretch that was read, and evict those for it that were used longest ago."""
        key = (owner, first)
        before = self._read.pop(key, None)
        if before is None:
            self._owners[owner] = self._owners.get(owner, 0) + 1
        else:
            self.size -= before
        self._read[key] = size
        self.size += size
        while self.size > self._most_bytes and len(self._read) > 1:
            (other, oldest), gone = self._read.popitem(last=False)
            self._count_out(other, gone)
            other.evict(oldest)

    def _count_out(self, owner: "LogBatches", size: int) -> None:
        self.size -= size
        left = self._owners[owner] - 1
        if left:
            self._owners[owner] = left
        else:
            del self._owners[owner]

    def touch(self, owner: "LogBatches", first: int) -> None:
        """A stretch was used."""
        self._read.move_to_end((owner, first))

    def remove(self, owner: "LogBatches", first: int) -> None:
        """Count out a stretch."""
        size = self._read.pop((owner, first), None)
        if size is not None:
            self._count_out(owner, size)


class LogBatches:
    """What was read of one log. For the event loop's thread."""

    __slots__ = ("_cache", "_last", "_rewrites", "_stretches", "log")

    def __init__(self, log: Log, cache: BatchCache) -> None:
        self.log = log
        self._cache = cache
        self._stretches: RangeMap[Stretch] = RangeMap()
        self._last: Stretch | None = None  # the one found last
        self._rewrites = log.rewrites

    def at(self, offset: int) -> Stretch | None:
        """What is at ``offset``, if that was read and is still in memory."""
        if self._rewrites != self.log.rewrites:  # batches were repaired in place
            self.clear()
        last = self._last
        if last is not None and last.first <= offset <= last.last:
            return last
        stretch = self._stretches.at(offset)
        if stretch is not None:
            self._cache.touch(self, stretch.first)
            self._last = stretch
        return stretch

    def load(self, offset: int, limit: int, *, wait: bool) -> list[Stretch]:
        """Read what is at ``offset``, and some behind it, as far as it is whole before ``limit``.

        Nothing is remembered: see :meth:`keep`. With ``wait`` it is for a thread. Raises
        BlockingIOError where a disk would be waited for, unless ``wait``; ApiError, OSError.
        """
        log = self.log
        found: list[Stretch] = []
        end = log.hidden_end(offset, wait=wait)
        if end > offset:
            found.append(Stretch(offset, end - 1, None))
            offset = end
            if not wait and self._stretches.at(offset) is not None:  # it was offered
                return found
        if offset >= limit:
            return found
        window = self._cache.window if wait else min(self._cache.window, _CACHED_BYTES)
        records = log.read(offset, window, limit, wait=wait)
        if records is None:
            return found
        with records:
            try:
                if wait:
                    records.warm()
                elif records.needs_verification or not records.is_cached():
                    raise BlockingIOError
                found += _first_stretches(records.read(wait=wait), offset, wait=wait)
            except BlockingIOError:
                if not found:
                    raise
        return found

    def load_batch(self, offset: int, *, wait: bool) -> list[Stretch]:
        """Read the batch that contains ``offset``, and nothing else. As :meth:`load` otherwise."""
        records = self.log.read_batch(offset, wait=wait)
        if records is None:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"there is no record at {offset}")
        with records:
            if wait:
                records.warm()
            elif records.needs_verification or not records.is_cached():
                raise BlockingIOError
            return list(_stretches(records.read(wait=wait), offset, wait=wait))

    def damaged_at(self, offset: int) -> list[Stretch]:
        """The damaged batches that ``offset`` is in, if it is in some. Does no IO."""
        return [
            Stretch(max(one.first_offset, self.log.log_start_offset), one.last_offset, None, True)
            for one in self.log.damage
            if one.first_offset <= offset <= one.last_offset
        ]

    def keep(self, found: list[Stretch]) -> None:
        """Remember what was read: the first of it, which somebody waits for, in any case."""
        stretches = self._stretches
        is_behind = len(found) > 0 and found[0].first >= stretches.end
        for stretch in found if is_behind else reversed(found):
            if not is_behind:
                for gone in stretches.cut(stretch.first, stretch.last):
                    self._forget(gone.value)
            stretches.set(stretch.first, stretch.last, stretch)
        for stretch in reversed(found):
            size = _SPAN_BYTES if stretch.batch is None else stretch.batch.size
            self._cache.add(self, stretch.first, size)

    def offer(self, batch: Buffer) -> None:
        """Remember a batch that was just appended: somebody waits for it, so it need not be read.

        It is given out only once it lies before the high watermark, as all others are.
        """
        header = read_header(batch)
        stored = StoredBatch(header, bytes(batch))
        self.keep([Stretch(header.base_offset, header.last_offset, stored)])

    def _forget(self, known: Stretch) -> None:
        self._cache.remove(self, known.first)
        self.evict(known.first)

    def evict(self, first: int) -> None:
        """Forget the stretch that begins there: the cache has no room for it."""
        for gone in self._stretches.cut(first, first):
            known = gone.value
            self._stretches.cut(known.first, known.last)
            if self._last is known:
                self._last = None

    def clear(self) -> None:
        """Forget everything."""
        for span in self._stretches:
            self._cache.remove(self, span.value.first)
        self._stretches = RangeMap()
        self._last = None
        self._rewrites = self.log.rewrites


def _first_stretches(data: Buffer, offset: int, *, wait: bool) -> list[Stretch]:
    """What is in ``data``, up to a size of memory. Raises as :func:`_stretches` for its first."""
    found: list[Stretch] = []
    left = _LOADED_BYTES if wait else _AT_ONCE_BYTES
    try:
        for stretch in _stretches(data, offset, wait=wait):
            found.append(stretch)
            left -= 0 if stretch.batch is None else stretch.batch.size
            if left <= 0:
                break
    except BlockingIOError:
        if not found:
            raise
    return found


def _stretches(data: Buffer, offset: int, *, wait: bool) -> Iterator[Stretch]:
    """The batches in ``data``, and what lies between them.

    Raises CorruptBatch, and BlockingIOError at one that is not read on the event loop, unless
    ``wait``.
    """
    void_from = -1
    for header, raw in iter_batches(data):
        first = header.base_offset
        if void_from < 0 and first > offset:
            void_from = offset
        if header.is_control or header.records_count <= 0:
            if void_from < 0:
                void_from = first
        else:
            if void_from >= 0:
                yield Stretch(void_from, first - 1, None)
                void_from = -1
            yield Stretch(first, header.last_offset, _stored(header, bytes(raw), wait=wait))
        offset = header.last_offset + 1
    if void_from >= 0:
        yield Stretch(void_from, offset - 1, None)
