"""Compacting batches: the newest offset of each key, and what is left of a batch by it.

A key is remembered by a digest of 16 bytes, made with a secret that each map draws anew, so nobody
can choose two keys that pass for one. The rules are Kafka's (KIP-58, KIP-534): a record stays if no
newer one has its key; one without a value, which deletes its key, stays until the batch's delete
horizon has passed; one without a key goes. What is left of a batch keeps its offsets, its base
offset and its last offset.

Compiled where there is a compiler (``_compact.pyx``); the twins here are what runs elsewhere. Both
take the common batches, *plain* ones, many at a time: neither compressed, nor transactional, nor
control batches. They leave any other to their callers, and what is wrong with a batch, too.
"""

import os
import struct
from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from qbus.errors import CorruptBatch
from qbus.records.fields import MAX_INT64, MIN_INT64, decode_varint, encode_varint
from qbus.records.header import (
    CODEC_BITS,
    HEADER_SIZE,
    LENGTH_PREFIX,
    BatchHeader,
    Buffer,
    check_crc,
    read_header,
    write_header,
)
from qbus.records.parse import parse_records

REVISION: Final = 3
"""What the compiled form offers; another number means that it was built from other sources."""

HORIZON: Final = 0x40
"""The attribute of a batch whose base timestamp is its delete horizon (KIP-534)."""

_PLAIN: Final = 0x08 | HORIZON  # the attributes that a plain batch may have
_NO_TIMESTAMP: Final = -1
_ENTRY_BYTES: Final = 200  # of a dictionary of digests
_DIGEST_BYTES: Final = 16
_TIMESTAMP: Final = struct.Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35


class Point(NamedTuple):
    """An entry for the indexes: the batch at ``position``, and the greatest timestamp up to it."""

    position: int
    last_offset: int
    timestamp: int
    timestamp_offset: int


class Sifted(NamedTuple):
    """What is left of a batch: its ``records``, how many are ``kept``, their greatest timestamp.

    ``tombstones``: how many of them have no value.
    """

    records: bytes
    kept: int
    max_timestamp: int
    tombstones: int


def horizon_of(header: BatchHeader) -> int | None:
    """The time from which on the records without a value of a batch may go; None: not known yet."""
    return header.base_timestamp if header.attributes & HORIZON else None


def keeps_tombstones(header: BatchHeader, now_ms: int) -> bool:
    """Whether records without a value stay in a batch."""
    return not header.attributes & HORIZON or now_ms < header.base_timestamp


