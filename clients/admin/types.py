"""Types that only the admin client takes and returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from qbus.security.acls import Entry as Entry  # noqa: PLC0414 - re-exported, as what follows
from qbus.security.acls import Filter as Filter  # noqa: PLC0414
from qbus.security.acls import Operation as Operation  # noqa: PLC0414
from qbus.security.acls import Pattern as Pattern  # noqa: PLC0414
from qbus.security.acls import PatternType as PatternType  # noqa: PLC0414
from qbus.security.acls import Permission as Permission  # noqa: PLC0414
from qbus.security.acls import ResourceType as ResourceType  # noqa: PLC0414
from qbus.security.acls import Rule as Rule  # noqa: PLC0414

from ..types import TopicPartition

TopicRef = str | UUID
"""A topic by its name or by its id."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 leaves a number to the broker.

    ``assignments``: the brokers of each partition, the first of them the preferred leader, in place
    of the two numbers.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[Sequence[int]] | None = None
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A created topic; numbers are -1 and the id is 0 where the broker does not report them."""

    name: str
    topic_id: UUID
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition on the move: its replicas now, those added and those removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DelayedRecord:
    """A record that is held back until it is due. Times in milliseconds since the Unix epoch.

    Its producer, who sent it at ``taken``, was told ``original_offset``; by now it may lie at
    another ``offset``. ``size``: bytes of its key and value.

    ``ttl`` (milliseconds after ``due``), value and headers are known only of a record that was
    asked for by itself.
    """

    due: int
    offset: int
    original_offset: int
    taken: int
    key: bytes | None
    size: int
    ttl: int | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class DelayedRecords:
    """How many records a partition holds back, when the next is due (None: there are none), some.

    ``records`` are in the order in which they are due.
    """

    pending: int
    next_due: int | None
    records: tuple[DelayedRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueState:
    """What a share group did in a partition, which its leader knows.

    ``start_offset``: the group is done with all records before it; -1: it has done nothing here.
    ``length`` records wait to be given out, ``in_flight`` are given out, ``delayed`` wait for a
    time after they came back, ``given_up`` for the dead letter topic. ``oldest_ms``: the age of the
    oldest that is not done; None: there is none. The rest counts records since the leader leads.
    """

    start_offset: int
    length: int
    in_flight: int
    delayed: int
    oldest_ms: int | None
    taken: int
    acknowledged: int
    released: int
    timeouts: int
    dead_letters: int
    dropped: int
    filtered: int
    expired: int
    given_up: int = 0


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id, its coordinator, and its state ("Ongoing", "Empty", ...)."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id and its last transaction.

    ``start_time`` is in milliseconds since the Unix epoch, None while no transaction is open;
    ``partitions`` are those that the open one writes to, or whose marker is still missing.
    """

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction that a partition holds open and that no coordinator will end.

    Consumers of committed records do not get past ``start_offset``. ``last_timestamp`` is that of
    its latest record, in milliseconds since the Unix epoch.
    """

    topic: str
    partition: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_timestamp: int


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What a partition remembers of a producer; -1 where nothing is known.

    ``last_timestamp`` is in milliseconds since the Unix epoch, ``transaction_start`` the first
    offset of its open transaction.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start: int


@dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    """What may be known of a stored SCRAM credential."""

    mechanism: str
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramUpsert:
    """A SCRAM credential to store. Brokers get its salted hash, never the password."""

    user: str
    password: str = field(repr=False)
    mechanism: str = "SCRAM-SHA-512"
    iterations: int = 8192


QuotaEntity = tuple[tuple[str, str | None], ...]
"""Whom a quota concerns: types ("user", "client-id", "ip") and names; None: the default."""
