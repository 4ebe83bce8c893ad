"""One partition that is produced anew: where to begin, and how far it is. Pure."""

from collections import deque
from typing import Protocol

from ...types import TopicPartition
from ..status import PartitionState, PartitionStatus, Trouble
from .resuming import Found


class Sent(Protocol):
    """Records on their way."""

    def done(self) -> bool:
        """Whether they are delivered or have failed."""

    def result(self, timeout: float | None = None) -> object:
        """Raise what kept them from being delivered."""


class Copy:
    """``source`` and ``target`` are the partition at each; offsets are those of the source.

    ``topic_id`` is the topic's id where it is written, "" if it has none; ``acknowledged`` is up to
    where the target has everything.
    """

    def __init__(self, source: TopicPartition, target: TopicPartition, topic_id: str = "") -> None:
        self.source = source
        self.target = target
        self.topic_id = topic_id
        self.source_start = self.source_end = -1
        self.acknowledged = -1
        self.newest_ms = -1
        self.trouble: Trouble | None = None
        self.error: str | None = None
        self.is_stopped = False
        self._sent: deque[tuple[Sent, int, int, int]] = deque()

    def place(self, found: Found, committed: int | None, start: int, end: int) -> int | None:
        """Where to begin, None: not at all.

        found: what the target holds. committed: what the link's group has committed, which counts
        where the target's retention left nothing. start, end: of the source.
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
                " source lost data, or its topic was created anew",
            )
            return None
        if resume < start:
            self.trouble = Trouble.OVERTAKEN
            self.error = f"the source no longer has {resume} to {start - 1}"
        self.acknowledged = max(resume, start)
        return self.acknowledged

    def sent(self, delivery: Sent, end: int, count: int, newest_ms: int) -> None:
        """``count`` records up to the offset ``end`` are on their way; the last is of then."""
        self._sent.append((delivery, end, count, newest_ms))
        self.source_end = max(self.source_end, end)

    def settle(self) -> int:
        """Take in what was delivered since; how many records that are.

        Raises what kept the next ones from being delivered.
        """
        delivered = 0
        while self._sent and self._sent[0][0].done():
            delivery, end, count, newest_ms = self._sent.popleft()
            delivery.result(0)
            self.acknowledged, self.newest_ms = end, newest_ms
            delivered += count
        return delivered

    def reached(self, position: int) -> None:
        """All up to ``position`` was sent: what nothing was sent of, as markers, needs no copy."""
        if not self._sent and not self.is_stopped:
            self.acknowledged = max(self.acknowledged, position)

    def status(self, now_ms: int) -> PartitionStatus:
        """How it is."""
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
