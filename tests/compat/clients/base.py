"""What the tests ask of a client, in the same words for each of them.

A driver implements those methods of ``Client`` that its client is able to do. A test names the
methods it uses, and runs with each client that has them all.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol

from qbus.errors import ErrorCode
from tests.compat.members import Member
from tests.compat.records import Record, Stored

from .security import Security


class GroupDescription(NamedTuple):
    """A group as the coordinator describes it; members are (client id, assigned partitions)."""

    state: str
    members: tuple[tuple[str, frozenset[tuple[str, int]]], ...] = ()


class ClientError(Exception):
    """The broker's error, or the client's own with the same code."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(f"{code} {message}")
        self.code = ErrorCode(code)


class Driver:
    """The base of all drivers. Its defaults suit a client whose package is always installed."""

    name: ClassVar[str]
    compressions: ClassVar[tuple[str, ...]] = ("none", "gzip", "snappy", "lz4", "zstd")
    #: Records that this client is able to send, byte for byte.
    sendable: ClassVar[tuple[Record, ...]]
    #: Records that it is able to show, byte for byte.
    readable: ClassVar[tuple[Record, ...]]
    #: Whether it tells that no record is at or after a time, instead of giving the end.
    tells_no_offset: ClassVar[bool] = True

    def __init__(self, bootstrap: str, security: Security | None = None) -> None:
        self._bootstrap = bootstrap
        self._security = security

    @staticmethod
    def missing() -> str | None:
        """Return why the client cannot run here, or None when it can."""
        return None

    def close(self) -> None:
        """Release what the driver holds."""


class Client(Protocol):
    """The operations of drivers; a driver has those that its client is able to do."""

    name: ClassVar[str]
    compressions: ClassVar[tuple[str, ...]]
    sendable: ClassVar[tuple[Record, ...]]
    readable: ClassVar[tuple[Record, ...]]
    tells_no_offset: ClassVar[bool]

    def close(self) -> None:
        """Release what the driver holds."""

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        partition: int = 0,
        compression: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int] | None:
        """Send records and wait for their acknowledgements; return their offsets if known."""

    def consume(self, topic: str, partition: int, offset: int, count: int) -> list[Stored]:
        """Read ``count`` records by assignment; offset -2 is the earliest."""

    def consume_group(self, topic: str, group: str, count: int) -> list[Stored]:
        """Join a group, read ``count`` records, commit behind the last one and leave."""

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int:
        """Return the first offset at or after a time in milliseconds; -1 when there is none."""

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the earliest offset and the one after the last."""

    def member(self, topic: str, group: str) -> Member:
        """Start a group member in a process of its own."""

    def create_topic(
        self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic with one replica."""

    def topics(self) -> set[str]:
        """Return the names of all topics."""

    def partitions(self, topic: str) -> list[int]:
        """Return the partition numbers of a topic as its description lists them."""

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""

    def grow(self, topic: str, partitions: int) -> None:
        """Raise a topic's number of partitions to ``partitions``."""

    def config(self, topic: str) -> dict[str, str | None]:
        """Return all of a topic's configuration."""

    def set_config(self, topic: str, key: str, value: str) -> None:
        """Change one key of a topic's configuration, leaving the others as they are."""

    def replace_config(self, topic: str, config: Mapping[str, str]) -> None:
        """Replace a topic's whole configuration."""

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Delete the records below an offset; return the new earliest offset."""

    def groups(self) -> set[str]:
        """Return the ids of all groups."""

    def describe_group(self, group: str) -> GroupDescription:
        """Describe one group."""

    def committed(self, topic: str, partition: int, group: str) -> int:
        """Return a group's committed offset; -1 when there is none."""

    def commit(self, topic: str, partition: int, group: str, offset: int) -> None:
        """Set a group's committed offset from outside of the group."""

    def delete_group(self, group: str) -> None:
        """Delete an empty group."""

    def brokers(self) -> list[str]:
        """Return the ``host:port`` of the brokers in the cluster's description."""
