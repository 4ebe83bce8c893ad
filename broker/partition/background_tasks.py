"""What partitions need from time to time: retention, new segments, checkpoints, flushes, checks.

Each kind of work has a task of its own, so that a slow disk delays none of the others, and what
waits for a disk runs in threads. A failure is logged, and the work tried again next time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from qbus.clock import Clock
from qbus.config import BrokerConfig
from qbus.errors import ApiError

from ..log import LogManager, TopicPartition
from .partition import Partition

_log = logging.getLogger(__name__)

SCRUB_STEP_BYTES = 1024 * 1024
SCRUB_ROUND_S = 24 * 60 * 60.0
_TICK_S = 1.0
_SLOW_TICK_S = 5.0
_THREADS = 4

Work = Callable[[], Awaitable[object] | None]


class BackgroundTasks:
    """The background work on all partitions."""

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Iterable[Partition],
        logs: LogManager,
        clock: Clock,
        retry: Work,
        disqualify: Work,
        repair: Work,
        doubt: Work,
    ) -> None:
        """``partitions`` is iterated anew each time.

        ``retry`` opens what could not be opened, ``disqualify`` says of what is held here that it
        is lost, ``repair`` replaces what went bad by what other replicas have, ``doubt`` stops to
        lead what others may lead.
        """
        self._config = config
        self._partitions = partitions
        self._logs = logs
        self._clock = clock
        self._retry = retry
        self._disqualify = disqualify
        self._repair = repair
        self._doubt = doubt
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._scrubbed: Iterator[Partition] = iter(())
        self._scrubbing: Partition | None = None
        self._next_round = clock.monotonic()

    def start(self) -> None:
        """Begin to work."""
        config, logs = self._config, self._logs
        self._threads = ThreadPoolExecutor(_THREADS, "qbus-upkeep")
        schedule: tuple[tuple[float, Work], ...] = (
            (_TICK_S, self.flush),
            (_SLOW_TICK_S, self._retry),
            (_TICK_S, self._disqualify),
            (_SLOW_TICK_S, self._repair),
            (_TICK_S, self._doubt),
            (_TICK_S, self._threaded(self.scrub)),
            (_SLOW_TICK_S, self._threaded(logs.empty_trash)),
            (config.log_retention_check_interval_ms / 1000, self._threaded(self.apply_retention)),
            (
                config.log_flush_offset_checkpoint_interval_ms / 1000,
                self._threaded(logs.checkpoint),
            ),
            (
                config.log_flush_start_offset_checkpoint_interval_ms / 1000,
                self._threaded(self._logs.checkpoint_log_starts),
            ),
            (
                config.replica_high_watermark_checkpoint_interval_ms / 1000,
                self.checkpoint_high_watermarks,
            ),
        )
        self._tasks = [asyncio.create_task(_repeat(*entry)) for entry in schedule]

    async def stop(self) -> None:
        """Stop, and wait for what runs in threads."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        if self._tasks:
            if (noting := self.checkpoint_high_watermarks()) is not None:
                await noting
            await asyncio.to_thread(self._threads.shutdown)

    # In the event loop

    def flush(self) -> None:
        """Begin the flushes that are due by configuration, or that could not be done before."""
        for partition in self._partitions:
            if not partition.error and (partition.is_behind or partition.log.flush_due()):
                partition.flush()

    def checkpoint_high_watermarks(self) -> Awaitable[None] | None:
        """Note up to where partitions are acknowledged, if that is another place than before."""
        known = {one.log.topic_partition: one.high_watermark for one in self._partitions}
        if known == self._high_watermarks:
            return None
        self._high_watermarks = known
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._threads, self._logs.checkpoint_high_watermarks, known)

    # In threads

    def apply_retention(self) -> None:
        """Begin new segments, delete old ones, forget idle producers."""
        for partition in self._partitions:
            if self._stopping:
                return
            if not partition.log.is_usable:
                continue
            try:
                partition.log.roll_if_due()
                partition.log.apply_retention(partition.high_watermark)
                partition.log.remover.expire_producers()
            except ApiError as error:  # it was deleted just now, or its disk failed
                _log.info("no retention of %s: %s", partition, error)
            except Exception:  # noqa: BLE001 - one partition's trouble is no other's
                _log.exception("retention of %s failed", partition)

    def scrub(self) -> None:
        """Check a little more of what is on disk: all of it, in turn, at most once a day."""
        if self._scrubbing is None:
            self._scrubbing = self._next_to_scrub()
        if self._scrubbing is None:
            return
        try:
            if self._scrubbing.log.scrub(SCRUB_STEP_BYTES):
                self._scrubbing = None
        except ApiError:  # its log is closed, or corrupt as a whole, which was reported
            self._scrubbing = None
        except OSError as error:
            _log.warning("checking %s failed: %s", self._scrubbing, error)
            self._scrubbing = None

    def _next_to_scrub(self) -> Partition | None:
        following = next(self._scrubbed, None)
        now = self._clock.monotonic()
        if following is None and now >= self._next_round:
            partitions = list(self._partitions)
            if partitions:  # else they are still to come
                self._next_round = now + SCRUB_ROUND_S
            self._scrubbed = iter(partitions)
            following = next(self._scrubbed, None)
        return following

    def _threaded(self, work: Callable[[], object]) -> Work:
        loop = asyncio.get_running_loop()
        return lambda: loop.run_in_executor(self._threads, work)


async def _repeat(seconds: float, work: Work) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            outcome = work()
            if outcome is not None:
                await outcome
        except Exception:  # noqa: BLE001 - next time it may work
            _log.exception("upkeep failed; it is tried again in %g s", seconds)
