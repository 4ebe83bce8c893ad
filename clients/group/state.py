"""The place of a member in its group, as a state machine. Pure.

The phases, and where responses lead::

    UNJOINED --start--> JOINING --joined--> SYNCING --synced--> STABLE
        ^                  ^                   |                   |
        |                  +--- start again ---+-------------------+  (a rebalance)
        +-- the generation or the member id was lost; or it left

A response counts only for the member id and generation of its request: an error from an earlier
generation says nothing about this one. Errors mean what they mean to Kafka's Java client
(AbstractCoordinator, ConsumerCoordinator).
"""

from collections.abc import Mapping
from enum import Enum

from qbus.consumer_protocol import NO_GENERATION
from qbus.errors import ApiError, ErrorCode

from ..committed import NO_MEMBER, Membership
from ..types import TopicPartition
from .assignors import Previous


class Phase(Enum):
    """How far a member has come."""

    UNJOINED = "it has no place"
    JOINING = "it asked to join, and waits for the others"
    SYNCING = "it is in the generation, and waits for its assignment"
    STABLE = "it has its assignment"


class Remedy(Enum):
    """What to do about an error."""

    RETRY = "ask again after a while"
    MOVED = "find the coordinator, and ask that"
    REJOIN = "join again, with what we have"
    NEW_GENERATION = "join again, without what we had"
    NEW_MEMBER = "join again, as somebody else"
    FAIL = "it will not pass by itself"
    NOTHING = "it is about the past"


_REMEDIES: Mapping[ErrorCode, Remedy] = {
    ErrorCode.NOT_COORDINATOR: Remedy.MOVED,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Remedy.MOVED,
    ErrorCode.REBALANCE_IN_PROGRESS: Remedy.REJOIN,
    ErrorCode.MEMBER_ID_REQUIRED: Remedy.REJOIN,
    ErrorCode.ILLEGAL_GENERATION: Remedy.NEW_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID: Remedy.NEW_MEMBER,
}


def remedy_for(error: ApiError) -> Remedy:
    """Return what to do about an error of a request to the coordinator."""
    known = _REMEDIES.get(error.code)
    if known is not None:
        return known
    return Remedy.RETRY if error.retriable else Remedy.FAIL


class MemberState:
    """The place of a member in its group. Its requests carry ``membership``.

    ``rejoin_reason``: why it has to join again, if so. ``failure``: why it cannot continue.
    ``previous``: its last assignment.
    """

    def __init__(self, instance_id: str | None = None) -> None:
        self.phase = Phase.UNJOINED
        self.membership = Membership(instance_id=instance_id)
        self.protocol: str | None = None
        self.rejoin_reason: str | None = None
        self.failure: ApiError | None = None
        self.previous: Previous | None = None

    @property
    def is_lost(self) -> bool:
        """Whether other members may have its partitions: it has no generation."""
        return self.membership.generation == NO_GENERATION

    @property
    def may_commit(self) -> bool:
        """Whether the coordinator accepts offsets: not between JoinGroup and SyncGroup."""
        return self.phase is not Phase.SYNCING

    # Joining.

    def request_rejoin(self, reason: str) -> None:
        """Join again, for this reason; the first reason counts."""
        self.rejoin_reason = self.rejoin_reason or reason

    def start(self) -> Membership:
        """JoinGroup is sent, as the returned member."""
        self.phase = Phase.JOINING
        return self.membership

    def named(self, member_id: str) -> None:
        """The coordinator chose a member id to join with (KIP-394)."""
        self.membership = self.membership._replace(member_id=member_id)

    def joined(self, member_id: str, generation: int, protocol: str) -> Membership:
        """All members have joined; SyncGroup is sent, as the returned member of this generation.

        Clears the reason to join.
        """
        assert self.phase is Phase.JOINING, self.phase
        self.phase = Phase.SYNCING
        self.membership = self.membership._replace(member_id=member_id, generation=generation)
        self.protocol = protocol
        self.rejoin_reason = None
        return self.membership

    def synced(self, sent: Membership, partitions: tuple[TopicPartition, ...]) -> bool:
        """The assignment arrived; return whether it still counts."""
        if sent != self.membership or self.phase is not Phase.SYNCING:
            return False
        self.phase = Phase.STABLE
        self.previous = Previous(partitions, sent.generation)
        return True

    # Trouble.

    def refused(self, error: ApiError, sent: Membership) -> Remedy:
        """Change the state after an error of a request sent as ``sent``; return what to do."""
        if sent != self.membership:
            return Remedy.NOTHING
        remedy = remedy_for(error)
        if remedy is Remedy.FAIL:
            if self.phase is Phase.STABLE or error.code == ErrorCode.FENCED_INSTANCE_ID:
                self.failure = error  # otherwise join again
        elif remedy is Remedy.NEW_MEMBER:
            self.lose(error.code.name, keep_id=False)
        elif remedy is Remedy.NEW_GENERATION:
            self.lose(error.code.name, keep_id=True)
        elif remedy is Remedy.REJOIN and self.phase is not Phase.SYNCING:
            self.request_rejoin(error.code.name)
        return remedy

    def commit_refused(self, error: ApiError, sent: Membership) -> None:
        """Handle a failed commit: only errors about the membership matter."""
        is_about_membership = remedy_for(error) not in {Remedy.FAIL, Remedy.RETRY, Remedy.MOVED}
        if is_about_membership or error.code == ErrorCode.FENCED_INSTANCE_ID:
            self.refused(error, sent)

    def lose(self, reason: str, *, keep_id: bool = False) -> None:
        """Leave the group; without ``keep_id`` the member id is lost as well."""
        member_id = self.membership.member_id if keep_id else ""
        self.membership = NO_MEMBER._replace(
            member_id=member_id, instance_id=self.membership.instance_id
        )
        self.phase = Phase.UNJOINED
        self.request_rejoin(reason)
