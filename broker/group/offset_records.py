"""Committed offsets as records of ``__consumer_offsets``, in Kafka's format, which its tools read.

The key is version 1 of Kafka's OffsetCommitKey: group, topic and partition. (Version 0 is the same;
other versions are keys of other things, such as members, which are not kept in this log.) The value
is OffsetCommitValue: version 3 has offset, leader epoch, metadata and the time of the commit;
version 4 is the same in the flexible encoding (KIP-482), with the topic's id as tagged field 0 and,
which is Qbus's own, the time at which the offset expires as tagged field 10000. Older versions are
read. No value: the offset is deleted.
"""

from functools import lru_cache
from struct import Struct, error
from typing import Final, NamedTuple

from qbus.errors import QbusError

from .offsets import NO_TOPIC_ID, Offset

_SHORT: Final = Struct(">h")
_INT: Final = Struct(">i")
_LONG: Final = Struct(">q")
_FIXED: Final = Struct(">hqi")  # version, offset, leader epoch
_COMMON: Final = Struct(">hqiBqBBB16s")  # the whole value, without metadata and with a topic's id

_KEYS: Final = 20_000  # remembered in both forms: the same are committed over and over
_KEY_VERSION: Final = 1
_KEY_VERSIONS: Final = (0, 1)
_CLASSIC: Final = 3
_FLEXIBLE: Final = 4
_WITH_EXPIRY: Final = 1

_TOPIC_ID_TAG: Final = 0
_EXPIRES_TAG: Final = 10_000
_VARINT_BYTES: Final = 5


class MalformedOffsetError(QbusError):
    """A record of the log is not what Kafka's format says."""


class OffsetKey(NamedTuple):
    """What an offset is committed for."""

    group: str
    topic: str
    partition: int


@lru_cache(maxsize=_KEYS)
def encode_key(group: str, topic: str, partition: int) -> bytes:
    """Encode the key of an offset's record."""
    name, of = group.encode(), topic.encode()
    return b"".join(
        (
            _SHORT.pack(_KEY_VERSION),
            _SHORT.pack(len(name)),
            name,
            _SHORT.pack(len(of)),
            of,
            _INT.pack(partition),
        )
    )


@lru_cache(maxsize=_KEYS)
def decode_key(key: bytes) -> OffsetKey | None:
    """Decode a record's key; None: the record is about something else than an offset.

    Raises:
        MalformedOffsetError: it is cut off.
    """
    try:
        (version,) = _SHORT.unpack_from(key)
        if version not in _KEY_VERSIONS:
            return None
        group, at = _classic_text(key, 2)
        topic, at = _classic_text(key, at)
        (partition,) = _INT.unpack_from(key, at)
    except (error, ValueError) as problem:
        raise MalformedOffsetError(f"not the key of an offset: {key[:200]!r}") from problem
    return OffsetKey(group, topic, partition)


def encode_value(offset: Offset) -> bytes:
    """Encode a committed offset, in the oldest version that has all of it."""
    position, leader_epoch, text, committed_at, expires_at, topic_id = offset
    if not text and expires_at is None and topic_id != NO_TOPIC_ID:  # as nearly all are
        return _COMMON.pack(
            _FLEXIBLE, position, leader_epoch, 1, committed_at, 1, _TOPIC_ID_TAG, 16, topic_id
        )
    metadata = text.encode()
    if topic_id == NO_TOPIC_ID and expires_at is None:
        fixed = _FIXED.pack(_CLASSIC, offset.offset, offset.leader_epoch)
        length = _SHORT.pack(len(metadata))
        return b"".join((fixed, length, metadata, _LONG.pack(offset.committed_at)))
    tags = []
    if offset.topic_id != NO_TOPIC_ID:
        tags.append(_tagged(_TOPIC_ID_TAG, offset.topic_id))
    if offset.expires_at is not None:
        tags.append(_tagged(_EXPIRES_TAG, _LONG.pack(offset.expires_at)))
    return b"".join(
        (
            _FIXED.pack(_FLEXIBLE, offset.offset, offset.leader_epoch),
            _varint(len(metadata) + 1),
            metadata,
            _LONG.pack(offset.committed_at),
            _varint(len(tags)),
            *tags,
        )
    )


def decode_value(value: bytes) -> Offset:
    """Decode a committed offset.

    Raises:
        MalformedOffsetError: it is of a version that is not known, or cut off.
    """
    try:
        (version,) = _SHORT.unpack_from(value)
        if version == _FLEXIBLE:
            return _decode_flexible(value)
        if not 0 <= version <= _CLASSIC:
            raise ValueError(f"version {version}")
        (position,) = _LONG.unpack_from(value, 2)
        at, leader_epoch, expires = 10, -1, -1
        if version == _CLASSIC:
            (leader_epoch,) = _INT.unpack_from(value, at)
            at += 4
        metadata, at = _classic_text(value, at)
        (committed_at,) = _LONG.unpack_from(value, at)
        if version == _WITH_EXPIRY:
            (expires,) = _LONG.unpack_from(value, at + 8)
    except (error, ValueError, IndexError) as problem:
        raise MalformedOffsetError(f"not an offset: {value[:200]!r}") from problem
    return Offset(position, leader_epoch, metadata, committed_at, None if expires < 0 else expires)


def _decode_flexible(value: bytes) -> Offset:
    _, position, leader_epoch = _FIXED.unpack_from(value)
    length, at = _read_varint(value, _FIXED.size)
    metadata, at = _text(value, at, length - 1)
    (committed_at,) = _LONG.unpack_from(value, at)
    count, at = _read_varint(value, at + 8)
    topic_id, expires_at = NO_TOPIC_ID, None
    for _ in range(count):
        tag, at = _read_varint(value, at)
        size, at = _read_varint(value, at)
        data = value[at : at + size]
        if len(data) != size:
            raise ValueError("cut off")
        if tag == _TOPIC_ID_TAG and size == len(NO_TOPIC_ID):
            topic_id = bytes(data)
        elif tag == _EXPIRES_TAG:
            (expires_at,) = _LONG.unpack(data)
        at += size
    return Offset(position, leader_epoch, metadata, committed_at, expires_at, topic_id)


def _classic_text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _SHORT.unpack_from(data, at)
    return _text(data, at + 2, length)


def _text(data: bytes, at: int, length: int) -> tuple[str, int]:
    end = at + length
    if length < 0 or end > len(data):
        raise ValueError("cut off")
    return str(data[at:end], "utf-8"), end


def _tagged(tag: int, data: bytes) -> bytes:
    return _varint(tag) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    """Encode an unsigned varint: seven bits a byte, the least significant first."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(_VARINT_BYTES):
        byte = data[at + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, at + index + 1
    raise ValueError("a varint is too long")
