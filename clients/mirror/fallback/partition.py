"""One partition that is reproduced: where to start, and its progress. Pure."""

from collections import deque
from typing import Protocol
from uuid import UUID

from qbus.errors import ApiError, ErrorCode

from ...types import TopicPartition
from ..status import PartitionState, PartitionStatus, Trouble
from .resuming import Found


class Sent(Protocol):
    """The delivery of records."""

    def done(self) -> bool:
        """Whether it succeeded or failed."""

    def result(self, timeout: float | None = None) -> object:
        """Raise the error if it failed."""


class ReproducedPartition:
    """``source`` and ``target`` are the partition at each cluster; offsets are the source's.

    ``topic_id`` is the topic's id where it is written, "" if it has none. The target has everything
    before ``acknowledged``. ``read_id`` is the id of the topic at the source, which may be a copy.
    """

    def __init__(self, source: TopicPartition, target: TopicPartition, topic_id: str = "") -> None:
        self.source = source
        self.target = target
        self.topic_id = topic_id
        self.read_id: UUID | None = None
        self.source_start = self.source_end = -1
        self.acknowledged = -1
        self.newest_ms = -1
        self.trouble: Trouble | None = None
        self.error: str | None = None
        self.is_stopped = False
        self._sent: deque[tuple[Sent, int, int, int]] = deque()

    def resolve(self, found: Found, committed: int | None, start: int, end: int) -> int | None:
        """Return the offset to start from; None: the partition is stopped.

        found: what the target holds. committed: what the link's group has committed, which counts
        if the target's retention left nothing. start, end: of the source's log.
        """
        self.source_start, self.source_end = start, end
        resume = found.resume
        if resume is None:
            if not found.is_empty:
                self._stop(
                    Trouble.UNRELATED_TOPIC,
                    f"the target's {self.target.topic} holds records, and none of them is a copy"
                    f" of {self.source.topic}",
                )
                return None
            resume = committed
        if resume is None:
            resume = start
        if self.topic_id and found.topic_id and self.topic_id != found.topic_id:
            self._stop(
                Trouble.SOURCE_RECREATED,
                f"the source's {self.source.topic} is not the topic that {self.target.topic} has"
                " copies of: it was deleted and created again",
            )
            return None
        if resume > end:
            self._stop(
                Trouble.SOURCE_LOST_DATA,
                f"the source's log ends at {end}, and the target has copies up to {resume}: the"
                " source lost data, or its topic was created again",
            )
            return None
        if resume < start:
            self.trouble = Trouble.OVERTAKEN
            self.error = f"the source no longer has {resume} to {start - 1}"
        self.acknowledged = max(resume, start)
        return self.acknowledged

    def read(self, topic_id: UUID | None) -> None:
        """Note of which topic at the source the next records are; None: it has no id.

        Raises :class:`~qbus.errors.ApiError`: it is not the one that was read before. A new session
        compares it with what the target has.
        """
        if self.read_id not in {None, topic_id}:
            raise ApiError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{self.source.topic} was deleted and created again",
            )
        self.read_id = topic_id

    def sent(self, delivery: Sent, end: int, count: int, newest_ms: int) -> None:
        """Note that ``count`` records before ``end`` are sent; the last one is of ``newest_ms``."""
        self._sent.append((delivery, end, count, newest_ms))
        self.source_end = max(self.source_end, end)

    def collect(self) -> int:
        """Take in completed deliveries; return the number of their records.

        Raises the error of the next delivery if that failed.
        """
        delivered = 0
        while self._sent and self._sent[0][0].done():
            delivery, end, count, newest_ms = self._sent.popleft()
            delivery.result(0)
            self.acknowledged, self.newest_ms = end, newest_ms
            delivered += count
        return delivered

    def reached(self, position: int) -> None:
        """Note that everything before ``position`` was consumed; markers there need no copy."""
        if not self._sent and not self.is_stopped:
            self.acknowledged = max(self.acknowledged, position)

    def status(self, now_ms: int) -> PartitionStatus:
        """Return the status of the partition."""
        missing = self.source_end - self.acknowledged if self.acknowledged >= 0 else 0
        state = PartitionState.COPYING if missing > 0 else PartitionState.CURRENT
        if self.acknowledged < 0:
            state = PartitionState.WAITING
        lag_s = max(now_ms - self.newest_ms, 0) / 1000 if self.newest_ms >= 0 else None
        return PartitionStatus(
            topic=self.source.topic,
            target_topic=self.target.topic,
            partition=self.source.partition,
            state=PartitionState.STOPPED if self.is_stopped else state,
            source_start=self.source_start,
            source_end=self.source_end,
            target_end=self.acknowledged,
            lag_seconds=lag_s if missing > 0 else 0.0,
            trouble=self.trouble,
            error=self.error,
        )

    def _stop(self, trouble: Trouble, reason: str) -> None:
        self.is_stopped = True
        self.trouble, self.error = trouble, reason
