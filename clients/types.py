"""The types that the clients take and return: small and immutable."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from operator import index
from typing import Any, NamedTuple, SupportsIndex, TypeVar, overload
from uuid import UUID

from qbus.names import TopicPartition as TopicPartition  # noqa: PLC0414 - re-exported
from qbus.records import ConsumerRecord as ConsumerRecord  # noqa: PLC0414 - re-exported

Moment = datetime | int
"""A time: a datetime (without a zone: local time), or milliseconds since the Unix epoch."""
Duration = timedelta | int | str
"""A timedelta, milliseconds, or text such as ``15m``."""

LATEST = -1
"""In place of an offset or a time: after the last record."""
EARLIEST = -2
"""In place of an offset or a time: the first record there is."""
MAX_TIMESTAMP = -3
"""In place of a time: the record with the largest timestamp."""
NO_ID = UUID(int=0)
"""A topic's id where the broker names none: before Kafka 2.8."""


class RecordMetadata(NamedTuple):
    """Where a record is stored. The offset is -1 with ``acks=0``, which has no acknowledgement."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class BatchMetadata(NamedTuple):
    """Where records sent together are stored: at ``base_offset`` and the offsets after it."""

    topic: str
    partition: int
    base_offset: int
    records_count: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class PartitionRecords:
    """Records of one partition, in order.

    ``topic_id``: the id of their topic; None: the broker names none.
    """

    topic: str
    partition: int
    records: list[ConsumerRecord]
    topic_id: UUID | None = None

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)


class OffsetAndTimestamp(NamedTuple):
    """The result of a look-up by time; both are -1 when there is no such record."""

    offset: int
    timestamp: int


class OffsetAndMetadata(NamedTuple):
    """A committed offset (of the next record to read), and the metadata stored with it.

    ``topic_id``: the id of the topic that the offset is in. A commit with it is refused if the
    topic was deleted, also if another topic has its name now. None: any topic of that name.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    topic_id: UUID | None = None


