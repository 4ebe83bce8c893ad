"""The codec of the consumer group protocol: subscriptions and assignments.

Members with protocol type ``consumer`` put these bytes into JoinGroup and SyncGroup. The layouts
are Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment, versions 0 to 3, with
big-endian integers, int16 string lengths and int32 array counts::

    subscription = version:int16 topics:[string] user_data:bytes
                   owned:[topic partitions:[int32]]    from version 1 (KIP-429)
                   generation:int32                    from version 2 (KIP-792)
                   rack:string                         from version 3 (KIP-881)
    assignment   = version:int16 partitions:[topic partitions:[int32]] user_data:bytes

Later versions add fields at the end, so readers of these versions understand them. Clients read
and write everything. A broker passes the bytes on; it reads only the topics and the partitions.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from qbus.errors import WireError
from qbus.names import TopicPartition

CONSUMER = "consumer"
"""The protocol type of groups whose members use this protocol."""
NO_GENERATION = -1
"""The generation of a member that has none, or does not tell it."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_VERSION = 3
_NULL = -1


class Subscription(NamedTuple):
    """What a member tells the group when it joins.

    ``topics`` are those it wants to read. ``owned`` are the partitions it still has, and
    ``generation`` is the one in which it got them. ``user_data`` belongs to the assignor. ``rack``
    is where the member runs.
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None
    generation: int = NO_GENERATION
    rack: str | None = None


def encode_subscription(subscription: Subscription) -> bytes:
    """Encode a member's metadata for JoinGroup."""
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
    """Decode a member's metadata.

    Raises:
        WireError: the bytes are malformed.
    """
    reader = Reader(data)
    version = reader.int16()
    topics = tuple(reader.string() for _ in range(reader.count(2)))
    user_data = reader.nullable_bytes()
    owned = reader.partitions() if version >= 1 else ()
    generation = reader.int32() if version >= 2 else NO_GENERATION
    rack = reader.nullable_string() if version >= 3 else None
    return Subscription(topics, owned, user_data, generation, rack)


def decode_topics(subscription: bytes) -> frozenset[str]:
    """Decode only the topics of a member's metadata, whatever follows them.

    Raises:
        WireError: the bytes are malformed.
    """
    reader = Reader(subscription)
    reader.int16()
    return frozenset([reader.string() for _ in range(reader.count(2))])


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode a member's assignment for SyncGroup."""
    return _INT16.pack(_VERSION) + encode_partitions(partitions) + _nullable_bytes(None)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Decode the partitions of an assignment; no bytes mean no partitions.

    Raises:
        WireError: the bytes are malformed.
    """
    if not data:
        return ()
    reader = Reader(data)
    reader.int16()
    return reader.partitions()


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode partitions grouped by topic, in order."""
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
    """Reads one field after the other. Every method raises WireError for malformed bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = bytes(data)
        self._pos = 0

    @property
    def is_at_end(self) -> bool:
        """Whether all bytes were read."""
        return self._pos == len(self._data)

    def int16(self) -> int:
        """A two-byte integer."""
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        """A four-byte integer."""
        return int.from_bytes(self._take(4), "big", signed=True)

    def count(self, item_size: int) -> int:
        """The number of items of an array; the remaining bytes can hold so many of this size."""
        count = self.int32()
        if not 0 <= count * item_size <= len(self._data) - self._pos:
            raise WireError(f"an array of {count} in {len(self._data)} bytes")
        return count

    def string(self) -> str:
        """A string that is not null."""
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
        """Partitions grouped by topic."""
        found: list[TopicPartition] = []
        for _ in range(self.count(6)):
            topic = self.string()
            count = self.count(4)
            indexes = struct.unpack(f">{count}i", self._take(4 * count))
            found += [TopicPartition(topic, index) for index in indexes]
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
