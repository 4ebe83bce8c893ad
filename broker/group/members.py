"""The members of a group: static instances, and the protocols that all members support."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from qbus.errors import ErrorCode

from .requests import GroupProtocol


@dataclass(slots=True)
class Member:
    """One member of a group.

    ``deadline`` is the monotonic time in seconds at which its session ends. A member ``is_new``
    until it was told of a generation: it cannot heartbeat yet, and it is not stored.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[GroupProtocol, ...]
    assignment: bytes = b""
    deadline: float = math.inf
    is_new: bool = False

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for ``protocol``; empty if it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""


class MemberImage(NamedTuple):
    """The durable part of an established member, that is, one that was told of a generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[GroupProtocol, ...]
    assignment: bytes

    @classmethod
    def of(cls, member: Member) -> "MemberImage":
        """Take a snapshot of a member."""
        return cls(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
            member.protocols,
            member.assignment,
        )

    def restore(self) -> Member:
        """Restore the member; its session is not running yet."""
        return Member(*self)


class Members:
    """The members of a group in the order in which they joined."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._instances: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def first(self) -> str | None:
        """Return the id of the longest-standing member."""
        return next(iter(self._members), None)

    def instance(self, instance_id: str | None) -> Member | None:
        """Return the member that holds this instance id."""
        member_id = self._instances.get(instance_id) if instance_id is not None else None
        return self._members[member_id] if member_id is not None else None

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Check that this is a member and, if it names an instance id, its current holder."""
        if instance_id is not None:
            holder = self._instances.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self._members else ErrorCode.UNKNOWN_MEMBER_ID

    def add(self, member: Member) -> None:
        """Add a member; its id and instance id must be new."""
        assert member.member_id not in self._members
        if member.instance_id is not None:
            assert member.instance_id not in self._instances
            self._instances[member.instance_id] = member.member_id
        self._members[member.member_id] = member
        self._supporters.update(_names(member.protocols))

    def remove(self, member_id: str) -> Member:
        """Remove a member."""
        member = self._members.pop(member_id)
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        self._supporters.subtract(_names(member.protocols))
        return member

    def rename(self, member_id: str, new_member_id: str) -> Member:
        """Give a static member's place to its next incarnation."""
        member = replace(self.remove(member_id), member_id=new_member_id)
        self.add(member)
        return member

    def set_protocols(self, member: Member, protocols: tuple[GroupProtocol, ...]) -> None:
        """Replace the protocols of a member."""
        self._supporters.subtract(_names(member.protocols))
        member.protocols = protocols
        self._supporters.update(_names(protocols))

    def supports(self, protocols: tuple[GroupProtocol, ...]) -> bool:
        """Whether at least one of these protocols is supported by every member."""
        return any(self._supporters[name] == len(self) for name in _names(protocols))

    def vote(self) -> str:
        """Choose the protocol that most members prefer among those that all support.

        The longest-standing member breaks a tie.
        """
        common = {name for name, count in self._supporters.items() if count == len(self)}
        votes = Counter(
            next(name for name, _ in member.protocols if name in common) for member in self
        )
        return votes.most_common(1)[0][0]

    def rebalance_timeout(self) -> float:
        """Return the longest rebalance time-out of any member in seconds; 0 without members."""
        slowest = max((member.rebalance_timeout_ms for member in self), default=0)
        return max(slowest, 0) / 1000


def _names(protocols: tuple[GroupProtocol, ...]) -> set[str]:
    return {name for name, _ in protocols}
