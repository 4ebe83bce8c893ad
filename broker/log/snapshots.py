"""A log's producer state on disk, so that opening the log need not read it all.

File format (Kafka's ``.snapshot``, version 1), big-endian; the name is the offset before which
all records are accounted for:

===================== ============================================================
version               int16, 1
CRC                   uint32, CRC-32C of all that follows
count                 int32
then for each entry:
producer id           int64
epoch                 int16
last sequence         int32, -1: the epoch has no batch
last offset           int64, -1 likewise
offset delta          int32, last sequence less first
timestamp             int64, greatest of the batch
coordinator epoch     int32, -1: no transaction was ended; see below
transaction start     int64, -1: no transaction is open
===================== ============================================================

Kafka keeps one entry for each producer: its last batch. Here a producer's last five follow one
another, oldest first, so that a restart does not forget what may still be sent again; Kafka's own
reader takes the last of them, which is the same. Where an entry is joined (ours), 1,000,000 is
taken from its coordinator epoch, so that of one without a coordinator it is -1,000,001; -2 there
means the same, in snapshots of former versions.

An entry of no producer (id -1, coordinator epoch -2,000,000,000) is a transaction (ours): it was
ended by a marker at the last offset, which was perhaps not below the high watermark yet. The
timestamp is its first offset.

Crash policy: a snapshot that does not check is removed, and the one before it is used; without
any, producer state is rebuilt from the log.
"""

import logging
import struct
from collections.abc import Callable
from typing import Final, TypeVar

from qbus.records import crc32c

from .files import Files, read_file, replace_file
from .names import SNAPSHOT_SUFFIX, numbered, parse_numbered
from .producers import ProducerState, RetainedBatch, SnapshotEntry

_logger = logging.getLogger(__name__)

Decoded = TypeVar("Decoded")

VERSION: Final = 1

_HEADER: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_NONE: Final = -1
_JOINED: Final = -1_000_000
_ENDED: Final = -2_000_000_000
_OLD_JOINED: Final = -2


class BadSnapshot(ValueError):  # noqa: N818 - what was found
    """A snapshot that is torn, damaged or of an unknown version."""


def encode_snapshot(producers: ProducerState) -> bytes:
    """The file's content."""
    entries = [_encode(entry) for entry in producers.entries()]
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _HEADER.pack(VERSION, crc32c(body)) + body


def _encode(entry: SnapshotEntry) -> bytes:
    sequence, offset, delta, timestamp, is_joined = entry.batch
    epoch, start = entry.coordinator_epoch, entry.transaction_start
    if entry.is_ended:
        timestamp, epoch, start = start, _ENDED, _NONE
    elif is_joined:
        epoch += _JOINED
    return _ENTRY.pack(
        entry.producer_id, entry.epoch, sequence, offset, delta, timestamp, epoch, start
    )


def _decode(fields: tuple[int, ...]) -> SnapshotEntry:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, start = fields
    if coordinator_epoch == _ENDED:
        ended = RetainedBatch(sequence, offset, delta, _NONE)
        return SnapshotEntry(producer_id, epoch, ended, _NONE, timestamp, True)
    is_joined = coordinator_epoch < _NONE
    if coordinator_epoch == _OLD_JOINED:
        coordinator_epoch = _NONE
    elif is_joined:
        coordinator_epoch -= _JOINED
    batch = RetainedBatch(sequence, offset, delta, timestamp, is_joined)
    return SnapshotEntry(producer_id, epoch, batch, coordinator_epoch, start)


def decode_snapshot(data: bytes) -> list[SnapshotEntry]:
    """The entries, in their order. Raises BadSnapshot."""
    if len(data) < _HEADER.size + _COUNT.size:
        raise BadSnapshot(f"{len(data)} bytes are too few")
    version, crc = _HEADER.unpack_from(data)
    if version != VERSION:
        raise BadSnapshot(f"unknown version {version}")
    body = memoryview(data)[_HEADER.size :]
    if crc32c(body) != crc:
        raise BadSnapshot("the CRC does not match")
    (count,) = _COUNT.unpack_from(body)
    if count * _ENTRY.size != len(body) - _COUNT.size:
        raise BadSnapshot(f"{count} entries do not fit {len(body)} bytes")
    return [_decode(fields) for fields in _ENTRY.iter_unpack(body[_COUNT.size :])]


