"""What members of a consumer group tell each other, which brokers pass on without reading.

Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment (KIP-429, KIP-792, KIP-881),
big-endian, behind a two-byte version. A later version only adds fields at the end, so what is read
here is in all of them.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from qbus.errors import WireError

from .types import TopicPartition

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_VERSION = 1
"""With the partitions a member owns, which cooperative members look for."""
_NULL = -1

Partitions = Mapping[str, Sequence[int]]


class Subscription(NamedTuple):
    """The topics that a member wants and the partitions that it still has."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()


def encode_subscription(subscription: Subscription) -> bytes:
    """A member's metadata for JoinGroup."""
    topics = sorted(subscription.topics)
    parts = [_INT16.pack(_VERSION), _INT32.pack(len(topics)), *map(_string, topics)]
    parts += [_INT32.pack(_NULL), _partitions(subscription.owned)]
    return b"".join(parts)


def decode_subscription(data: bytes) -> Subscription:
    """A member's metadata; raises :class:`~qbus.errors.WireError`."""
    reader = _Reader(data)
    version = reader.int16()
    topics = tuple(reader.string() for _ in range(reader.count()))
    reader.nullable_bytes()
    return Subscription(topics, reader.partitions() if version >= 1 else ())


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """A member's assignment for SyncGroup."""
    return _INT16.pack(_VERSION) + _partitions(partitions) + _INT32.pack(_NULL)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of an assignment (none for no bytes).

    Raises :class:`~qbus.errors.WireError`.
    """
    if not data:
        return ()
    reader = _Reader(data)
    reader.int16()
    return reader.partitions()


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    parts = [_INT32.pack(len(by_topic))]
    for topic, indexes in by_topic.items():
        parts += [_string(topic), _INT32.pack(len(indexes)), *map(_INT32.pack, indexes)]
    return b"".join(parts)


class _Reader:
    """Reads fields in turn from bytes that another client wrote."""

    def __init__(self, data: bytes) -> None:
        self._data = bytes(data)
        self._pos = 0

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def count(self) -> int:
        """An array's length, which what is left can hold."""
        count = self.int32()
        if not 0 <= count <= len(self._data) - self._pos:
            raise WireError(f"an array of {count} in {len(self._data)} bytes")
        return count

    def string(self) -> str:
        try:
            return self._take(self.int16()).decode()
        except UnicodeDecodeError as error:
            raise WireError(f"a topic's name is not text: {error}") from None

    def nullable_bytes(self) -> bytes | None:
        length = self.int32()
        return None if length == _NULL else self._take(length)

    def partitions(self) -> tuple[TopicPartition, ...]:
        found = []
        for _ in range(self.count()):
            topic = self.string()
            found += [TopicPartition(topic, self.int32()) for _ in range(self.count())]
        return tuple(found)

    def _take(self, length: int) -> bytes:
        end = self._pos + length
        if length < 0 or end > len(self._data):
            raise WireError(f"{length} bytes at {self._pos} of {len(self._data)}")
        taken = self._data[self._pos : end]
        self._pos = end
        return taken
