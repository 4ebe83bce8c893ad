"""One partition that is copied from the source to the target. Pure.

::

    resolving --resolved--> copying --fetched--> held, until it is --acknowledged
       ^                      |
       +------- failed -------+-------- stopped

Held chunks were fetched, and are not acknowledged by the target yet. A failure drops them: the
start offset is resolved again from the target's log, once nothing is in flight to the target.
"""

from collections import deque
from enum import Enum
from uuid import UUID

from qbus.errors import QbusError
from qbus.service.backoff import Backoff

from ..batches import FetchedBatches
from ..types import TopicPartition
from .chunks import Chunk, chunk_of
from .log_comparison import LogBounds, StartOffset
from .provenance import Provenance
from .status import PartitionState, PartitionStatus, Trouble

_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 5.0


class Phase(Enum):
    """What is done with a partition."""

    RESOLVING = "resolving"
    COPYING = "copying"
    STOPPED = "stopped"


class MirroredPartition:
    """A partition at the source, its mirror at the target, and the progress of copying.

    ``position`` is fetched next, ``follows`` is the end of what was fetched before; ``target_end``
    is what the target has acknowledged. ``run`` changes with every failure: requests of an earlier
    run are void. ``sent`` counts the chunks in flight to the target. ``source_id`` and
    ``target_id`` are the topic's ids, ``source_epoch`` is the leader epoch at the source in which
    the logs were compared. Times are in seconds of one monotonic clock; those with ``_ms`` are in
    milliseconds since the Unix epoch.
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
        self.phase = Phase.RESOLVING
        self.run = 0
        self.sent = 0
        self.position = self.follows = self.target_end = -1
        self.source_start = self.source_end = self.source_epoch = -1
        self.is_current = False
        """Whether the last fetch reached the end of the source's log."""
        self.retry_at = 0.0
        self.held_bytes = 0
        self._held: deque[Chunk] = deque()
        self._backoff = Backoff(_FIRST_DELAY_S, _LONGEST_DELAY_S, jitter=0)
        self._trouble: Trouble | None = None
        self._newest_ms = -1
        self._bytes = self._offsets = 0
        self._sent_to = -1

    def resolved(self, start: StartOffset, bounds: LogBounds) -> bool:
        """Take in the start offset; return whether copying goes on.

        A partition that was stopped because the source had lost data goes on only if the logs could
        be compared and agree.
        """
        self.source_start, self.source_end = bounds.source_start, bounds.source_end
        self.source_epoch, self.target_end = bounds.source_epoch, bounds.target_end
        is_doubted = self._trouble is Trouble.SOURCE_LOST_DATA and not bounds.overlap
        if start.is_stopped or is_doubted:
            self.phase = Phase.STOPPED
            self._trouble = Trouble.SOURCE_LOST_DATA
            self.error = start.reason or self.error
            return False
        self.error, self._trouble = start.reason, start.trouble
        self.phase = Phase.COPYING
        self.position, self.follows = start.position, start.follows
        self.is_current = self.position >= self.source_end
        return True

    def fetched(self, found: FetchedBatches) -> Chunk | None:
        """Take in what was fetched from ``position`` on; return the chunk to send, if any.

        Raises :class:`~qbus.records.CorruptBatch` as :func:`~.chunks.chunk_of`.
        """
        self.source_start, self.source_end = found.start_offset, found.high_watermark
        chunk = None
        if found.records:
            chunk = chunk_of(found.records, self.position, self.follows, found.start_offset)
        if chunk is not None:
            self.position = self.follows = chunk.end
            self._held.append(chunk)
            self.held_bytes += len(chunk.records)
        self.is_current = self.position >= self.source_end
        return chunk

    def sending(self, chunk: Chunk) -> bool:
        """Note that a chunk is sent; return whether it was sent before, with unknown outcome."""
        self.sent += 1
        is_known = chunk.end <= self._sent_to
        self._sent_to = max(self._sent_to, chunk.end)
        return is_known

    def acknowledged(self, chunk: Chunk) -> None:
        """Note that the target has stored a chunk of this run, and all before it.

        The response of a former leader may come after that of its successor.
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
        """Resolve the start offset again, after a delay that grows with repeated failures."""
        if self.phase is Phase.STOPPED:
            return
        if self.phase is Phase.COPYING:
            self._drop()
        self.phase = Phase.RESOLVING
        self.error = str(error)
        self.retry_at = now + self._backoff.failed()

    def overtaken(self) -> None:
        """Resolve the start offset at once: the source no longer has ``position``."""
        self._drop()
        self.phase = Phase.RESOLVING
        self.retry_at = 0.0

    def stop(self, trouble: Trouble, reason: str) -> None:
        """Stop until a person has solved the trouble."""
        self._drop()
        self.phase = Phase.STOPPED
        self._trouble, self.error = trouble, reason

    def recheck(self) -> None:
        """Check again whether the source has lost data: a stale leader may have said so."""
        if self.phase is Phase.STOPPED and self._trouble is Trouble.SOURCE_LOST_DATA:
            self.phase = Phase.RESOLVING

    def release(self) -> None:
        """Give the partition up: held chunks are not sent."""
        self._drop()
        self.phase = Phase.STOPPED

    def may_be_resolved(self, now: float) -> bool:
        """Whether the start offset may be resolved now: nothing is in flight to the target."""
        return self.phase is Phase.RESOLVING and self.sent == 0 and now >= self.retry_at

    def status(self, now_ms: int) -> PartitionStatus:
        """Return the status of the partition."""
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
        if self.phase is Phase.RESOLVING:
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
