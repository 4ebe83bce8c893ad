"""Committed offsets, and how long they live."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from qbus.consumer_protocol import CONSUMER

from ..metadata.image import Topic
from .machine import GroupMachine
from .state import GroupState

TopicPartition = tuple[str, int]

NO_TOPIC_ID = bytes(16)
"""The topic id of an offset whose topic had none when it was committed."""


class Offset(NamedTuple):
    """An offset that a group committed for one partition.

    ``metadata`` belongs to the client. ``leader_epoch`` is -1 if the client gave none.
    ``committed_at`` and ``expires_at`` are in milliseconds since the Unix epoch; ``expires_at`` is
    set only if the client gave a retention. ``topic_id`` tells apart topics of the same name.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    committed_at: int = 0
    expires_at: int | None = None
    topic_id: bytes = NO_TOPIC_ID


Offsets = Mapping[str, Mapping[int, Offset]]


def committed_for(
    topics: Iterable[Topic], offsets_of: Callable[[str], Mapping[int, Offset]]
) -> list[TopicPartition]:
    """Of which partitions of topics there are offsets; not of others of the same names.

    ``offsets_of``: returns what is committed for topics of a name.
    """
    return [
        (topic.name, partition)
        for topic in topics
        for partition, offset in offsets_of(topic.name).items()
        if offset.topic_id in {topic.id, NO_TOPIC_ID}
    ]


def _common_id(offsets: Mapping[int, Offset]) -> bytes | None:
    """The id of the topic that all offsets are of; None: they are of several.

    Offsets without an id do not count; NO_TOPIC_ID: none has one.
    """
    found = {one.topic_id for one in offsets.values()}
    found.discard(NO_TOPIC_ID)
    if len(found) > 1:
        return None
    return found.pop() if found else NO_TOPIC_ID


class PresentOffsets(Mapping[str, Mapping[int, Offset]]):
    """A view of a group's offsets without stale ones.

    Stale is an offset of a deleted topic under whose name there is another topic now: that one
    would begin where the former had been read. While there is no topic of that name, nothing is
    stale. Read it before the next ``await``.
    """

    def __init__(
        self, offsets: Offsets, topics: Mapping[str, Topic], topic_ids: dict[str, bytes]
    ) -> None:
        """``topics``: those that exist now.

        ``topic_ids``: where it is remembered of which topic all offsets of a name are, so that
        they need not be looked at again. Whoever changes the offsets sees to it, as by
        :func:`is_of_other`.
        """
        self._offsets = offsets
        self._topics = topics
        self._topic_ids = topic_ids

    def __getitem__(self, name: str) -> Mapping[int, Offset]:
        some = self._offsets[name]
        topic = self._topics.get(name)
        if topic is None or self._is_of(topic, some):
            return some
        return {at: one for at, one in some.items() if not is_of_other(topic.id, one)}

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._offsets if self[name])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def stale(self) -> list[TopicPartition]:
        """For which partitions there are stale offsets."""
        found: list[TopicPartition] = []
        for name, some in self._offsets.items():
            topic = self._topics.get(name)
            if topic is not None and not self._is_of(topic, some):
                found += ((name, at) for at, one in some.items() if is_of_other(topic.id, one))
        return found

    def _is_of(self, topic: Topic, offsets: Mapping[int, Offset]) -> bool:
        """Whether no offset committed for a topic's name is of another topic."""
        known = self._topic_ids.get(topic.name)
        if known is None:
            known = _common_id(offsets)
            if known is None:
                return False
            self._topic_ids[topic.name] = known
        return known in {topic.id, NO_TOPIC_ID}


def is_of_other(topic_id: bytes, offset: Offset) -> bool:
    """Whether an offset is known to be of another topic than the one with an id."""
    return offset.topic_id not in {topic_id, NO_TOPIC_ID}


@dataclass(frozen=True, slots=True)
class Retention:
    """How long offsets are kept after their group became empty, in milliseconds.

    Commit times are rounded up to a hundredth of it, at most an hour, so that they rarely change
    and need not be written with every commit. No offset expires early because of that.
    """

    milliseconds: int

    def round(self, time_ms: int) -> int:
        """Round a time up as it is stored with an offset."""
        step = max(1, min(self.milliseconds // 100, 3_600_000))
        return -(-time_ms // step) * step

    def expired(
        self, group: GroupMachine, offsets: Offsets, since_ms: int, now_ms: int
    ) -> Iterator[TopicPartition]:
        """Find the expired offsets; ``since_ms`` is when the group entered its state.

        As in Kafka (KIP-211), the retention of an offset starts

        - with its commit, in a stable group that no longer subscribes to its topic;
        - when the group became empty, in an empty group;
        - with its commit, in a group that never had members.
        """
        empty = group.state is GroupState.EMPTY
        stable_consumers = group.state is GroupState.STABLE and group.protocol_type == CONSUMER
        if not (empty or stable_consumers):
            return
        had_members = empty and group.protocol_type is not None
        for topic, partitions in offsets.items():
            if group.is_subscribed(topic):
                continue
            for partition, offset in partitions.items():
                start = since_ms if had_members else offset.committed_at
                ends = start + self.milliseconds if offset.expires_at is None else offset.expires_at
                if ends <= now_ms:
                    yield topic, partition