class GroupMetadata(NamedTuple):
    """A consumer's place in its group, by which a transaction commits offsets for it (KIP-447)."""

    group: str
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A broker."""

    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The brokers, and the id of the controller (-1: none is known)."""

    cluster_id: str
    controller_id: int
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition and the ids of the brokers that hold it (leader -1: it has none)."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic; its partitions in order of their index.

    ``is_internal``: it is one of Kafka's own, or one that clients of Qbus keep their state in.
    """

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class ConfigKind(IntEnum):
    """What a configuration belongs to (the protocol's resource types)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a configuration's value comes from (the protocol's numbers)."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One key of a configuration; the value of a sensitive key is None."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None

    @property
    def is_default(self) -> bool:
        """Whether it has its default value."""
        return self.source is ConfigSource.DEFAULT


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group by name, state ("Stable", "Empty", ...) and type ("classic", "consumer", ...).

    State and type are "" where the broker is too old to report them.
    """

    group: str
    protocol_type: str
    state: str
    type: str = ""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group and the partitions assigned to it.

    In a group of the consumer protocol (KIP-848) it has an ``epoch``, and ``target`` are the
    partitions that it is to have; ``is_classic``: it speaks the classic protocol all the same.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None
    is_classic: bool = True


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group: its state, assignor, coordinator and members.

    ``type``: "classic", "consumer" (KIP-848) or "share" (KIP-932). The latter two have an
    ``epoch``, which counts their changes.
    """

    group: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: Node
    members: tuple[MemberDescription, ...]
    type: str = "classic"
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """A group's committed offset in a partition that holds ``start_offset`` to ``end_offset``.

    Those two are -1 when they are unknown, such as for a deleted topic; ``problem`` says why they
    cannot be read now. The committed offset is -1 when there is none: then the lag is the whole
    log. Of a share group it is the offset before which all records are done, and ``undone`` counts
    the records that are not; -1: unknown.
    """

    topic: str
    partition: int
    committed_offset: int
    metadata: str
    start_offset: int
    end_offset: int
    problem: str = ""
    undone: int = -1

    @property
    def lag(self) -> int:
        """Records in the partition that the group has not committed, or done, yet."""
        if self.undone >= 0:
            return self.undone
        return max(self.end_offset - max(self.committed_offset, self.start_offset), 0)


@dataclass(frozen=True, slots=True)
class DamagedBatches:
    """Batches that a Qbus broker cannot read from its disk: reading them is CORRUPT_MESSAGE.

    ``position`` and ``size`` in bytes say where they are in the file ``path``; 0 bytes: the file
    ends before them. ``last_offset`` is included, -1 where it is not known. ``since_ms``: when they
    were found, in milliseconds since the Unix epoch.
    """

    path: str
    position: int
    size: int
    first_offset: int
    last_offset: int
    since_ms: int
    problem: str


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """A partition in a log directory and its size in bytes.

    ``is_future``: it is being moved here from another directory of the broker. ``lag``: how many
    records it is behind the high watermark, or behind the replica it is copied from.
    ``compaction_problem``: why a Qbus broker does not compact it, empty unless it is damaged.
    ``damage``: the batches that a Qbus broker cannot read.
    """

    topic: str
    partition: int
    size: int
    lag: int = 0
    is_future: bool = False
    compaction_problem: str = ""
    damage: tuple[DamagedBatches, ...] = ()


@dataclass(frozen=True, slots=True)
class LogDir:
    """A broker's log directory; its volume's bytes are -1 where the broker does not report them.

    ``problem``: why it is offline, or takes no records; empty where all is well, and of brokers
    that do not say.
    """

    node_id: int
    path: str
    is_online: bool
    total_bytes: int
    usable_bytes: int
    replicas: tuple[ReplicaSize, ...]
    problem: str = ""


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partitions' indexes by topic, as requests nest them."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


def by_topic_and_id(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> dict[tuple[str, UUID], list[int]]:
    """Return the partitions by topic and its id, which is NO_ID where the offsets have none."""
    grouped: dict[tuple[str, UUID], list[int]] = {}
    for (topic, partition), offset in offsets.items():
        grouped.setdefault((topic, offset.topic_id or NO_ID), []).append(partition)
    return grouped


T = TypeVar("T")

Partition = tuple[str, int]
"""A topic and the number of a partition, such as a :class:`TopicPartition`."""


def _partition(topic: str, number: SupportsIndex) -> TopicPartition:
    """Return a partition whose number may be any integer, such as one of NumPy's."""
    return TopicPartition(topic, index(number))


@overload
def named(partitions: Iterable[Partition]) -> list[TopicPartition]: ...


@overload
def named(partitions: Iterable[Partition] | None) -> list[TopicPartition] | None: ...


def named(partitions: Iterable[Partition] | None) -> list[TopicPartition] | None:
    """Return pairs of a topic and a number as partitions; None stays None."""
    return None if partitions is None else [_partition(*pair) for pair in partitions]


def keyed(values: Mapping[Any, T]) -> dict[TopicPartition, T]:
    """Return values by partition; the keys may be pairs of a topic and a number."""
    return {_partition(*pair): value for pair, value in values.items()}


def committable(offsets: Mapping[Any, Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets by partition as they are committed; the keys may be as those of :func:`keyed`.

    Raises TypeError for anything but a number or an :class:`OffsetAndMetadata`.
    """
    whole = {}
    for partition, offset in keyed(offsets).items():
        if not isinstance(offset, int | OffsetAndMetadata):
            kind = type(offset).__name__
            raise TypeError(f"an offset is a number or an OffsetAndMetadata, not {kind}")
        whole[partition] = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
    return whole


def where_of(topic: str | Partition, partition: int | None) -> TopicPartition:
    """Return the partition that is given as one, or as its topic and number."""
    if isinstance(topic, str):
        if partition is None:
            raise TypeError(f"which partition of {topic}?")
        return _partition(topic, partition)
    if partition is not None:
        raise TypeError(f"which partition: {topic[0]}-{topic[1]}, or {partition}?")
    return _partition(*topic)


def where_and_value(
    topic: str | Partition, partition: int | None, value: int | None, name: str
) -> tuple[TopicPartition, int]:
    """Return a partition, given as one or as two, and the ``value`` called ``name`` behind it."""
    if not isinstance(topic, str) and value is None:
        partition, value = None, partition
    where = where_of(topic, partition)
    if value is None:
        raise TypeError(f"{name} is missing")
    return where, value


def with_offset(
    place: Partition | tuple[str, int, int | None],
) -> tuple[TopicPartition, int | None]:
    """Return a partition and the offset that may stand behind it."""
    topic, partition, *offset = place
    return _partition(topic, partition), offset[0] if offset else None
