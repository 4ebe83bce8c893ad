"""A share group: a pure state machine. Heartbeats, time and topics in; assignments out.

A member sends heartbeats with the epoch of the assignment that it knows. There is nothing that
members would have to give up first, so a new assignment holds at once: its members learn of it with
their next heartbeats. Membership is in memory alone. A coordinator that knows a member not answers
UNKNOWN_MEMBER_ID, and the member joins again under its own name.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from qbus.errors import ApiError, ErrorCode

from .assignor import Partitions, assign, least_read

JOIN: Final = 0
LEAVE: Final = -1

_UNEVEN: Final = 2


class ShareGroupState(Enum):
    """The state of a share group, by Kafka's names. Dead groups are not kept."""

    EMPTY = "Empty"
    STABLE = "Stable"


class MemberHeartbeat(NamedTuple):
    """What a member says. ``epoch``: :data:`JOIN`, :data:`LEAVE`, or that of its assignment.

    ``rack`` and ``topics``, the names of those it subscribes to, are None where they are as before.
    """

    member_id: str
    epoch: int
    rack: str | None = None
    topics: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""


class HeartbeatResult(NamedTuple):
    """What a member is told. ``assignment`` is None where the member knows it."""

    epoch: int
    assignment: Partitions | None = None


@dataclass(slots=True)
class ShareMember:
    """A member. ``deadline``: a monotonic time in seconds at which it is given up."""

    member_id: str
    topics: tuple[str, ...]
    rack: str | None
    client_id: str
    client_host: str
    deadline: float
    epoch: int = 0
    previous_epoch: int = 0
    assignment: Partitions = field(default_factory=frozenset)
    known: Partitions | None = None  # the assignment that it was told


