"""One partition on its way from the source to the target. Pure.

::

    placing  --placed-->  copying  --fetched--> held, until it is --acknowledged
       ^                     |
       +------ failed -------+------- stopped

What is held was fetched, and not acknowledged by the target yet. After a failure it is dropped:
where to go on is found anew from what the target has, once nothing is on its way there any more.
"""

from collections import deque
from enum import Enum
from uuid import UUID

from qbus.errors import QbusError
from qbus.service.backoff import Backoff

from ..batches import FetchedBatches
from ..types import TopicPartition
from .chunks import Chunk, chunk_of
from .positions import Ends, Place
from .provenance import Provenance
from .status import PartitionState, PartitionStatus, Trouble

_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 5.0


class Phase(Enum):
    """What is to be done with a copy."""

    PLACING = "placing"
    COPYING = "copying"
    STOPPED = "stopped"


class Copy:
    """A partition at the source, the one at the target, and how far the copy is.

    ``position`` is what is fetched next, and ``follows`` the end of what was fetched before;
    ``target_end`` is what the target has acknowledged. ``run`` changes with every failure: what was
    asked for in an earlier one is void. ``sent`` counts the chunks on their way to the target.
    ``source_id`` and ``target_id`` are the topic's ids at both, ``source_epoch`` is the epoch of
    the source's leader in which the logs were compared. Times are in seconds of one monotonic
    clock, but those with ``_ms`` in milliseconds since the Unix epoch.
    """

    def __init__(
        self,
        source: TopicPartition,
        target: TopicPartition,
        provenance: Provenance,
        source_id: UUID | None = None,
        target_id: UUID | None = None,
    ) -> None:
        self.source = source
        self.target = target
        self.provenance = provenance
        self.source_id = source_id
        self.target_id = target_id
        self.error: str | None = None
        self.phase = Phase.PLACING
        self.run = 0
        self.sent = 0
        self.position = self.follows = self.target_end = -1
        self.source_start = self.source_end = self.source_epoch = -1
        self.is_current = False
        """Whether the last fetch found that there is no more."""
        self.retry_at = 0.0
        self.held_bytes = 0
        self._held: deque[Chunk] = deque()
        self._backoff = Backoff(_FIRST_DELAY_S, _LONGEST_DELAY_S, jitter=0)
        self._trouble: Trouble | None = None
        self._newest_ms = -1
        self._bytes = self._offsets = 0
        self._sent_to = -1

    def placed(self, where: Place, ends: Ends) -> bool:
        """It is known where to go on, or that it must not: whether it does.

        One that was stopped because the source had lost data goes on only where the logs could be
        compared, and agreed.
        """
        self.source_start, self.source_end = ends.source_start, ends.source_end
        self.source_epoch, self.target_end = ends.source_epoch, ends.target_end
        is_doubted = self._trouble is Trouble.SOURCE_LOST_DATA and not ends.overlap
        if where.is_stopped or is_doubted:
            self.phase = Phase.STOPPED
            self._trouble = Trouble.SOURCE_LOST_DATA
            self.error = where.reason or self.error
            return False
        self.error, self._trouble = where.reason, where.trouble
        self.phase = Phase.COPYING
        self.position, self.follows = where.position, where.follows
        self.is_current = self.position >= self.source_end
        return True

    def fetched(self, found: FetchedBatches) -> Chunk | None:
        """What came from ``position`` on: the batches to send, if there are any.

        Raises :class:`~qbus.records.CorruptBatch` as :func:`~.chunks.chunk_of`.
        """
        self.source_start, self.source_end = found.start_offset, found.high_watermark
        chunk = chunk_of(found.records, self.position, self.follows) if found.records else None
        if chunk is not None:
            self.position = self.follows = chunk.end
            self._held.append(chunk)
            self.held_bytes += len(chunk.records)
        self.is_current = self.position >= self.source_end
        return chunk

    def sending(self, chunk: Chunk) -> bool:
        """A chunk goes to the target; whether one did before, which may have arrived or not."""
        self.sent += 1
        is_known = chunk.end <= self._sent_to
        self._sent_to = max(self._sent_to, chunk.end)
        return is_known

    def acknowledged(self, chunk: Chunk) -> None:
        """The target has a chunk of this run, and so all that were fetched before.

        One that went to a former leader may be answered after one that followed it.
        """
        while self._held and self._held[0].end <= chunk.end:
            done = self._held.popleft()
            self.held_bytes -= len(done.records)
            self._bytes += len(done.records)
            self._offsets += done.end - self.target_end
            self.target_end = done.end
            self._newest_ms = done.newest_ms
        self._backoff.succeeded()
        if self._trouble is not Trouble.OVERTAKEN:
            self.error = None

    def failed(self, error: QbusError, now: float) -> None:
        """It cannot go on: begin anew, after a while if that happens again and again."""
        if self.phase is Phase.STOPPED:
            return
        if self.phase is Phase.COPYING:
            self._drop()
        self.phase = Phase.PLACING
        self.error = str(error)
        self.retry_at = now + self._backoff.failed()

    def overtaken(self) -> None:
        """The source no longer has what is asked for: see at once where it begins now."""
        self._drop()
        self.phase = Phase.PLACING
        self.retry_at = 0.0

    def stop(self, trouble: Trouble, reason: str) -> None:
        """Do not go on, until a person has seen to it."""
        self._drop()
        self.phase = Phase.STOPPED
        self._trouble, self.error = trouble, reason

    def doubt(self) -> None:
        """See again whether the source has lost data: a leader of yesterday may have said so."""
        if self.phase is Phase.STOPPED and self._trouble is Trouble.SOURCE_LOST_DATA:
            self.phase = Phase.PLACING

    def release(self) -> None:
        """It is this process's no longer: what is held is not sent."""
        self._drop()
        self.phase = Phase.STOPPED

    def may_be_placed(self, now: float) -> bool:
        """Whether it is time to find out where to go on, with nothing on its way to the target."""
        return self.phase is Phase.PLACING and self.sent == 0 and now >= self.retry_at

    def status(self, now_ms: int) -> PartitionStatus:
        """How it is."""
        return PartitionStatus(
            topic=self.source.topic,
            target_topic=self.target.topic,
            partition=self.source.partition,
            state=self._state(),
            source_start=self.source_start,
            source_end=self.source_end,
            target_end=self.target_end,
            lag_bytes=self._lag_bytes(),
            lag_seconds=self._lag_seconds(now_ms),
            trouble=self._trouble,
            error=self.error,
        )

    def _drop(self) -> None:
        self.run += 1
        self._held.clear()
        self.held_bytes = 0

    def _state(self) -> PartitionState:
        is_stopped = self.phase is not Phase.COPYING and self._trouble is Trouble.SOURCE_LOST_DATA
        if self.phase is Phase.STOPPED or is_stopped:
            return PartitionState.STOPPED
        if self.phase is Phase.PLACING:
            return PartitionState.WAITING
        is_done = self.is_current and not self._held
        return PartitionState.CURRENT if is_done else PartitionState.COPYING

    def _missing(self) -> int:
        return max(self.source_end - max(self.target_end, self.source_start, 0), 0)

    def _lag_bytes(self) -> int | None:
        if self.source_end < 0:
            return None
        if not self._missing():
            return 0
        return self._missing() * self._bytes // self._offsets if self._offsets else None

    def _lag_seconds(self, now_ms: int) -> float | None:
        if self.source_end < 0:
            return None
        if not self._missing():
            return 0.0
        oldest = self._held[0].oldest_ms if self._held else self._newest_ms
        return max(now_ms - oldest, 0) / 1000 if oldest >= 0 else None
