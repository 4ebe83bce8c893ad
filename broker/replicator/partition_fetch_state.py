"""One partition that is followed here: its place in its leader's hands, and what it waits for."""

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from qbus.errors import ErrorCode
from qbus.wire.messages.fetch import FetchPartition

from ..log import Log
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

    @property
    def is_being_cut(self) -> bool:
        """Whether a truncation is under way, for this leader or one before."""

    async def truncate(self, offset: int) -> None:
        """Cut the log back to ``offset``. Raises ApiError."""

    async def truncate_fully(self, start_offset: int) -> None:
        """Drop everything, and go on with ``start_offset``. Raises ApiError."""


NO_EPOCH = -1


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
    GONE = auto()  # it is not followed in this way any more


class PartitionFetchState:
    """A partition that follows one leader in one of its epochs."""

    __slots__ = (
        "asked_at",
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
        self.asked_at: float | None = None
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
    def is_lost(self) -> bool:
        """Whether its log is corrupt as a whole: all of it has to be fetched anew."""
        return self.replica.log.mender.is_beyond_repair

    @property
    def needs_start(self) -> bool:
        """Whether it has to know where its leader's log starts."""
        return self.is_out_of_range or self.is_lost

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch that its log has, -1 without any."""
        return NO_EPOCH if self.is_lost else self.replica.log.epoch_cache.latest_epoch

    @property
    def needs_leader(self) -> bool:
        """Whether only its leader can tell where it has to go on."""
        return self.needs_start or self.latest_epoch != NO_EPOCH

    @property
    def has_moved(self) -> bool:
        """Whether its leader does not know yet where its log starts."""
        return self.wanted.log_start_offset != self.replica.log.log_start_offset

    def aim(self, now: float) -> FetchPartition:
        """What to ask for at ``now``, a monotonic time: what follows the end of the log."""
        self.asked_at = now
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
