"""What a follower does to its log: as its leader says, and nothing of its own.

Its fetcher appends what the leader has, and tells what it told of the high watermark. Before the
first records of each leader epoch it cuts away what the leader does not have.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from typing import Protocol

from qbus.errors import ApiError, ErrorCode

from ..log import Log
from .flusher import Flusher
from .replica import Replica


class Storage(Protocol):
    """Takes records away at the end of logs; waits for disks, so it is for threads."""

    def truncate(self, topic: str, partition: int, offset: int) -> int:
        """Cut a log back to ``offset``; where it ends then."""

    def restart_at(self, topic: str, partition: int, offset: int) -> None:
        """Drop all that a log has, and let it go on with ``offset``."""


class FollowerReplica(Replica):
    """A follower's log. Its fetcher sets ``on_stable``, called whenever ``stable_end`` moved on."""

    __slots__ = ("_cutting", "_storage", "on_stable")

    def __init__(
        self, topic: str, index: int, log: Log, flusher: Flusher, storage: Storage
    ) -> None:
        super().__init__(topic, index, log, flusher)
        self.on_stable: Callable[[], None] | None = None
        self._storage = storage
        self._cutting: asyncio.Future[object] | None = None

    @property
    @abstractmethod
    def is_leader(self) -> bool:
        """Whether it is led here."""

    def append_from_leader(self, records: memoryview) -> None:
        """Append batches as the leader has them; ``stable_end`` follows, see ``on_stable``.

        Raises:
            ApiError: CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR: none of them, or only the first.
        """
        before = self.log.log_end_offset
        try:
            self.log.append_as_follower(records)
        finally:
            end = self.log.log_end_offset
            if end > before:
                self._written(end, len(records))

    def learn_high_watermark(self, offset: int, leader_log_start: int) -> None:
        """What the leader's answer tells, after its records were appended."""
        log = self.log
        end = log.log_end_offset
        if log.log_start_offset < leader_log_start <= end:
            log.delete_records_before(leader_log_start)
        reached = max(min(offset, end), log.log_start_offset)
        if reached > self.high_watermark:
            self._reach(reached)

    async def truncate(self, offset: int) -> None:
        """Cut the log back to ``offset``; stable on return.

        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER when it is led here, KAFKA_STORAGE_ERROR.
        """
        await self._cut(self._storage.truncate, offset)

    async def truncate_fully(self, start_offset: int) -> None:
        """Drop everything, be it corrupt, and go on with ``start_offset``; stable on return.

        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER when it is led here, KAFKA_STORAGE_ERROR.
        """
        await self._cut(self._storage.restart_at, start_offset)

    @property
    def is_being_cut(self) -> bool:
        """Whether a truncation is under way."""
        return self._cutting is not None

    async def quiet(self) -> None:
        """Wait until nothing is being cut away: only then it may be led here."""
        while self._cutting is not None:
            await asyncio.wait([self._cutting])

    @abstractmethod
    def _reach(self, offset: int) -> None:
        """Let the high watermark move on to ``offset``."""

    async def _cut(self, cut: Callable[[str, int, int], object], offset: int) -> None:
        await self.quiet()
        if self.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self} is led here")
        loop = asyncio.get_running_loop()
        cutting = loop.run_in_executor(None, cut, self.topic, self.index, offset)
        self._cutting = cutting
        cutting.add_done_callback(self._after_cut)
        await asyncio.wait([cutting])  # the thread goes on, whoever is cancelled
        cutting.result()

    def _after_cut(self, _: asyncio.Future[object]) -> None:
        self._cutting = None
        self._sizes.clear()
        log = self.log
        kept = min(self.high_watermark, log.log_end_offset)
        self.high_watermark = max(kept, log.log_start_offset)
