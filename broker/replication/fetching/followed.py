"""One partition that is followed here: its place in its leader's hands, and what it waits for."""

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from qbus.errors import ErrorCode
from qbus.wire.messages.fetch import FetchPartition

from ...log import Log
from .backoff import Backoff
from .session import Key


class Replica(Protocol):
    """What fetching needs of a partition."""

    topic: str
    index: int
    log: Log
    leader_epoch: int
    on_stable: Callable[[], None] | None

    @property
    def is_leader(self) -> bool:
        """Whether it is led here."""

    @property
    def stable_end(self) -> int:
        """Up to where it has everything, on stable storage if the topic wants that."""

    def flush(self) -> None:
        """Begin to flush what is written."""

    def append_from_leader(self, records: memoryview) -> None:
        """Append batches as the leader has them. Raises ApiError."""

    def learn_high_watermark(self, offset: int, leader_log_start: int) -> None:
        """What the leader told with its answer."""

    async def truncate(self, offset: int) -> None:
        """Cut the log back to ``offset``. Raises ApiError."""

    async def truncate_fully(self, start_offset: int) -> None:
        """Drop everything, and go on with ``start_offset``. Raises ApiError."""


def error_of(number: int) -> ErrorCode:
    """The error that a leader answered, which may be newer than this broker."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


class Phase(Enum):
    """What happens to a followed partition next."""

    UNSETTLED = auto()  # where its log and the leader's part is to be found out
    FETCHING = auto()  # its leader is being asked for records
    FLUSHING = auto()  # what came is not stable yet: asking on would acknowledge it
    RESTING = auto()  # something failed, or it had more than its share: later
    DAMAGED = auto()  # its log is corrupt
    GONE = auto()  # it is not followed in this way any more


class Followed:
    """A partition that follows one leader in one of its epochs."""

    __slots__ = (
        "backoff",
        "is_failing",
        "is_out_of_range",
        "is_settled",
        "key",
        "lag",
        "leader_epoch",
        "phase",
        "replica",
        "wanted",
    )

    def __init__(
        self, replica: Replica, topic_id: bytes, leader_epoch: int, *, max_bytes: int, rest_s: float
    ) -> None:
        """``max_bytes`` are asked for at once; ``rest_s`` is the longest rest, in seconds."""
        self.replica = replica
        self.leader_epoch = leader_epoch
        self.key: Key = (topic_id, replica.index)
        self.phase = Phase.UNSETTLED
        self.backoff = Backoff(rest_s)
        self.is_failing = False
        self.is_out_of_range = False
        self.is_settled = False
        self.lag = 0
        self.wanted = FetchPartition(
            partition=replica.index,
            current_leader_epoch=leader_epoch,
            partition_max_bytes=max_bytes,
        )

    def __str__(self) -> str:
        return f"{self.replica.topic}-{self.replica.index}"

    @property
    def is_current(self) -> bool:
        """Whether the partition still follows this leader in this epoch."""
        replica = self.replica
        return (
            self.phase is not Phase.GONE
            and replica.leader_epoch == self.leader_epoch
            and not replica.is_leader
        )

    @property
    def is_stable(self) -> bool:
        """Whether all that it has may be acknowledged."""
        return self.replica.stable_end >= self.replica.log.log_end_offset

    @property
    def needs_leader(self) -> bool:
        """Whether only its leader can tell where it has to go on."""
        return self.is_out_of_range or self.replica.log.epoch_cache.latest_epoch >= 0

    @property
    def has_moved(self) -> bool:
        """Whether its leader does not know yet where its log starts."""
        return self.wanted.log_start_offset != self.replica.log.log_start_offset

    def aim(self) -> FetchPartition:
        """What to ask for: what follows the end of the log."""
        log, wanted = self.replica.log, self.wanted
        wanted.fetch_offset = log.log_end_offset
        wanted.log_start_offset = log.log_start_offset
        wanted.last_fetched_epoch = log.epoch_cache.latest_epoch
        return wanted

    def learned(self, leader_end: int) -> None:
        """The leader's answer was taken: its log is known to reach up to ``leader_end``."""
        self.lag = max(leader_end - self.replica.log.log_end_offset, 0)
        self.is_failing = False
        self.backoff.succeeded()
