"""Records as they are read."""

from typing import NamedTuple

from qbus.records.header import TimestampType

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record of a batch. ``timestamp`` is in milliseconds since the Unix epoch."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_type: TimestampType


class ConsumerRecord(NamedTuple):
    """A record for a consumer. ``timestamp`` is in milliseconds since the Unix epoch."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_type: TimestampType
