"""A member of a group of KIP-848, and how it comes to what it is to have.

The broker tells a member only of partitions that nobody else has. The way there::

    STABLE ── it is to give something up ──► UNREVOKED ── it has given that up ──┐
      ▲  └──────────────── nothing to give up ───────────────────────────────────┤
      │                                                                          ▼
      └──── everything it is to have is free ◄──────────────────────────── UNRELEASED
                                                       (something is with others still)

A partition that a member was told of counts as its own until the member, told to give it up, says
that it did, or is out of the group. That a heartbeat does not list the partition proves nothing
before: the member may be taking it over just then, or may never have been told, as a response was
lost. To be told to have what it has would not make the latter answer, for nothing changes for it.
So it is told once more of all that it was given, takes that over, and then gives it up. Where it
does not, it is told after some time what it is to give up, all the same. As in Kafka, it has its
rebalance time-out for all of this, from when somebody else was first to have the partition. If it
is told to give up others besides, which it could keep until then, it has the whole time-out again.

Told to give up what it never listed, it may miss that as well, and take it over all the while. A
list without that is no answer then if it is of one that missed a response: the member is told once
more, and has, the first time, the whole time-out again.

One that has not shown yet that it heard of its epoch comes to no other. Else it would be taken for
another one if it missed that as well: it may know its epoch or the one before. In the latter it may
commit and read offsets, too, as long as it has all that it had then: nobody else can have committed
any of that since. Whenever it gives up what it was told to, it comes to another epoch, so that a
commit that is late does not count, be there more to give up or not.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from qbus.errors import ApiError, ErrorCode

from ..group.requests import GroupProtocol, Sight
from .assignors import Partitions, TopicPartition
from .release import Release

JOIN: Final = 0
LEAVE: Final = -1
LEAVE_STATIC: Final = -2
"""The epochs with which heartbeats join, leave, and leave for a while."""

NONE: Final[Partitions] = frozenset()


class MemberState(Enum):
    """How far a member is from what it is to have."""

    STABLE = "Stable"
    UNREVOKED = "UnrevokedPartitions"
    UNRELEASED = "UnreleasedPartitions"


class Classic(NamedTuple):
    """What a member that speaks the classic protocol told when it joined."""

    session_timeout_ms: int
    protocols: tuple[GroupProtocol, ...]


@dataclass(slots=True)
class Member:
    """A member of a group.

    epoch: that of the assignment that it follows; -2: it left, and its place waits for it.
    previous_epoch: the one before, which the member may know yet.
    gave_up_in: the last epoch in which it may have given something up. Not stored.
    topics, pattern: what it subscribes to; the pattern may be empty.
    matching: the topics that the pattern matches now.
    target: what it is to have.
    assigned: what it was told of, and may read.
    revoking: what it was told of, and is to give up.
    classic: None of a member that speaks KIP-848.
    deadline: when its session ends, in monotonic seconds. Not stored.
    release: how long it may hold what others are to have. Not stored.
    told: what the last response told it; None: it is to be told, whatever that is.
    listed: what it last said that it has; None: nothing yet. Not stored.
    taken: what it holds and has listed since it was last told to take it over. Not stored.
    doubts: how often its list was no answer to what it is to give up now. Not stored.
    offers: how often in a row it was told of what it did not list. Not stored.
    has_missed: whether it missed an answer while it waited for something. Not stored.
    sight: the topics that its pattern may match, as of its last heartbeat; None: all. Not stored.
    heard_over: the number of the connection over which it was last heard. Not stored.
    path, encoded: where and how it is stored; None: it changed since.
    """

    member_id: str
    instance_id: str | None = None
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = 0
    topics: frozenset[str] = frozenset()
    pattern: str = ""
    matching: frozenset[str] = frozenset()
    assignor: str | None = None
    classic: Classic | None = None
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NONE
    revoking: Partitions = NONE
    target: Partitions = NONE
    deadline: float = math.inf
    release: Release = field(default_factory=Release, repr=False)
    gave_up_in: int = field(default=-1, repr=False)
    told: Partitions | None = None
    listed: Partitions | None = field(default=None, repr=False)
    taken: Partitions = field(default=NONE, repr=False)
    doubts: int = field(default=0, repr=False)
    offers: int = field(default=0, repr=False)
    has_missed: bool = field(default=False, repr=False)
    sight: Sight | None = field(default=None, repr=False)
    heard_over: int = field(default=0, repr=False)
    path: str = field(default="", repr=False)
    encoded: bytes | None = field(default=None, repr=False)

    @property
    def subscription(self) -> frozenset[str]:
        """The names of all topics that it subscribes to."""
        if not self.matching:
            return self.topics
        return self.topics | self.matching if self.topics else self.matching

    @property
    def held(self) -> Partitions:
        """The partitions that nobody else may have."""
        return self.assigned | self.revoking

    @property
    def has_left(self) -> bool:
        """Whether it is away, and its place waits for its return."""
        return self.epoch == LEAVE_STATIC

    @property
    def to_release(self) -> Partitions:
        """What it holds and others are to have, be it told of that or not."""
        if self.state is MemberState.UNREVOKED:
            return self.revoking
        return self.assigned - self.target if self.offers else NONE

    def tell(self) -> Partitions:
        """Note that a response tells what it has, and return that.

        What it did not list it may be taking over from now on, though it had that once.
        """
        self.told = self.assigned
        self.taken -= self.assigned - (self.listed or NONE)
        return self.told

    def is_reconciled(self, epoch: int) -> bool:
        """Whether it has all that the assignment of an epoch gives to it."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def hear(self, connection: int) -> None:
        """Note over which connection it is heard.

        A client that gave up waiting, connected anew and went on may have what it said before come
        after that: that it leaves, joins with nothing, or has only what it had then.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE, it was heard over a later connection already.
        """
        if connection < self.heard_over:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{self.member_id} has been heard over a later connection: this came too late",
            )
        self.heard_over = connection

    def may_use_offsets(self, epoch: int) -> bool:
        """Whether offsets may be committed, or read, in an epoch.

        As by KIP-1251 for commits, but the epoch before is over once it has given up anything of
        what it had then, not only for that.
        """
        return epoch == self.epoch or self.gave_up_in < epoch == self.previous_epoch

    def reconcile(
        self,
        epoch: int,
        owned: Partitions | None,
        is_free: Callable[[TopicPartition], bool],
        *,
        is_joining: bool = False,
        is_full: bool = False,
        is_late: bool = False,
        is_patient: bool = True,
    ) -> bool:
        """Go as far towards the target as is allowed now; return whether anything changed.

        epoch: that of the target.
        owned: what the member says that it has; None: nothing new. That tells whether it gave up
            what it was told to give up before.
        is_free: whether nobody else has a partition.
        is_joining: the member has nothing but ``owned``, and takes nothing over until it is told.
        is_full: the member says everything, as it may have missed a response.
        is_late: the member names the epoch before, as it missed a response.
        is_patient: whether it may be told again of what it did not list.
        """
        if owned is not None:
            self.listed = owned
            self.taken = owned & self.held if is_joining else self.taken | (owned & self.held)
        if self.state is MemberState.UNREVOKED and (owned is None or owned & self.revoking):
            return False
        if self.is_reconciled(epoch):
            return False
        before = (self.epoch, self.state, self.assigned, self.revoking)
        if is_full and not is_joining and not self.revoking <= self.taken:
            self.doubts += 1
            self.state, is_patient = MemberState.UNRELEASED, True
            self.assigned, self.revoking = self.held, NONE
        released = self.assigned - self.target
        if released and is_patient and not is_joining and self._may_not_know():
            self.offers += 1
            self.told = None
            self._give_up(epoch, is_late=is_late)
            return before != (self.epoch, self.state, self.assigned, self.revoking)
        self.offers = 0
        has_given_up = is_joining and owned is not None and not owned & released
        if released and not has_given_up:
            self._give_up(epoch, is_late=is_late)
            self.state = MemberState.UNREVOKED
            self.assigned, self.revoking = self.assigned & self.target, released
        elif is_late and self.epoch != epoch:
            self._give_up(epoch, is_late=is_late)
            self.taken &= self.held
        else:
            self._take_over(epoch, is_free)
        return before != (self.epoch, self.state, self.assigned, self.revoking)

    def _give_up(self, epoch: int, *, is_late: bool) -> None:
        """It has given up what it was told to, if anything: it comes to another epoch.

        Not yet to that of the target.
        """
        if self.state is MemberState.UNREVOKED:
            if self.revoking and not is_late and self.epoch + 1 < epoch:
                self._come_to(self.epoch + 1)
            self.state, self.revoking = MemberState.UNRELEASED, NONE

    def _take_over(self, epoch: int, is_free: Callable[[TopicPartition], bool]) -> None:
        """Have all of its target that is free: it has given up the rest."""
        kept = self.assigned & self.target
        wanted = self.target - kept
        free = frozenset(filter(is_free, wanted))
        self.assigned, self.revoking = kept | free, NONE
        self.state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED
        self.taken &= self.held
        self._come_to(epoch)

    def _come_to(self, epoch: int) -> None:
        if self.epoch != epoch:
            self.previous_epoch, self.epoch = self.epoch, epoch

    def _may_not_know(self) -> bool:
        """Whether it lists only what it is to keep, so that to be told of that changes nothing.

        Silence shows nothing: librdkafka repeats a request whose response it missed as it was.
        """
        return self.listed == self.assigned & self.target
