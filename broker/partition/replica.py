"""A partition's log on this broker: how far it is stable and visible, and who waits for that.

Everything here runs in the event loop. Only flushes run in threads, one at a time for each log, and
report back to the loop.
"""

import logging
from abc import ABC, abstractmethod
from collections import deque

from ..log import Log
from .flusher import Flusher
from .watchers import Watcher

_log = logging.getLogger(__name__)

_SIZES = 1024  # beyond that many appends, those that become visible late count as one


class Replica(ABC):
    """What a leader and a follower have in common.

    ``high_watermark`` is the offset below which records are acknowledged and visible. ``durable``
    replicas acknowledge what is on stable storage, others what is written. ``watchers`` are those
    who wait for records to become visible.
    """

    __slots__ = (
        "_flusher",
        "_flushing",
        "_sizes",
        "durable",
        "high_watermark",
        "index",
        "log",
        "topic",
        "watchers",
    )

    def __init__(self, topic: str, index: int, log: Log, flusher: Flusher) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.durable = True
        known = min(log.checkpointed_high_watermark, log.log_end_offset)
        self.high_watermark = max(known, log.log_start_offset)
        self.watchers: dict[Watcher, None] = {}
        self._flusher = flusher
        self._flushing = False
        self._sizes: deque[tuple[int, int]] = deque()  # end offset and bytes of each append

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def stable_end(self) -> int:
        """Up to where this replica has everything, on stable storage if the topic wants that."""
        return self.log.flushed_offset if self.durable else self.log.log_end_offset

    @property
    def is_behind(self) -> bool:
        """Whether something waits for a flush, and none is under way."""
        return not self._flushing and self.stable_end < self.log.log_end_offset

    def flush(self) -> None:
        """Begin to flush what is written, unless a flush is under way."""
        if not self._flushing:
            self._flushing = True
            self._flusher.submit(self.log.flush, self._flushed)

    def wake(self) -> None:
        """Have those who wait for records look again."""
        for watcher in self.watchers:
            watcher.advanced(0)

    # What the rest of the partition makes of it

    @abstractmethod
    def _stabilized(self, stable_end: int) -> None:
        """More than before is stable."""

    @abstractmethod
    def _failed(self) -> None:
        """The disk does not take what was written, now or for good."""

    # For the rest of the partition

    def _written(self, end: int, size: int) -> None:
        """Records up to ``end``, of ``size`` bytes, are in the log."""
        sizes = self._sizes
        if len(sizes) >= _SIZES:
            size += sizes.pop()[1]
        sizes.append((end, size))
        if self.durable:
            self.flush()
        else:
            self._stabilized(end)
            if end - self.log.flushed_offset >= self.log.config.flush_messages:
                self.flush()

    def _show(self, offset: int) -> None:
        """Let everything below ``offset`` be visible."""
        self.high_watermark = offset
        size = 0
        sizes = self._sizes
        while sizes and sizes[0][0] <= offset:
            size += sizes.popleft()[1]
        for watcher in self.watchers:
            watcher.advanced(size)

    def _flushed(self, result: int | BaseException) -> None:
        self._flushing = False
        if isinstance(result, BaseException):
            _log.error("flushing %s failed: %s", self, result)
            self._failed()
            return
        self._stabilized(self.stable_end)
        if self.is_behind:
            self.flush()
