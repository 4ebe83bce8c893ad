"""The requests, results and effects of the group state machines.

The requests are those of the group protocols without their wire format. Each one has a ``refuse``
method, so it can always be answered. Requests compare by identity: two equal ones from a client
that retries are two requests to answer.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

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


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatResult:
    """The response to a heartbeat of KIP-848.

    ``assignment`` has the partitions that the member may read now, as topic ids and indexes; None:
    as the member knows them.
    """

    error: ErrorCode
    message: str | None = None
    member_id: str = ""
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: frozenset[tuple[bytes, int]] | None = None


class Sight(Protocol):
    """Which topics a client may know of. Equal ones are of the same client under the same rules."""

    def sees(self, topic: str, /) -> bool:
        """Whether it may know of a topic by this name."""


@dataclass(frozen=True, slots=True, eq=False)
class ConsumerHeartbeat:
    """A heartbeat of KIP-848, which also joins, subscribes, acknowledges and leaves.

    ``epoch`` is the member's; 0 joins, -1 leaves, -2 leaves a static member's place free for its
    return. None, and -1 as ``rebalance_timeout_ms``, mean: as before. An empty ``pattern`` means
    none. ``owned`` are the partitions that the member holds, as topic ids and indexes. ``sight``:
    what the pattern may match; None: every topic. ``connection``: the number of the one that it
    came over; later ones have greater numbers.
    """

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: frozenset[tuple[bytes, int]] | None = None
    client_id: str = ""
    client_host: str = ""
    sight: Sight | None = None
    connection: int = 0

    @property
    def is_full(self) -> bool:
        """Whether it says everything, as a member does that may have missed a response."""
        subscribes = self.topics is not None or self.pattern is not None
        return subscribes and self.rebalance_timeout_ms >= 0 and self.owned is not None

    def refuse(self, error: ErrorCode, message: str | None = None) -> ConsumerHeartbeatResult:
        """Return the response that refuses this request."""
        return ConsumerHeartbeatResult(error, message, self.member_id)


Request = Join | Sync | Heartbeat | Leave | ConsumerHeartbeat
Result = JoinResult | SyncResult | ErrorCode | LeaveResult | ConsumerHeartbeatResult


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