class ShareGroup:
    """One share group.

    ``epoch`` counts the changes of members, subscriptions and topics; ``assignment_epoch`` is the
    epoch that the assignment was made in.
    """

    def __init__(self, group_id: str, epoch: int = 0) -> None:
        self.group_id = group_id
        self.epoch = epoch
        self.assignment_epoch = epoch
        self._members: dict[str, ShareMember] = {}

    @property
    def state(self) -> ShareGroupState:
        """EMPTY without members, else STABLE: there are no rebalances."""
        return ShareGroupState.STABLE if self._members else ShareGroupState.EMPTY

    @property
    def members(self) -> Collection[ShareMember]:
        """The members, for reading."""
        return self._members.values()

    def heartbeat(
        self,
        beat: MemberHeartbeat,
        topics: Mapping[str, tuple[bytes, int]],
        *,
        now: float,
        session_s: float,
        max_size: int,
    ) -> HeartbeatResult:
        """Take in a heartbeat.

        topics: ids and numbers of partitions of the topics that exist, by name.
        now: a monotonic time in seconds.
        session_s: how long the member may be silent from now on, in seconds.
        max_size: how many members the group may have.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, GROUP_MAX_SIZE_REACHED, or
                INVALID_REQUEST of a member that joins without topics.
        """
        if beat.epoch == LEAVE:
            return self._leave(beat, topics)
        member = self._members.get(beat.member_id)
        is_current = False
        if beat.epoch == JOIN:
            member = self._join(member, beat, now + session_s, max_size, topics)
        elif member is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"{beat.member_id} is no member of {self.group_id}"
            )
        else:
            _check_epoch(member, beat.epoch)
            is_current = beat.epoch == member.epoch
            self._update(member, beat, topics)
        member.deadline = now + session_s
        if member.epoch < self.assignment_epoch:
            member.previous_epoch, member.epoch = member.epoch, self.assignment_epoch
        told = member.assignment
        if is_current and beat.topics is None and told == member.known:
            return HeartbeatResult(member.epoch)
        member.known = told
        return HeartbeatResult(member.epoch, told)

    def expire(self, now: float, topics: Mapping[str, tuple[bytes, int]]) -> list[str]:
        """Remove the members whose time is up; return their ids."""
        gone = [one.member_id for one in self._members.values() if one.deadline <= now]
        for member_id in gone:
            del self._members[member_id]
        if gone:
            self._changed(topics)
        return gone

    def topics_changed(self, names: Iterable[str], topics: Mapping[str, tuple[bytes, int]]) -> None:
        """Assign anew if members subscribe to a topic that came, went or grew."""
        changed = set(names)
        if any(not changed.isdisjoint(member.topics) for member in self._members.values()):
            self._changed(topics)

    def _leave(
        self, beat: MemberHeartbeat, topics: Mapping[str, tuple[bytes, int]]
    ) -> HeartbeatResult:
        if self._members.pop(beat.member_id, None) is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"{beat.member_id} is no member of {self.group_id}"
            )
        self._changed(topics, is_smaller=True)
        return HeartbeatResult(LEAVE)

    def _join(
        self,
        member: ShareMember | None,
        beat: MemberHeartbeat,
        deadline: float,
        max_size: int,
        topics: Mapping[str, tuple[bytes, int]],
    ) -> ShareMember:
        if not beat.topics:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a member that joins names its topics")
        if member is not None:
            self._update(member, beat, topics)
            return member
        if len(self._members) >= max_size:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"the group {self.group_id} has {max_size} members, the most that it may have",
            )
        member = ShareMember(
            beat.member_id,
            tuple(sorted(set(beat.topics))),
            beat.rack,
            beat.client_id,
            beat.client_host,
            deadline,
        )
        self._members[beat.member_id] = member
        self._changed(topics, joined=member)
        return member

    def _update(
        self, member: ShareMember, beat: MemberHeartbeat, topics: Mapping[str, tuple[bytes, int]]
    ) -> None:
        member.client_id, member.client_host = beat.client_id, beat.client_host
        if beat.rack is not None:
            member.rack = beat.rack
        if beat.topics is not None:
            wanted = tuple(sorted(set(beat.topics)))
            if wanted != member.topics:
                member.topics = wanted
                self._changed(topics)

    def _changed(
        self,
        topics: Mapping[str, tuple[bytes, int]],
        *,
        joined: ShareMember | None = None,
        is_smaller: bool = False,
    ) -> None:
        """Begin a new epoch and make its assignment.

        Where ``joined`` came, or one left (``is_smaller``), and all partitions have readers to
        spare, the others keep what they have: a group of thousands is not assigned anew for each.
        """
        self.epoch += 1
        self.assignment_epoch = self.epoch
        sizes = {
            topics[name][0]: topics[name][1]
            for member in self._members.values()
            for name in member.topics
            if name in topics
        }
        if (joined is not None or is_smaller) and self._has_readers_to_spare(sizes):
            if joined is not None:
                others = (member.assignment for member in self._members.values())
                found = least_read(_ids(joined, topics), sizes, others)
                joined.assignment = frozenset() if found is None else frozenset({found})
            return
        assigned = assign(
            {member.member_id: _ids(member, topics) for member in self._members.values()},
            sizes,
            {member.member_id: member.assignment for member in self._members.values()},
        )
        for member_id, partitions in assigned.items():
            self._members[member_id].assignment = partitions

    def _has_readers_to_spare(self, sizes: Mapping[bytes, int]) -> bool:
        """Whether every partition has readers, and none has many more than another."""
        partitions = sum(sizes.values())
        if not 0 < _UNEVEN * partitions < len(self._members):
            return False
        read = Counter(one for member in self._members.values() for one in member.assignment)
        return len(read) == partitions and max(read.values()) <= _UNEVEN * min(read.values())


def _ids(member: ShareMember, topics: Mapping[str, tuple[bytes, int]]) -> list[bytes]:
    return [topics[name][0] for name in member.topics if name in topics]


def _check_epoch(member: ShareMember, epoch: int) -> None:
    """Raises ApiError FENCED_MEMBER_EPOCH.

    The epoch before the present one may be what a lost answer told.
    """
    if epoch > member.epoch or epoch not in {member.epoch, member.previous_epoch}:
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"the member's epoch is {member.epoch}, not {epoch}: it is to join again",
        )
