"""A member's place in its group, as a state machine. Pure.

What it may do in each phase, and where answers lead::

    UNJOINED --start--> JOINING --joined--> SYNCING --synced--> STABLE
        ^                  ^                   |                   |
        |                  +--- start again ---+-------------------+  (a rebalance)
        +-- the generation or the member id was lost; or it left

An answer counts only for the place that the question was asked from: what was sent in an earlier
generation, and is refused for that, says nothing of this one. What each error means is what Kafka's
Java client makes of it (AbstractCoordinator, ConsumerCoordinator).
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
    """What an error of a request to the coordinator calls for."""
    known = _REMEDIES.get(error.code)
    if known is not None:
        return known
    return Remedy.RETRY if error.retriable else Remedy.FAIL


class MemberState:
    """Where a member stands. ``membership`` is what its requests have to prove.

    ``rejoin_reason``: why it has to join again, if it has to. ``failure``: why it cannot go on.
    ``previous``: what it was assigned last.
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
        """Whether what it has may be another's: it has no generation."""
        return self.membership.generation == NO_GENERATION

    @property
    def may_commit(self) -> bool:
        """Whether the coordinator takes offsets: not between JoinGroup and SyncGroup."""
        return self.phase is not Phase.SYNCING

    # Joining.

    def request_rejoin(self, reason: str) -> None:
        """Something has changed that the group has to know; the first reason counts."""
        self.rejoin_reason = self.rejoin_reason or reason

    def start(self) -> Membership:
        """JoinGroup is sent, as this member."""
        self.phase = Phase.JOINING
        return self.membership

    def named(self, member_id: str) -> None:
        """The coordinator chose a member id to come back with (KIP-394)."""
        self.membership = self.membership._replace(member_id=member_id)

    def joined(self, member_id: str, generation: int, protocol: str) -> Membership:
        """The others have joined too; SyncGroup is sent, as this member of this generation.

        What was a reason to join is settled, unless another comes up from now on.
        """
        assert self.phase is Phase.JOINING, self.phase
        self.phase = Phase.SYNCING
        self.membership = self.membership._replace(member_id=member_id, generation=generation)
        self.protocol = protocol
        self.rejoin_reason = None
        return self.membership

    def synced(self, sent: Membership, partitions: tuple[TopicPartition, ...]) -> bool:
        """The assignment arrived; whether it still counts."""
        if sent != self.membership or self.phase is not Phase.SYNCING:
            return False
        self.phase = Phase.STABLE
        self.previous = Previous(partitions, sent.generation)
        return True

    # Trouble.

    def refused(self, error: ApiError, sent: Membership) -> Remedy:
        """A request that was sent as ``sent`` failed: take the consequences."""
        if sent != self.membership:
            return Remedy.NOTHING
        remedy = remedy_for(error)
        if remedy is Remedy.FAIL:
            if self.phase is Phase.STABLE or error.code == ErrorCode.FENCED_INSTANCE_ID:
                self.failure = error  # else joining can be tried again
        elif remedy is Remedy.NEW_MEMBER:
            self.lose(error.code.name, keep_id=False)
        elif remedy is Remedy.NEW_GENERATION:
            self.lose(error.code.name, keep_id=True)
        elif remedy is Remedy.REJOIN and self.phase is not Phase.SYNCING:
            self.request_rejoin(error.code.name)
        return remedy

    def commit_refused(self, error: ApiError, sent: Membership) -> None:
        """A commit failed: only what it says of our place matters."""
        is_about_us = remedy_for(error) not in {Remedy.FAIL, Remedy.RETRY, Remedy.MOVED}
        if is_about_us or error.code == ErrorCode.FENCED_INSTANCE_ID:
            self.refused(error, sent)

    def lose(self, reason: str, *, keep_id: bool = False) -> None:
        """There is no place for us any more; without the member id not even to return to."""
        member_id = self.membership.member_id if keep_id else ""
        self.membership = NO_MEMBER._replace(
            member_id=member_id, instance_id=self.membership.instance_id
        )
        self.phase = Phase.UNJOINED
        self.request_rejoin(reason)
