"""Producer state on disk, so that opening a log need not read it all.

File format (Kafka's ``.snapshot``, version 1), big-endian; the name is the offset before which all
records are accounted for:

===================== ============================================================
version               int16, 1
CRC                   uint32, CRC-32C of all that follows
count                 int32
then for each entry:
producer id           int64
epoch                 int16
last sequence         int32
last offset           int64
offset delta          int32, last sequence less first
timestamp             int64, greatest of the batch
coordinator epoch     int32, -1: no transaction was ended
transaction start     int64, -1: no transaction is open
===================== ============================================================

Kafka keeps one entry for each producer: its last batch. Here a producer's last five follow one
another, oldest first, so that a restart does not forget what may still be sent again; Kafka's own
reader takes the last of them, which is the same.

Crash policy: a snapshot that does not check is removed, and the one before it is used; without
any, producer state is rebuilt from the log.
"""

import struct

from qbus.records import crc32c

from .producers import ProducerState, RetainedBatch

VERSION = 1

_HEADER = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_NONE = -1


class BadSnapshot(ValueError):  # noqa: N818 - what was found
    """A snapshot that is torn, damaged or of an unknown version."""


def encode_snapshot(producers: ProducerState) -> bytes:
    """The file's content."""
    entries = [
        _ENTRY.pack(
            producer.producer_id,
            producer.epoch,
            batch.last_sequence,
            batch.last_offset,
            batch.offset_delta,
            batch.timestamp,
            _NONE,
            _NONE,
        )
        for producer in producers
        for batch in producer.batches
    ]
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _HEADER.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[tuple[int, int, RetainedBatch]]:
    """Producer id, epoch and batch of each entry. Raises BadSnapshot."""
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
    return [
        (producer_id, epoch, RetainedBatch(sequence, offset, delta, timestamp))
        for producer_id, epoch, sequence, offset, delta, timestamp, _, _ in _ENTRY.iter_unpack(
            body[_COUNT.size :]
        )
    ]
