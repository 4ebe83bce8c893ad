"""What members ask of a group, and what they are answered.

These are the group protocol's requests without their wire form: no versions, no topics. Each one
knows how to be refused, so whoever holds one can always answer it. Requests compare by identity:
two equal ones from a client that retries are still two requests to answer.
"""

from dataclasses import dataclass
from typing import NamedTuple

from qbus.errors import ErrorCode


class GroupProtocol(NamedTuple):
    """A way to divide the work that a member supports, and what the leader must know for it."""

    name: str
    metadata: bytes


class JoinedMember(NamedTuple):
    """A member as the leader is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The answer to a join: the new generation, or why there is none for this member."""

    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """A wish to be in the next generation.

    ``member_id`` is empty when the client has none; ``new_member_id`` is the one it gets then.
    ``needs_known_id`` sends a dynamic member away once to come back with that id (KIP-394);
    ``knows_skip_assignment`` marks clients that understand that answer (KIP-814). Time-outs are in
    milliseconds; ``protocols`` are in the member's order of preference.
    """

    member_id: str
    new_member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[GroupProtocol, ...]
    reason: str = ""
    needs_known_id: bool = True
    knows_skip_assignment: bool = True

    def refuse(self, error: ErrorCode) -> JoinResult:
        """The answer that turns this request down."""
        return JoinResult(error, self.member_id)


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The answer to a sync: this member's part of the assignment."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, eq=False)
class Sync:
    """A member's call for its assignment; the leader's brings everyone's (``assignments``)."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: dict[str, bytes]

    def refuse(self, error: ErrorCode) -> SyncResult:
        """The answer that turns this request down."""
        return SyncResult(error)


@dataclass(frozen=True, slots=True, eq=False)
class Heartbeat:
    """A sign of life; the answer is an error code."""

    member_id: str
    instance_id: str | None
    generation: int

    def refuse(self, error: ErrorCode) -> ErrorCode:
        """The answer that turns this request down."""
        return error


class Leaver(NamedTuple):
    """A member to remove: by id, or a static one by its instance id alone."""

    member_id: str
    instance_id: str | None
    reason: str = ""


class LeaveOutcome(NamedTuple):
    """What became of one leaver."""

    leaver: Leaver
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeaveResult:
    """The answer to a leave, in the order of its leavers."""

    error: ErrorCode
    outcomes: tuple[LeaveOutcome, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Leave:
    """Members that go, or that an administrator sends away (KIP-345)."""

    leavers: tuple[Leaver, ...]

    def refuse(self, error: ErrorCode) -> LeaveResult:
        """The answer that turns this request down."""
        return LeaveResult(error)


Request = Join | Sync | Heartbeat | Leave
Result = JoinResult | SyncResult | ErrorCode | LeaveResult


class Respond(NamedTuple):
    """Effect: answer this request, once everything saved before it is stored."""

    request: Request
    result: Result


class Save(NamedTuple):
    """Effect: the group's image changed and must be stored."""


class Moved(NamedTuple):
    """Effect: the group entered another state; for people to read."""

    old: str
    new: str
    reason: str


Effect = Respond | Save | Moved
