"""A partition as a follower on another broker reads it: up to the log's end."""

from typing import TYPE_CHECKING

from qbus.errors import ErrorCode
from qbus.wire.messages.fetch import FetchPartition, PartitionData

from ..log import LogSlice
from ..partition.partition import NO_EPOCH, Partition
from .fetch_reader import FetchTarget

if TYPE_CHECKING:
    from .replica_session import ReplicaSession


class ReplicaTarget(FetchTarget):
    """One partition of a follower's request, and its answer."""

    __slots__ = ()

    @property
    def limit(self) -> int:
        """A follower is given what is not acknowledged, too: it is to acknowledge it."""
        return self.partition.log.log_end_offset

    def check(self) -> ErrorCode:
        """A follower has to know in which epoch it follows: its log was made to agree for that."""
        epoch = self.wanted.current_leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if epoch == NO_EPOCH else self.partition.check(epoch)

    def give(self, records: LogSlice) -> None:
        """Answer with ``records``."""
        self.data.records = records
        self.partition.replicated_bytes += len(records)


class FollowedPartition:
    """A partition of a session: what the follower wants, and what it was told last."""

    __slots__ = ("_high_watermark", "_log_start", "_session", "key", "partition", "wanted")

    def __init__(
        self, session: "ReplicaSession", key: tuple[bytes, int], wanted: FetchPartition
    ) -> None:
        self.key = key
        self.wanted = wanted
        self.partition: Partition | None = None
        self._session = session
        self._high_watermark = -1
        self._log_start = -1

    @property
    def topic_id(self) -> bytes:
        """The topic that it belongs to."""
        return self.key[0]

    @property
    def has_all(self) -> bool:
        """Whether the follower had everything when it asked last, and has it still."""
        partition = self.partition
        return partition is None or self.wanted.fetch_offset >= partition.log.log_end_offset

    @property
    def asked_at(self) -> float:
        """When the follower asked last, for whatever of its session."""
        return self._session.asked_at

    def watch(self, partition: Partition | None) -> None:
        """Hear of what becomes different in ``partition``, which is the one of this key now."""
        if partition is not self.partition:
            self.unwatch()
            self.partition = partition
            if partition is not None:
                partition.replica_watchers[self] = None

    def unwatch(self) -> None:
        """Hear of nothing any more."""
        if self.partition is not None:
            self.partition.replica_watchers.pop(self, None)
            self.partition = None

    def tell(self, data: PartitionData) -> bool:
        """The follower is told of the high watermark and the log's start; whether that is new."""
        before = (self._high_watermark, self._log_start)
        self._high_watermark, self._log_start = data.high_watermark, data.log_start_offset
        return before != (data.high_watermark, data.log_start_offset)

    def appended(self, size: int) -> None:
        """``size`` more bytes are in the log."""
        self._session.note(self, size, at_once=True)

    def changed(self, *, at_once: bool) -> None:
        """Something else is different."""
        self._session.note(self, 0, at_once=at_once)
