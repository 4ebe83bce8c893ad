"""The requests, results and effects of the group state machine.

The requests are those of the group protocol without their wire format: no versions, no topics. Each
one has a ``refuse`` method, so it can always be answered. Requests compare by identity: two equal
ones from a client that retries are two requests to answer.
"""

from dataclasses import dataclass
from typing import NamedTuple

from qbus.errors import ErrorCode


class GroupProtocol(NamedTuple):
    """An assignment protocol that a member supports, and its metadata for the leader."""

    name: str
    metadata: bytes


class JoinedMember(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The response to a join: the new generation, or an error."""

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
    """A request to join the next generation.

    ``member_id`` is empty when the client has none; it then gets ``new_member_id``.
    ``needs_known_id``: a dynamic member must join again with that id (KIP-394).
    ``knows_skip_assignment``: the client understands that flag in the response (KIP-814). Time-outs
    are in milliseconds; ``protocols`` are in the member's order of preference.
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
        """Return the response that refuses this request."""
        return JoinResult(error, self.member_id)


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The response to a sync: this member's assignment."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, eq=False)
class Sync:
    """A member's request for its assignment; the leader's has all ``assignments``."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: dict[str, bytes]

    def refuse(self, error: ErrorCode) -> SyncResult:
        """Return the response that refuses this request."""
        return SyncResult(error)


@dataclass(frozen=True, slots=True, eq=False)
class Heartbeat:
    """A heartbeat; the response is an error code."""

    member_id: str
    instance_id: str | None
    generation: int

    def refuse(self, error: ErrorCode) -> ErrorCode:
        """Return the response that refuses this request."""
        return error


class Leaver(NamedTuple):
    """A member to remove: by id, or a static one by its instance id alone."""

    member_id: str
    instance_id: str | None
    reason: str = ""


class LeaveOutcome(NamedTuple):
    """The result for one leaver."""

    leaver: Leaver
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeaveResult:
    """The response to a leave, in the order of its leavers."""

    error: ErrorCode
    outcomes: tuple[LeaveOutcome, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Leave:
    """Members that leave, or that an administrator removes (KIP-345)."""

    leavers: tuple[Leaver, ...]

    def refuse(self, error: ErrorCode) -> LeaveResult:
        """Return the response that refuses this request."""
        return LeaveResult(error)


Request = Join | Sync | Heartbeat | Leave
Result = JoinResult | SyncResult | ErrorCode | LeaveResult


class Respond(NamedTuple):
    """Effect: send the response once every save before it is stored."""

    request: Request
    result: Result


class Save(NamedTuple):
    """Effect: the group's image changed and must be stored."""


class Moved(NamedTuple):
    """Effect: the group entered another state; for the log."""

    old: str
    new: str
    reason: str


Effect = Respond | Save | Moved
