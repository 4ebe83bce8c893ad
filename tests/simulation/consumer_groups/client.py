"""A client of the consumer protocol: it gives partitions up and takes them over in its own time."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from random import Random

from qbus.broker.consumer_group import Partitions
from qbus.broker.group.requests import ConsumerHeartbeat, ConsumerHeartbeatResult
from qbus.errors import ErrorCode

NOTHING: Partitions = frozenset()

FENCED = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID}
)


class Reader(ABC):
    """What a client of either protocol reads, and its way to what it was told to have.

    reads: the partitions that it reads, or is about to read and cannot stop short of.
    wanted: what it was told to have; None: it has that.
    """

    reads: Partitions
    wanted: Partitions | None

    @abstractmethod
    def arrive(self) -> None:
        """Go on from having what was wanted, which is nothing any more."""

    def settle(self, random: Random) -> None:
        """Give up and take over all that there is."""
        while self.wanted is not None:
            self.go_on(random)

    def go_on(self, random: Random) -> None:
        """Give up one more partition, or take over what is to be had."""
        if self.wanted is None:
            return
        if extra := self.reads - self.wanted:
            self.reads -= {random.choice(sorted(extra))}
        elif missing := self.wanted - self.reads:
            self.reads |= {random.choice(sorted(missing))}
        if self.reads == self.wanted:
            self.arrive()


@dataclass(eq=False)
class Client(Reader):
    """One client.

    told_at: when it was first told to have what it wants.
    heard_at: when it got its last response.
    must_tell: whether its next heartbeat says everything, as a response may be lost.
    pattern: it subscribes by that, which matches its topics.
    repeats: it repeats a request as it was whose response is lost, as librdkafka does; ``last``.
    """

    member_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    epoch: int = 0
    reads: Partitions = NOTHING
    wanted: Partitions | None = None
    heard_at: float = 0.0
    told_at: float = 0.0
    must_tell: bool = True
    acknowledges: bool = False
    is_out: bool = False  # another one has its instance id
    pattern: str | None = None
    repeats: bool = False
    last: ConsumerHeartbeat | None = None
    is_lost: bool = False

    def request(self) -> ConsumerHeartbeat:
        """The next heartbeat."""
        if self.is_lost and self.last is not None:
            return self.last
        is_full = self.must_tell or self.epoch == 0
        self.last = ConsumerHeartbeat(
            self.member_id,
            self.epoch,
            self.instance_id,
            None,
            60_000 if is_full else -1,
            self.topics if is_full and not self.pattern else None,
            self.pattern if is_full else None,
            owned=self.reads if is_full or self.acknowledges else None,
        )
        return self.last

    def leaving(self, epoch: int) -> ConsumerHeartbeat:
        """The last heartbeat."""
        self.reads = NOTHING
        return ConsumerHeartbeat(self.member_id, epoch, self.instance_id)

    def take(self, result: ConsumerHeartbeatResult | None) -> None:
        """Take in a response; None: it is lost."""
        self.is_lost = self.repeats and result is None
        if result is None:
            self.must_tell |= not self.repeats
            return
        if result.error in FENCED:
            self.is_out = result.error is ErrorCode.FENCED_INSTANCE_ID
            self.epoch, self.must_tell = 0, True
            self.reads, self.wanted, self.acknowledges = NOTHING, None, False
            return
        if result.error:
            self.is_out = result.error is ErrorCode.UNRELEASED_INSTANCE_ID
            return
        said = None if self.last is None else self.last.owned
        self.must_tell, self.acknowledges = False, self.acknowledges and said != self.reads
        self.epoch = result.epoch
        known = self.reads if self.wanted is None else self.wanted
        if result.assignment is not None and result.assignment != known:
            self.wanted = result.assignment  # to be told what it knows changes nothing

    def due(self, late: float) -> float:
        """Return when it is to have what it was told to have, and to be heard, at the latest."""
        if self.epoch <= 0:
            return math.inf
        return late + (self.heard_at if self.wanted is None else min(self.heard_at, self.told_at))

    def arrive(self) -> None:
        """Tell the group soon that it has what it was told to have."""
        self.wanted, self.acknowledges = None, True
