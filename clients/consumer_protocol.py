"""What members of a consumer group tell each other, which brokers pass on without reading.

Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment, versions 0 to 3, big-endian,
behind a two-byte version: version 1 adds the partitions that a member owns (KIP-429), 2 the
generation in which it got them (KIP-792), 3 its rack (KIP-881). A later version only adds fields at
the end, so whatever is read here is in all of them.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from qbus.errors import WireError

from .types import TopicPartition

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_VERSION = 3
_NULL = -1
NO_GENERATION = -1


class Subscription(NamedTuple):
    """What a member says when it joins.

    ``topics`` that it wants; ``owned``: the partitions that it still has, got in ``generation``
    (-1: it does not say); ``user_data``: what the assignors of all members understand among
    themselves; ``rack``: where it runs.
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None
    generation: int = NO_GENERATION
    rack: str | None = None


def encode_subscription(subscription: Subscription) -> bytes:
    """A member's metadata for JoinGroup."""
    topics = sorted(subscription.topics)
    return b"".join(
        [
            _INT16.pack(_VERSION),
            _INT32.pack(len(topics)),
            *map(_string, topics),
            _nullable_bytes(subscription.user_data),
            encode_partitions(subscription.owned),
            _INT32.pack(subscription.generation),
            _INT16.pack(_NULL) if subscription.rack is None else _string(subscription.rack),
        ]
    )


def decode_subscription(data: bytes) -> Subscription:
    """A member's metadata; raises :class:`~qbus.errors.WireError`."""
    reader = Reader(data)
    version = reader.int16()
    topics = tuple(reader.string() for _ in range(reader.count()))
    user_data = reader.nullable_bytes()
    owned = reader.partitions() if version >= 1 else ()
    generation = reader.int32() if version >= 2 else NO_GENERATION
    rack = reader.nullable_string() if version >= 3 else None
    return Subscription(topics, owned, user_data, generation, rack)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """A member's assignment for SyncGroup."""
    return _INT16.pack(_VERSION) + encode_partitions(partitions) + _nullable_bytes(None)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of an assignment (none for no bytes).

    Raises :class:`~qbus.errors.WireError`.
    """
    if not data:
        return ()
    reader = Reader(data)
    reader.int16()
    return reader.partitions()


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Partitions below their topics, in order, as all these structures nest them."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    parts = [_INT32.pack(len(by_topic))]
    for topic, indexes in by_topic.items():
        parts += [_string(topic), _INT32.pack(len(indexes)), *map(_INT32.pack, indexes)]
    return b"".join(parts)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def _nullable_bytes(data: bytes | None) -> bytes:
    return _INT32.pack(_NULL) if data is None else _INT32.pack(len(data)) + data


class Reader:
    """Reads fields in turn from bytes that another client wrote.

    Every method raises :class:`~qbus.errors.WireError` for what is not there.
    """

    def __init__(self, data: bytes) -> None:
        self._data = bytes(data)
        self._pos = 0

    @property
    def is_at_end(self) -> bool:
        """Whether everything was read."""
        return self._pos == len(self._data)

    def int16(self) -> int:
        """A two-byte integer."""
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        """A four-byte integer."""
        return int.from_bytes(self._take(4), "big", signed=True)

    def count(self) -> int:
        """An array's length, which what is left can hold."""
        count = self.int32()
        if not 0 <= count <= len(self._data) - self._pos:
            raise WireError(f"an array of {count} in {len(self._data)} bytes")
        return count

    def string(self) -> str:
        """A string that is there."""
        return self._text(self.int16())

    def nullable_string(self) -> str | None:
        """A string, or None."""
        length = self.int16()
        return None if length == _NULL else self._text(length)

    def nullable_bytes(self) -> bytes | None:
        """Bytes, or None."""
        length = self.int32()
        return None if length == _NULL else self._take(length)

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Partitions below their topics."""
        found = []
        for _ in range(self.count()):
            topic = self.string()
            found += [TopicPartition(topic, self.int32()) for _ in range(self.count())]
        return tuple(found)

    def _text(self, length: int) -> str:
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise WireError(f"not text: {error}") from None

    def _take(self, length: int) -> bytes:
        end = self._pos + length
        if length < 0 or end > len(self._data):
            raise WireError(f"{length} bytes at {self._pos} of {len(self._data)}")
        taken = self._data[self._pos : end]
        self._pos = end
        return taken