class SnapshotFiles:
    """The snapshots of one kind in one log's directory.

    ``crcs`` are the CRC-32Cs of the files, by offset, as far as they are known: those that the
    log's manifest lists, or that were written or read since. ``is_listed``: there is a manifest, so
    that what it does not list is not believed; a snapshot of another log may check, too.
    """

    __slots__ = ("_directory", "_files", "_suffix", "crcs", "is_listed")

    def __init__(self, files: Files, directory: str, suffix: str = SNAPSHOT_SUFFIX) -> None:
        self._files = files
        self._directory = directory
        self._suffix = suffix
        self.crcs: dict[int, int] = {}
        self.is_listed = False

    def expect(self, crcs: dict[int, int]) -> None:
        """Believe only files with these CRCs, by offset, which the manifest lists."""
        self.crcs, self.is_listed = dict(crcs), True

    def offsets(self) -> list[int]:
        """The offsets of all snapshots, ascending. Raises OSError."""
        numbers = map(parse_numbered, self._files.list(self._directory))
        return sorted(n[0] for n in numbers if n and n[1] == self._suffix)

    def newest(self) -> int:
        """The offset of the newest snapshot, -1 without any. Raises OSError."""
        return max(self.offsets(), default=-1)

    def load(self, end_offset: int, *, limit: int, start_offset: int, now_ms: int) -> ProducerState:
        """The state that the newest good snapshot up to ``end_offset`` holds.

        Without any the state is empty, and ends with ``start_offset``. Raises OSError.
        """
        found = self.newest_good(end_offset, decode_snapshot)
        if found is None:
            return ProducerState(limit, start_offset)
        state = ProducerState(limit, found[0])
        for entry in found[1]:
            state.restore(entry, now_ms)
        state.restored()
        return state

    def newest_good(
        self, end_offset: int, decode: Callable[[bytes], Decoded]
    ) -> tuple[int, Decoded] | None:
        """The offset and content of the newest snapshot up to ``end_offset`` that is good.

        Removes those above it, which speak of records that are gone, and damaged ones: those of
        which ``decode`` raises BadSnapshot. Raises OSError.
        """
        offsets = self.offsets()
        self._remove_above(end_offset, offsets)
        below = [offset for offset in offsets if offset <= end_offset]
        listed = max((offset for offset in self.crcs if offset <= end_offset), default=-1)
        if listed >= 0 and listed not in below:
            path = self._path(listed)
            _logger.warning("%s is missing: what it held is read from the log", path)
        for offset in reversed(below):
            path = self._path(offset)
            data = read_file(self._files, path)
            crc = crc32c(data)
            try:
                if self.is_listed and self.crcs.get(offset) != crc:
                    if offset not in self.crcs:  # written after the last checkpoint
                        self._files.remove(path)
                        continue
                    raise BadSnapshot("it is not the file that was written")
                decoded = decode(data)
            except BadSnapshot as bad:
                _logger.warning("%s is damaged: %s; it is read from the log", path, bad)
                self._remove(offset)
            else:
                self.crcs[offset] = crc
                return offset, decoded
        return None

    def _remove_above(self, end_offset: int, offsets: list[int]) -> None:
        """For good, before other records get the same offsets."""
        above = [offset for offset in offsets if offset > end_offset]
        for offset in above:
            self._remove(offset)
        if above:
            self._files.sync_directory(self._directory)

    def write(self, offset: int, content: bytes, *, sync: bool) -> None:
        """Write the snapshot of ``offset``. Raises OSError."""
        replace_file(self._files, self._path(offset), content, sync=sync)
        self.crcs[offset] = crc32c(content)

    def sync(self, offset: int) -> None:
        """Make a snapshot stable that was written without. Raises OSError."""
        if offset in self.crcs and self._files.exists(self._path(offset)):
            self._files.open(self._path(offset), write=True).sync()

    def remove(self, unwanted: Callable[[int], bool]) -> None:
        """Remove the snapshots whose offsets are ``unwanted``. Raises OSError."""
        for offset in self.offsets():
            if unwanted(offset):
                self._remove(offset)

    def keep_newest(self, count: int) -> None:
        """Remove all but the newest ``count``. Raises OSError."""
        for offset in self.offsets()[:-count]:
            self._remove(offset)

    def _remove(self, offset: int) -> None:
        self._files.remove(self._path(offset))
        self.crcs.pop(offset, None)

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{numbered(offset, self._suffix)}"
