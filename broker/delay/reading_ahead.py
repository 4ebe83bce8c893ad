"""Records that are due soon are read before: each batch once, in whatever order they are due."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from qbus.clock import Clock
from qbus.service.backoff import Backoff

from ..partition.partition import Partition
from .held import HeldRecords
from .log_throttle import LogThrottle
from .schedule import NEAR_MS, Schedule

_log = logging.getLogger(__name__)

_HORIZON_MS: Final = 10_000  # how far ahead records are read at most
_LEAST_AHEAD_MS: Final = 2_000  # and at least; other partitions may have the turn before
_BEHIND_MS: Final = 2_000  # from which on what is due now comes first
_PAUSE_S: Final = 0.001
_FIRST_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 30.0


class ReadAhead:
    """Reads the records of one partition that are due soon into memory, when it has the turn."""

    def __init__(
        self,
        partition: Partition,
        clock: Clock,
        turn: asyncio.Lock,
        held: Callable[[], HeldRecords],
        schedule: Callable[[], Schedule],
    ) -> None:
        """``turn``: held by the one of all partitions that reads ahead."""
        self._partition = partition
        self._clock = clock
        self._turn = turn
        self._held = held
        self._schedule = schedule
        self._task: asyncio.Task[None] | None = None
        self._has_turn = False
        self._read_up_to = 0  # the small slot of the schedule before which records were read
        self._ahead_ms = _LEAST_AHEAD_MS  # how long before that time the next are read
        self._is_stopped = False
        self._backoff = Backoff(_FIRST_RETRY_S, _LONGEST_RETRY_S)
        self._retry_at = float("-inf")
        self._failures = LogThrottle(clock)

    @property
    def is_under_way(self) -> bool:
        """Whether records are being read, or wait for their turn."""
        return self._task is not None

    def start(self, next_due: int, now_ms: int) -> None:
        """Have the records read that are due soon, if that is not done or under way.

        ``next_due``: when the first of them is due.
        """
        if (
            now_ms - _BEHIND_MS < next_due < now_ms + _HORIZON_MS
            and self._read_up_to * NEAR_MS < now_ms + self._ahead_ms
            and self._task is None
            and not self._is_stopped
            and self._clock.monotonic() >= self._retry_at
        ):
            self._task = asyncio.get_running_loop().create_task(self._run(now_ms))

    async def wait_for(self, due: int) -> None:
        """Wait until what is due at ``due`` is read, if it is being read now.

        Does not wait for another partition, which has the turn.
        """
        if self._task is not None and self._has_turn and due >= self._read_up_to * NEAR_MS:
            await asyncio.wait([self._task])

    def forget_from(self, due: int) -> None:
        """Records that are due from ``due`` on were evicted: read them again."""
        self._read_up_to = min(self._read_up_to, due // NEAR_MS)

    def stop(self) -> None:
        """Read nothing any more: the partition is led elsewhere."""
        self._is_stopped = True

    async def _run(self, now_ms: int) -> None:
        try:
            async with self._turn:
                self._has_turn = True
                await self._read(now_ms)
            self._backoff.succeeded()
        except OSError as error:
            self._retry_at = self._clock.monotonic() + self._backoff.failed()
            if self._failures.allows():
                _log.warning("%s: delayed records are not read ahead: %s", self._partition, error)
        finally:
            self._has_turn = False
            self._task = None

    async def _read(self, now_ms: int) -> None:
        held = self._held()
        if not held.has_room:
            return
        schedule, end = self._schedule(), (now_ms + _HORIZON_MS) // NEAR_MS
        offsets: list[int] = []
        for key in schedule.near_keys(self._read_up_to, end):
            offsets += schedule.offsets_at(key)
            if len(offsets) >= held.window:
                end = key + 1
                break
        near, is_read = held.begin_window(end * NEAR_MS), False
        offsets.sort()
        at = 0
        try:
            while at < len(offsets) and not self._is_stopped:
                at = await asyncio.to_thread(held.gather, offsets, at, near)
                await asyncio.sleep(_PAUSE_S)  # so that what is due meanwhile is not late
            is_read = not self._is_stopped and held is self._held()
        finally:
            held.end_window(near if is_read else None)
        self._read_up_to = end
        self._ahead_ms = max(_LEAST_AHEAD_MS, (near.end_ms - now_ms) // 2)
