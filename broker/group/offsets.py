"""Committed offsets, and how long they live."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from qbus.consumer_protocol import CONSUMER, decode_topics
from qbus.errors import WireError

from .group import Group
from .state import GroupState

TopicPartition = tuple[str, int]

NO_TOPIC_ID = bytes(16)
"""The topic id of an offset whose topic had none when it was committed."""


class Offset(NamedTuple):
    """A position that a group committed for one partition.

    ``metadata`` is the client's own; ``leader_epoch`` is -1 if it told none. ``committed_at`` and
    ``expires_at`` (only if the client set a retention of its own) are in milliseconds since the
    Unix epoch. ``topic_id`` tells a topic from its namesake that was deleted.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    committed_at: int = 0
    expires_at: int | None = None
    topic_id: bytes = NO_TOPIC_ID


Offsets = Mapping[str, Mapping[int, Offset]]


@dataclass(frozen=True, slots=True)
class Retention:
    """How long offsets live after their group emptied, in milliseconds.

    Times of commit are rounded up to a hundredth of that, at most an hour: so they rarely change,
    and need not be written with every commit. No offset expires early for it.
    """

    milliseconds: int

    def round(self, time_ms: int) -> int:
        """The time as it is kept with an offset."""
        step = max(1, min(self.milliseconds // 100, 3_600_000))
        return -(-time_ms // step) * step

    def expired(
        self, group: Group, offsets: Offsets, since_ms: int, now_ms: int
    ) -> Iterator[TopicPartition]:
        """The offsets whose time is up; ``since_ms`` is when the group entered its state.

        As Kafka does (KIP-211): those of a group with members while it is stable, for topics it no
        longer subscribes to, from their commit on; those of an empty group from when it emptied;
        those of a group that never had members from their commit on.
        """
        empty = group.state is GroupState.EMPTY
        stable_consumers = group.state is GroupState.STABLE and group.protocol_type == CONSUMER
        if not (empty or stable_consumers):
            return
        had_members = empty and group.protocol_type is not None
        for topic, partitions in offsets.items():
            if is_subscribed(group, topic):
                continue
            for partition, offset in partitions.items():
                start = since_ms if had_members else offset.committed_at
                ends = start + self.milliseconds if offset.expires_at is None else offset.expires_at
                if ends <= now_ms:
                    yield topic, partition


def is_subscribed(group: Group, topic: str) -> bool:
    """Whether a group of consumers may read this topic; a subscription that is illegible may."""
    if group.protocol_type != CONSUMER:
        return False
    try:
        return any(
            topic in decode_topics(member.metadata(group.protocol)) for member in group.members
        )
    except WireError:
        return True
