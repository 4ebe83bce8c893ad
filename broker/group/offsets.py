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
