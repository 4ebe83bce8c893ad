"""What logs need from time to time: retention, new segments, checkpoints, flushes, verification."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator

from qbus.clock import Clock
from qbus.config import BrokerConfig
from qbus.errors import ApiError

from ..log import LogManager
from .background_tasks import BackgroundTasks
from .partition import Partition

_log = logging.getLogger(__name__)

SCRUB_STEP_BYTES = 1024 * 1024
_SCRUB_PIECE_BYTES = 32 * 1024
_SCRUB_PAUSE_S = 0.005
SCRUB_ROUND_S = 24 * 60 * 60.0
TICK_S = 1.0
SLOW_TICK_S = 5.0


class LogMaintenance:
    """The maintenance of the logs of all partitions."""

    def __init__(self, partitions: Iterable[Partition], logs: LogManager, clock: Clock) -> None:
        """``partitions`` is iterated anew each time."""
        self._partitions = partitions
        self._logs = logs
        self._clock = clock
        self._stopping = False
        self._scrubbed: Iterator[Partition] = iter(())
        self._scrubbing: Partition | None = None
        self._next_round = clock.monotonic()

    def register(self, tasks: BackgroundTasks, config: BrokerConfig) -> None:
        """Add the tasks of maintenance, at the intervals that ``config`` has."""
        logs = self._logs
        every = {
            "retention": config.log_retention_check_interval_ms,
            "recovery points": config.log_flush_offset_checkpoint_interval_ms,
            "log starts": config.log_flush_start_offset_checkpoint_interval_ms,
            "high watermarks": config.replica_high_watermark_checkpoint_interval_ms,
        }
        tasks.add("flush", TICK_S, self.flush)
        tasks.add_threaded("verify", TICK_S, self.scrub)
        tasks.add_threaded("empty trash", SLOW_TICK_S, logs.empty_trash)
        threaded: dict[str, Callable[[], object]] = {
            "retention": self.apply_retention,
            "recovery points": logs.checkpoint,
            "log starts": logs.checkpoint_log_starts,
            "high watermarks": self.checkpoint_high_watermarks,
        }
        for name, work in threaded.items():
            tasks.add_threaded(name, every[name] / 1000, work)

    def stop(self) -> None:
        """Let retention that is under way end after the partition that it is at."""
        self._stopping = True

    # In the event loop

    def flush(self) -> None:
        """Begin the flushes that are due by configuration, or that could not be done before.

        Where files are short, all that there are: files that are not stable cannot be closed.
        """
        files = self._logs.open_files
        is_short = files.short
        if is_short:
            files.relieve()
        for partition in self._partitions:
            if not partition.error and (
                partition.is_behind
                or partition.log.flush_due()
                or (is_short and partition.is_unflushed)
            ):
                partition.flush()

    # In threads

    def checkpoint_high_watermarks(self) -> None:
        """Note the high watermarks on disk, if they are others than before."""
        self._logs.checkpoint_high_watermarks(
            lambda: ((one.log, one.high_watermark) for one in self._partitions)
        )

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
                partition.log.expire_producers()
            except ApiError as error:  # it was deleted just now, or its disk failed
                _log.info("no retention of %s: %s", partition, error)
            except Exception:  # noqa: BLE001 - one partition's trouble is no other's
                _log.exception("retention of %s failed", partition)

    def scrub(self) -> None:
        """Verify a little more of what is on disk: all of it, in turn, at most once a day.

        In pieces with pauses: of small batches a piece takes the interpreter for half a
        millisecond, and the event loop has to wait for that.
        """
        if self._scrubbing is None:
            self._scrubbing = self._next_to_scrub()
        left = SCRUB_STEP_BYTES
        while left > 0 and self._scrubbing is not None and not self._stopping:
            left -= max(self._scrub_piece(self._scrubbing), _SCRUB_PIECE_BYTES)
            time.sleep(_SCRUB_PAUSE_S)

    def _scrub_piece(self, partition: Partition) -> int:
        """Verify at least a batch; how many bytes that were."""
        before = partition.log.scrubbed_bytes
        try:
            if partition.log.scrub(_SCRUB_PIECE_BYTES):
                self._scrubbing = None
        except ApiError:  # its log is closed, or corrupt as a whole, which was reported
            self._scrubbing = None
        except OSError as error:
            _log.warning("verifying %s failed: %s", partition, error)
            self._scrubbing = None
        return partition.log.scrubbed_bytes - before

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