class PortableOffsetMap:
    """The newest offset of each key, within a bound of memory.

    All records up to ``latest`` are taken in. ``is_full``: there is no room for the key of the one
    after it.
    """

    __slots__ = ("_known", "_most", "_secret", "is_full", "latest")

    def __init__(self, memory: int, records: int, load: float = 0.9) -> None:
        """``memory``: bytes. ``records``: how many may come. ``load``: the share that is used."""
        self._most = max(min(int(memory * load) // _ENTRY_BYTES, records), 1)
        self._known: dict[bytes, int] = {}
        self._secret = os.urandom(_DIGEST_BYTES)
        self.latest = -1
        self.is_full = False

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: bytes) -> int:
        """The newest offset of ``key``, -1 if it is not known."""
        return self._known.get(self._digest(key), -1)

    def _digest(self, key: bytes) -> bytes:
        return blake2b(key, digest_size=_DIGEST_BYTES, key=self._secret).digest()

    def take_run(
        self, data: Buffer, position: int, offset: int, start_offset: int
    ) -> tuple[int, int]:
        """Take in plain batches from ``position`` on, of records from ``start_offset`` on.

        The first must begin with ``offset`` or later. Returns where the first batch is that was
        not taken in, wholly, and the offset that it must begin with.
        """
        for header, payload in plain_batches(data, position, offset):
            try:
                self.take(payload, header, start_offset)
            except CorruptBatch:
                break
            if self.is_full:
                break
            position += header.size
            offset = header.last_offset + 1
        return position, offset

    def take(self, payload: Buffer, header: BatchHeader, start_offset: int) -> None:
        """Take in the decompressed records of a batch, those from ``start_offset`` on.

        Raises CorruptBatch.
        """
        for record in parse_records(bytes(payload), header):
            if record.offset < start_offset or record.key is None:
                continue
            digest = self._digest(record.key)
            if digest not in self._known and len(self._known) >= self._most:
                self.is_full = True
                self.latest = max(self.latest, record.offset - 1)
                return
            self._known[digest] = record.offset
        self.latest = max(self.latest, header.last_offset)


def plain_batches(data: Buffer, position: int, offset: int) -> Iterator[tuple[BatchHeader, Buffer]]:
    """The plain batches from ``position`` on, with their records, up to the first other one."""
    view = memoryview(data)
    while len(view) - position >= HEADER_SIZE:
        try:
            header = read_header(view, position)
            check_crc(view, header, position)
        except CorruptBatch:
            return
        if not (
            header.attributes & ~_PLAIN == 0
            and header.base_offset >= offset
            and 0 < header.records_count <= header.last_offset_delta + 1
        ):
            return
        yield header, view[position + HEADER_SIZE : position + header.size]
        position += header.size
        offset = header.last_offset + 1


class PortableSifter:
    """Makes what is left of batches by a map; ``out`` are those that were made since the last time.

    ``end_offset`` is the one after the last batch that was made, ``position`` where the next one
    comes in its file. ``records`` and ``kept`` count records that were seen, and that are left.
    """

    __slots__ = (
        "_interval",
        "_newest",
        "_now_ms",
        "_offsets",
        "_unindexed",
        "end_offset",
        "first_timestamp",
        "kept",
        "max_timestamp",
        "max_timestamp_offset",
        "out",
        "points",
        "position",
        "records",
    )

    def __init__(
        self,
        offsets: PortableOffsetMap,
        newest: frozenset[int],
        now_ms: int,
        index_interval_bytes: int,
    ) -> None:
        """``newest``: the last offsets of those batches that are the newest of a producer."""
        self._offsets = offsets
        self._newest = newest
        self._now_ms = now_ms
        self._interval = index_interval_bytes
        self._unindexed = 0
        self.out = bytearray()
        self.points: list[Point] = []
        self.position = 0
        self.end_offset = 0
        self.first_timestamp = _NO_TIMESTAMP
        self.max_timestamp = _NO_TIMESTAMP
        self.max_timestamp_offset = 0
        self.records = 0
        self.kept = 0

    def sift_run(self, data: Buffer, position: int, offset: int) -> tuple[int, int]:
        """Make what is left of plain batches from ``position`` on.

        Leaves to the caller what :meth:`sift` and :func:`with_records` do not suffice for: a batch
        that must stay without records, and one with tombstones but no delete horizon. Returns as
        :meth:`OffsetMap.take_run` does.
        """
        for header, payload in plain_batches(data, position, offset):
            try:
                sifted = self.sift(payload, header)
            except CorruptBatch:
                break
            is_special = (sifted.tombstones and not header.attributes & HORIZON) or (
                not sifted.kept and header.producer_id >= 0 and header.last_offset in self._newest
            )
            if is_special:
                break
            self.records += header.records_count
            self.kept += sifted.kept
            if sifted.kept == header.records_count:
                self.add(memoryview(data)[position : position + header.size], header)
            elif sifted.kept:
                self.add(with_records(header, sifted), header)
            position += header.size
            offset = header.last_offset + 1
        return position, offset

    def sift(self, payload: Buffer, header: BatchHeader) -> Sifted:
        """What is left of the decompressed records of a batch. Raises CorruptBatch."""
        offsets = self._offsets
        tombstones_stay = keeps_tombstones(header, self._now_ms)
        data, position = bytes(payload), 0
        records = bytearray()
        count = tombstones = 0
        latest = _NO_TIMESTAMP
        for record in parse_records(data, header):
            length, start = decode_varint(data, position)
            end = start + length
            if record.offset <= offsets.latest:
                stays = (
                    record.key is not None
                    and record.offset >= offsets.get(record.key)
                    and (record.value is not None or tombstones_stay)
                )
            else:
                stays = True
            if stays:
                records += data[position:end]
                count += 1
                tombstones += record.value is None
                latest = max(latest, record.timestamp)
            position = end
        if header.is_log_append_time:
            latest = header.max_timestamp
        return Sifted(bytes(records), count, latest, tombstones)

    def add(self, batch: Buffer, header: BatchHeader) -> None:
        """Add a whole batch to what was made, with the offsets that ``header`` has."""
        timestamp = _TIMESTAMP.unpack_from(batch, _MAX_TIMESTAMP_AT)[0]
        last_offset = header.last_offset
        if not self.position:
            self.first_timestamp = timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = timestamp, last_offset
        if self._unindexed > self._interval:
            self._unindexed = 0
            greatest = self.max_timestamp, self.max_timestamp_offset
            self.points.append(Point(self.position, last_offset, *greatest))
        self._unindexed += len(batch)
        self.out += batch
        self.position += len(batch)
        self.end_offset = last_offset + 1


def portable_rebased(payload: Buffer, header: BatchHeader, base_timestamp: int) -> bytes:
    """The decompressed records of a batch, as they are after another base timestamp.

    Raises CorruptBatch.
    """
    data, position = bytes(payload), 0
    moved = header.base_timestamp - base_timestamp
    out = bytearray()
    while position < len(data):
        try:
            length, start = decode_varint(data, position)
            delta, rest = decode_varint(data, start + 1)
        except IndexError:
            raise CorruptBatch("records are cut") from None
        position = start + length
        if length < 1 or rest > position or position > len(data):
            raise CorruptBatch("records are cut")
        if not MIN_INT64 <= delta + moved <= MAX_INT64:
            raise CorruptBatch("a timestamp does not fit 64 bits")
        new = encode_varint(delta + moved)
        out += encode_varint(1 + len(new) + position - rest)
        out += data[start : start + 1]
        out += new
        out += data[rest:position]
    return bytes(out)


def portable_keyless(payload: Buffer, header: BatchHeader, most: int) -> list[int]:
    """The numbers of the first ``most`` of a batch's decompressed records that have no key.

    Raises CorruptBatch.
    """
    found: list[int] = []
    for number, record in enumerate(parse_records(bytes(payload), header)):
        if record.key is None and len(found) < most:
            found.append(number)
    return found


def with_records(header: BatchHeader, sifted: Sifted, records: Buffer | None = None) -> bytearray:
    """The batch of ``header`` with what is left of its records.

    ``records``: these, compressed as the header's attributes say.
    """
    content = sifted.records if records is None else records
    batch = bytearray(HEADER_SIZE)
    batch += content
    write_header(
        batch,
        header._replace(
            batch_length=len(batch) - LENGTH_PREFIX,
            records_count=sifted.kept,
            max_timestamp=sifted.max_timestamp,
        ),
    )
    return batch


def emptied(header: BatchHeader) -> bytearray:
    """The batch of ``header`` without its records: it keeps the place of its producer.

    As Kafka writes it: both timestamps are the greatest that the batch had.
    """
    batch = bytearray(HEADER_SIZE)
    write_header(
        batch,
        header._replace(
            batch_length=HEADER_SIZE - LENGTH_PREFIX,
            attributes=header.attributes & ~(CODEC_BITS | HORIZON),
            base_timestamp=header.max_timestamp,
            records_count=0,
        ),
    )
    return batch


if TYPE_CHECKING:
    OffsetMap: TypeAlias = PortableOffsetMap
    Sifter: TypeAlias = PortableSifter
    rebased = portable_rebased
    keyless = portable_keyless
    IS_COMPILED = False
else:

    def _compiled():
        if os.environ.get("QBUS_CODEC") == "python":
            return None
        try:
            from qbus.records import _compact  # noqa: PLC0415 - it may not be there
        except ImportError:
            return None
        return _compact if _compact.REVISION == REVISION else None

    _fast = _compiled()
    IS_COMPILED = _fast is not None
    if IS_COMPILED:
        OffsetMap, Sifter = _fast.OffsetMap, _fast.Sifter
        rebased, keyless = _fast.rebased, _fast.keyless
    else:
        OffsetMap, Sifter = PortableOffsetMap, PortableSifter
        rebased, keyless = portable_rebased, portable_keyless
