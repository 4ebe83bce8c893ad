"""What of a group is durable: a snapshot to store and to restore from."""

from typing import NamedTuple

from .requests import GroupProtocol
from .roster import Member
from .state import GroupState


class MemberImage(NamedTuple):
    """An established member: one that was told of a generation."""

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
        """The member as it is now."""
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
        """The member as it was, its session not yet running."""
        return Member(*self)


class GroupImage(NamedTuple):
    """A group with its established members; Empty when there are none."""

    state: GroupState
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    members: tuple[MemberImage, ...] = ()


EMPTY_IMAGE = GroupImage(GroupState.EMPTY, 0, None, None, None)
