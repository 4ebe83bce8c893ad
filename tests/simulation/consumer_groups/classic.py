"""A client of the classic protocol in a group of KIP-848: it joins, syncs, and joins again."""

import math
from dataclasses import dataclass
from random import Random

from qbus.broker.consumer_group import Partitions
from qbus.broker.group.requests import (
    GroupProtocol,
    Heartbeat,
    Join,
    JoinResult,
    Leave,
    Leaver,
    Result,
    Sync,
    SyncResult,
)
from qbus.consumer_protocol import (
    CONSUMER,
    Subscription,
    decode_assignment,
    encode_subscription,
)
from qbus.errors import ErrorCode
from qbus.names import TopicPartition

from .client import NOTHING, Reader

_LOST = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


@dataclass(eq=False)
class ClassicClient(Reader):
    """One client.

    is_eager: it gives everything up before it joins again.
    reads, wanted, heard_at, told_at, is_out: as of a client of the consumer protocol.
    joins, syncs: what it is to do next; neither: heartbeats.
    """

    name: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    is_eager: bool = False
    member_id: str = ""
    epoch: int = -1
    reads: Partitions = NOTHING
    wanted: Partitions | None = None
    heard_at: float = 0.0
    told_at: float = 0.0
    joins: bool = True
    syncs: bool = False
    gives_up: bool = False
    is_out: bool = False

    def request(self) -> Join | Sync | Heartbeat:
        """The next request."""
        if self.syncs:
            return Sync(self.member_id, self.instance_id, self.epoch, CONSUMER, None, {})
        if not self.joins or self.wanted is not None:
            return Heartbeat(self.member_id, self.instance_id, self.epoch)
        if self.is_eager:
            self.reads = NOTHING
        owned = tuple(TopicPartition(topic.decode(), index) for topic, index in sorted(self.reads))
        metadata = encode_subscription(Subscription(self.topics, owned))
        return Join(
            self.member_id,
            self.name,
            self.instance_id,
            "client",
            "host",
            45_000,
            60_000,
            CONSUMER,
            (GroupProtocol("range" if self.is_eager else "cooperative-sticky", metadata),),
        )

    def leaving(self, _: int) -> Leave:
        """The last request."""
        self.reads = NOTHING
        return Leave((Leaver(self.member_id, self.instance_id),))

    def take(self, result: Result | None) -> None:
        """Take in a response; None: it is lost."""
        if result is None:
            self.joins |= self.syncs
            self.syncs = False
            return
        error = error_of(result)
        if error in _LOST:
            if error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            self.reads, self.wanted, self.gives_up = NOTHING, None, False
            self.joins, self.syncs = True, False
        elif error is ErrorCode.FENCED_INSTANCE_ID:
            self.is_out, self.reads, self.wanted = True, NOTHING, None
        elif error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.joins, self.syncs = True, False
        elif isinstance(result, JoinResult):
            self.member_id, self.epoch = result.member_id, result.generation
            self.joins = error is ErrorCode.MEMBER_ID_REQUIRED
            self.syncs = not self.joins
        elif isinstance(result, SyncResult):
            self.syncs = False
            given = decode_assignment(result.assignment)
            wanted = frozenset((topic.encode(), index) for topic, index in given)
            self.wanted = None if wanted == self.reads else wanted

    def due(self, late: float) -> float:
        """Return when it is to have done what it is to do next, at the latest."""
        if self.epoch < 0:
            return math.inf
        is_idle = self.wanted is None and not self.joins and not self.syncs
        return late + (self.heard_at if is_idle else min(self.heard_at, self.told_at))

    def go_on(self, random: Random) -> None:
        """Do so, and keep in mind whether that gives anything up."""
        self.gives_up |= self.wanted is not None and not self.reads <= self.wanted
        super().go_on(random)

    def arrive(self) -> None:
        """Join again if it gave anything up on the way."""
        self.joins |= self.gives_up
        self.wanted, self.gives_up = None, False


def error_of(result: object) -> ErrorCode:
    """The error of a response of either protocol."""
    return result if isinstance(result, ErrorCode) else getattr(result, "error")  # noqa: B009
