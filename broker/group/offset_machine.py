"""Committed offsets of one partition of ``__consumer_offsets``, as a pure state.

The state is what replaying the partition's records gives. Offsets that a transaction brings are
pending until its marker: then they count or are dropped (KIP-98). Of two commits for the same
partition the one that is later in the log counts: a transaction that ends after a later plain
commit does not undo it.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from qbus.names import OFFSETS_TOPIC

from ..internal_logs.machine import LogRecord, Outcome, Producer
from ..metadata.image import Topic
from .committing import PackedCommit
from .offset_records import (
    MalformedOffsetError,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from .offset_table import Table, new_table, store
from .offsets import NO_TOPIC_ID, Offset, Offsets, PresentOffsets, TopicPartition

_log = logging.getLogger(__name__)

_NO_OFFSETS: Final[Offsets] = {}
_MOST_EXPECTED: Final = 100_000
_NO_TOPICS: Final[Mapping[str, Topic]] = {}
_NOTHING: Final = frozenset[TopicPartition]()


class Committed(NamedTuple):
    """The offsets of a group, and the partitions for which open transactions bring others."""

    offsets: Offsets
    unstable: frozenset[TopicPartition]


NOTHING_COMMITTED = Committed(_NO_OFFSETS, _NOTHING)


class _Pending(NamedTuple):
    """An offset that a transaction brings, and where in the log it is."""

    offset: Offset
    position: int


class _GroupOffsets:
    """The offsets of one group, and what its open transactions bring, by producer id.

    ``topic_ids``: see :class:`.offsets.PresentOffsets`.
    """

    __slots__ = ("offsets", "pending", "topic_ids")

    def __init__(self) -> None:
        self.offsets: dict[str, Table] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.pending: dict[int, dict[TopicPartition, _Pending | None]] = {}

    def store(self, key: TopicPartition, offset: Offset | None, position: int) -> None:
        """Store an offset, or delete it (None); what is pending from before will not count."""
        topic, partition = key
        if offset is not None:
            self.table(topic)[partition] = offset
            if self.topic_ids:
                self.note_id(topic, offset.topic_id)
        elif topic in self.offsets:
            self.offsets[topic].pop(partition, None)
            if not self.offsets[topic]:
                del self.offsets[topic]
                self.topic_ids.pop(topic, None)
        if not self.pending:
            return
        for brought in self.pending.values():
            other = brought.get(key)
            if other is not None and other.position < position:
                brought[key] = None  # not stable until the transaction's end, all the same

    def table(self, topic: str) -> Table:
        """The offsets of a topic, to which there come some now."""
        table = self.offsets.get(topic)
        if table is None:
            table = self.offsets[topic] = new_table()
        return table

    def note_id(self, topic: str, topic_id: bytes) -> None:
        """Some offsets of a name are of a topic with this id now."""
        known = self.topic_ids.get(topic)
        if known is not None and topic_id not in (known, NO_TOPIC_ID):
            del self.topic_ids[topic]

    @property
    def is_empty(self) -> bool:
        return not self.offsets and not self.pending


class OffsetsMachine:
    """The committed offsets of the groups of one partition."""

    def __init__(self, partition: int = 0) -> None:
        """``partition``: its index, for the log."""
        self._partition = partition
        self._groups: dict[str, _GroupOffsets] = {}
        self._written: dict[bytes, Offset] = {}
        self._transactions: dict[int, set[str]] = {}  # the groups of each open one, by producer

    # As a shard's state

    @property
    def next_tick_ms(self) -> int | None:
        """Never: groups expire offsets, for it depends on their members."""
        return None

    def tick(self, now_ms: int) -> Outcome[None] | None:  # noqa: ARG002 - a machine's signature
        """Do nothing."""
        return None

    def replay(
        self,
        key: bytes,
        value: bytes | None,
        offset: int,
        timestamp: int,  # noqa: ARG002 - a machine's signature
        producer: Producer | None,
    ) -> None:
        """Take in a record; one that is about something else, or malformed, changes nothing."""
        try:
            about = decode_key(key)
            committed = None
            if value is not None:
                committed = self._written.pop(value, None) or decode_value(value)
        except MalformedOffsetError as error:
            where = f"{OFFSETS_TOPIC}-{self._partition}"
            _log.error("a record of %s at offset %d is skipped: %s", where, offset, error)
            return
        if about is None:
            return
        group = self._group(about.group)
        place = (about.topic, about.partition)
        if producer is None:
            group.store(place, committed, offset)
        elif committed is not None:
            brought = group.pending.setdefault(producer[0], {})
            brought[place] = _Pending(committed, offset)
            self._transactions.setdefault(producer[0], set()).add(about.group)
        self._forget_if_empty(about.group)

    def store(
        self,
        group_id: str,
        stored: Sequence[tuple[TopicPartition, Offset | None]],
        first_offset: int,
    ) -> None:
        """Take in plain commits, whose records are in the log from ``first_offset`` on."""
        group = self._group(group_id)
        position = first_offset
        for place, offset in stored:
            group.store(place, offset, position)
            position += 1
        self._forget_if_empty(group_id)

    def store_packed(self, commit: PackedCommit, first_offset: int) -> None:
        """The same of a commit that came packed."""
        group = self._group(commit.group_id)
        if group.pending:
            self.store(commit.group_id, commit.offsets(), first_offset)
            return
        for name, topic_id, packed, count in commit.topics:
            store(group.table(name), packed, count, commit.committed_at, topic_id)
            group.note_id(name, topic_id)

    def _group(self, group_id: str) -> _GroupOffsets:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = _GroupOffsets()
        return group

    def expect(self, value: bytes, offset: Offset) -> None:
        """A record with this value is about to be replayed: it need not be decoded."""
        if len(self._written) >= _MOST_EXPECTED:
            self._written.clear()
        self._written[value] = offset

    def marker(self, producer_id: int, epoch: int, *, committed: bool) -> None:  # noqa: ARG002
        """End a transaction: what it brought counts or is dropped."""
        for group_id in self._transactions.pop(producer_id, ()):
            group = self._groups[group_id]
            brought = group.pending.pop(producer_id)
            for place, pending in brought.items():
                if committed and pending is not None:
                    group.store(place, pending.offset, pending.position)
            self._forget_if_empty(group_id)

    def _forget_if_empty(self, group_id: str) -> None:
        if self._groups[group_id].is_empty:
            del self._groups[group_id]

    # For reading

    def group_ids(self) -> list[str]:
        """The groups that have offsets, or get some from open transactions."""
        return list(self._groups)

    def has(self, group_id: str) -> bool:
        """Whether a group has offsets, or gets some from open transactions."""
        return group_id in self._groups

    @property
    def transactions(self) -> int:
        """Number of open transactions that bring offsets."""
        return len(self._transactions)

    def offsets(self, group_id: str) -> Offsets:
        """The offsets of a group, as they are until the next change."""
        group = self._groups.get(group_id)
        return _NO_OFFSETS if group is None else group.offsets

    def present(self, group_id: str, topics: Mapping[str, Topic]) -> PresentOffsets:
        """The same without stale ones; ``topics`` are those that exist."""
        group = self._groups.get(group_id)
        if group is None:
            return PresentOffsets(_NO_OFFSETS, topics, {})
        return PresentOffsets(group.offsets, topics, group.topic_ids)

    def copy(self, group_id: str, topics: Mapping[str, Topic]) -> Offsets:
        """The offsets of a group as they are now, without stale ones."""
        group = self._groups.get(group_id)
        if group is None:
            return _NO_OFFSETS
        copied = {topic: table.copy() for topic, table in group.offsets.items()}
        return PresentOffsets(copied, topics, group.topic_ids.copy())

    def unstable(self, group_id: str) -> frozenset[TopicPartition]:
        """The partitions for which open transactions bring offsets to a group."""
        group = self._groups.get(group_id)
        if group is None or not group.pending:
            return _NOTHING
        return frozenset(place for brought in group.pending.values() for place in brought)

    def committed(self) -> Iterator[tuple[str, Offsets]]:
        """Every group with its offsets."""
        for group_id, group in list(self._groups.items()):
            yield group_id, group.offsets


def read(
    machine: OffsetsMachine, group_id: str, topics: Mapping[str, Topic] = _NO_TOPICS
) -> Outcome[Committed]:
    """Read the offsets of a group as they are now, without stale ones.

    ``topics``: those that exist; without, no offset is stale.
    """
    return Outcome(Committed(machine.copy(group_id, topics), machine.unstable(group_id)))


def commit(
    packed: PackedCommit,
    machine: OffsetsMachine,
    now_ms: int,  # noqa: ARG001 - an operation's signature
) -> Outcome[None]:
    """Store what came packed."""
    return Outcome(None, packed=packed, apply=partial(machine.store_packed, packed))


def change(
    machine: OffsetsMachine,
    now_ms: int,
    group_id: str,
    offsets: Mapping[TopicPartition, Offset | None],
    producer: Producer | None = None,
) -> Outcome[None]:
    """Store offsets of a group, or delete them (None); with a ``producer``, in its transaction.

    Offsets without the time of their commit get ``now_ms``.
    """
    records: list[LogRecord] = []
    stored: list[tuple[TopicPartition, Offset | None]] = []
    for place, offset in offsets.items():
        dated, value = offset, None
        if dated is not None:
            if not dated[3]:
                dated = dated._replace(committed_at=now_ms)
            value = encode_value(dated)
            if producer is not None:
                machine.expect(value, dated)
        stored.append((place, dated))
        records.append((encode_key(group_id, place[0], place[1]), value))
    if producer is not None:
        return Outcome(None, records, producer=producer)
    return Outcome(None, records, apply=partial(machine.store, group_id, stored))
