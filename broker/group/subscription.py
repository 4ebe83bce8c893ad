"""What can be read of a consumer's opaque bytes: topics it subscribes to, partitions it was given.

Members with protocol type ``consumer`` put these into their metadata and assignments (Kafka's
ConsumerProtocolSubscription and ConsumerProtocolAssignment). Every version starts with the fields
of version 0, so that version is read of all::

    subscription = version:int16 topics:[string]
    assignment   = version:int16 topics:[name:string partitions:[int32]]

with int32 array counts and int16 string lengths, big-endian. The bytes come from clients: what
does not parse is taken for unknown, and never an error.
"""

import struct
from typing import Final

from .core import GroupCore

CONSUMER: Final = "consumer"

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


class _MalformedError(Exception):
    pass


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        return self._number(_INT16)

    def count(self, item_size: int) -> int:
        """An array's length, that the bytes left can hold."""
        count = self._number(_INT32)
        if not 0 <= count * item_size <= len(self._data) - self._at:
            raise _MalformedError
        return count

    def string(self) -> str:
        length = self.int16()
        start, self._at = self._at, self._at + length
        if length < 0 or self._at > len(self._data):
            raise _MalformedError
        try:
            return self._data[start : self._at].decode()
        except UnicodeDecodeError:
            raise _MalformedError from None

    def int32s(self) -> tuple[int, ...]:
        count = self.count(4)
        start, self._at = self._at, self._at + 4 * count
        return struct.unpack_from(f">{count}i", self._data, start)

    def _number(self, form: struct.Struct) -> int:
        try:
            (value,) = form.unpack_from(self._data, self._at)
        except struct.error:
            raise _MalformedError from None
        self._at += form.size
        return int(value)


def topics_of(subscription: bytes) -> frozenset[str] | None:
    """The topics that a consumer subscribes to, or None if it does not say so legibly."""
    reader = _Reader(subscription)
    try:
        reader.int16()
        return frozenset([reader.string() for _ in range(reader.count(2))])
    except _MalformedError:
        return None


def partitions_of(assignment: bytes) -> list[tuple[str, int]]:
    """The partitions that a consumer was given; none if that is not legible."""
    reader = _Reader(assignment)
    found: list[tuple[str, int]] = []
    try:
        reader.int16()
        for _ in range(reader.count(6)):
            topic = reader.string()
            found.extend((topic, partition) for partition in reader.int32s())
    except _MalformedError:
        return []
    return found


def is_subscribed(group: GroupCore, topic: str) -> bool:
    """Whether a group of consumers may be reading this topic; to be on the safe side if unknown."""
    if group.protocol_type != CONSUMER:
        return False
    subscriptions = [topics_of(member.metadata(group.protocol)) for member in group.members]
    return any(topics is None or topic in topics for topics in subscriptions)
