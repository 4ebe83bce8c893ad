"""The state of fetching one partition from its leader."""

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from qbus.errors import ApiError, ErrorCode
from qbus.service.backoff import Backoff
from qbus.wire.messages.fetch import FetchPartition, PartitionData

from ..log import Log
from .session import Key


class Replica(Protocol):
    """The part of a partition that fetching uses."""

    topic: str
    index: int
    log: Log
    leader_epoch: int
    on_stable: Callable[[], None] | None

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""

    @property
    def stable_end(self) -> int:
        """The offset up to which records are stable: flushed, if the topic asks for that."""

    def flush(self) -> None:
        """Start to flush what is written."""

    def append_from_leader(self, records: memoryview) -> None:
        """Append batches with the leader's offsets and epochs. Raises ApiError."""

    def learn_high_watermark(self, offset: int, leader_log_start: int) -> None:
        """Take over what the leader's response says."""

    @property
    def is_truncating(self) -> bool:
        """Whether a truncation is under way, for this leader or a former one."""

    async def truncate(self, offset: int) -> None:
        """Truncate the log to ``offset``. Raises ApiError."""

    async def truncate_fully(self, start_offset: int) -> None:
        """Delete all records and restart the log at ``start_offset``. Raises ApiError."""


NO_EPOCH = -1


def error_of(number: int) -> ErrorCode:
    """The error code in a response; UNKNOWN_SERVER_ERROR for one that this broker does not know."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


class DivergedError(ApiError):
    """Our log diverges from the leader's: it must be reconciled before the next fetch."""

    def __init__(self, why: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, why)


class Phase(Enum):
    """What is done for a partition now."""

    RECONCILING = auto()  # its log is compared with the leader's, and truncated
    FETCHING = auto()  # records are fetched
    FLUSHING = auto()  # its records are flushed: to fetch on would acknowledge them
    DELAYED = auto()  # it waits after a failure, or for its throttle
    REMOVED = auto()  # this state is no longer in use


class PartitionFetchState:
    """The state of fetching a partition from one leader, in one leader epoch."""

    __slots__ = (
        "backoff",
        "fetched_at",
        "is_failing",
        "is_out_of_range",
        "is_reconciled",
        "key",
        "lag",
        "leader_epoch",
        "phase",
        "replica",
        "request",
    )

    def __init__(
        self,
        replica: Replica,
        topic_id: bytes,
        leader_epoch: int,
        *,
        max_bytes: int,
        backoff_s: float,
    ) -> None:
        """``max_bytes``: how much is fetched at once; ``backoff_s``: the longest back-off."""
        self.replica = replica
        self.leader_epoch = leader_epoch
        self.key: Key = (topic_id, replica.index)
        self.phase = Phase.RECONCILING
        self.backoff = Backoff(longest_s=backoff_s)
        self.fetched_at: float | None = None
        self.is_failing = False
        self.is_out_of_range = False
        self.is_reconciled = False
        self.lag = 0
        self.request = FetchPartition(
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
            self.phase is not Phase.REMOVED
            and replica.leader_epoch == self.leader_epoch
            and not replica.is_leader
        )

    @property
    def is_stable(self) -> bool:
        """Whether all records of the log are stable, so that they may be acknowledged."""
        return self.replica.stable_end >= self.replica.log.log_end_offset

    @property
    def is_corrupt(self) -> bool:
        """Whether the log is corrupt beyond repair, so that all of it must be fetched again."""
        return self.replica.log.is_beyond_repair

    @property
    def needs_log_start(self) -> bool:
        """Whether reconciliation needs the start offset of the leader's log."""
        return self.is_out_of_range or self.is_corrupt

    @property
    def latest_epoch(self) -> int:
        """The latest leader epoch in the log; -1 if there is none."""
        return NO_EPOCH if self.is_corrupt else self.replica.log.epoch_cache.latest_epoch

    @property
    def needs_leader(self) -> bool:
        """Whether reconciliation has to ask the leader."""
        return self.needs_log_start or self.latest_epoch != NO_EPOCH

    @property
    def is_log_start_news(self) -> bool:
        """Whether the leader does not know the start offset of our log yet."""
        return self.request.log_start_offset != self.replica.log.log_start_offset

    def next_request(self, now: float) -> FetchPartition:
        """Return the request for what follows the end of the log; ``now`` is a monotonic time."""
        self.fetched_at = now
        log, request = self.replica.log, self.request
        request.fetch_offset = log.log_end_offset
        request.log_start_offset = log.log_start_offset
        request.last_fetched_epoch = log.epoch_cache.latest_epoch
        return request

    def handle(self, data: PartitionData) -> int:
        """Append the records of a response; take over its offsets. Return the bytes of records.

        Raises DivergedError, or ApiError with the leader's error or that of the log; then whole
        batches before the one that was refused may have been appended.
        """
        code = error_of(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.is_out_of_range = True
            raise DivergedError("the end of our log is out of the range of the leader's")
        if code:
            raise ApiError(code)
        if data.diverging_epoch.epoch != NO_EPOCH:
            raise DivergedError("our log diverges from the leader's")
        size = 0
        if data.records:
            self.replica.append_from_leader(data.records)
            size = len(data.records)
        self.replica.learn_high_watermark(data.high_watermark, data.log_start_offset)
        self.lag = max(data.high_watermark - self.replica.log.log_end_offset, 0)
        self.is_failing = False
        self.backoff.succeeded()
        return size
