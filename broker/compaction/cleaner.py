"""Compacts the logs of a broker, each time the one with the largest share that is not compacted.

It runs in threads of its own, never in the event loop, under a limit of bytes per second. A log
that is damaged is left alone until it is repaired: that is logged, and told by the metrics.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from qbus.clock import Clock
from qbus.config import BrokerConfig
from qbus.errors import ApiError
from qbus.service.token_bucket import TokenBucket

from ..log import Log, LogManager, TopicPartition
from ..log.scan import BadBatch
from ..partition.events import PartitionListener
from ..partition.partition import Partition
from .cleaning import Buffers, CleaningAbandonedError, CleaningResult, clean
from .plan import Dirt, find_dirt

_log = logging.getLogger(__name__)

_LONGEST_WAIT_S: Final = 1.0  # before the rate is looked at again
_SHORTEST_WAIT_S: Final = 0.001  # shorter ones are made up for later
_BURST_S: Final = 0.2
_NOTHING: Final = CleaningResult(0)


class _StoppingError(Exception):
    """The cleaner is being stopped, or the log closed."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a log is not compacted.

    That holds until the log's count of ``rewrites`` is another one: records were repaired or cut.
    """

    log: Log
    rewrites: int
    reason: str


@dataclass(slots=True)
class CleanerStatistics:
    """What was done since the start. ``seconds`` are those that compactions took."""

    compactions: int = 0
    failures: int = 0
    seconds: float = 0.0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_removed: int = 0
    last: CleaningResult = field(default_factory=lambda: _NOTHING)

    def add(self, result: CleaningResult, seconds: float) -> None:
        """Count a compaction."""
        self.compactions += 1
        self.seconds += seconds
        self.bytes_read += result.bytes_read
        self.bytes_written += result.bytes_written
        self.records_read += result.records_read
        self.records_removed += result.records_read - result.records_kept
        self.last = result


class LogCleaner(PartitionListener[Partition]):
    """The compaction of all logs whose ``cleanup.policy`` has ``compact``.

    It hears of partitions in the event loop. ``statistics`` and ``troubles`` are for any thread.
    """

    def __init__(self, logs: LogManager, config: BrokerConfig, clock: Clock) -> None:
        self._logs = logs
        self._config = config
        self._clock = clock
        self._partitions: dict[TopicPartition, Partition] = {}
        self._busy: set[TopicPartition] = set()
        self._troubles: dict[TopicPartition, Trouble] = {}
        self._postponed: set[TopicPartition] = set()  # until there is nothing else to do
        self._choosing = threading.Lock()
        self._pacing = threading.Lock()
        self._bucket = TokenBucket(clock.monotonic(), burst_s=_BURST_S)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self.statistics = CleanerStatistics()

    # In the event loop

    def opened(self, partition: Partition) -> None:
        """Look after ``partition`` from now on."""
        self._partitions[partition.log.topic_partition] = partition

    def closed(self, partition: Partition) -> None:
        """Look after ``partition`` no more."""
        key = partition.log.topic_partition
        if self._partitions.get(key) is partition:
            del self._partitions[key]
            self._troubles.pop(key, None)

    def start(self) -> None:
        """Begin to compact, unless ``log.cleaner.enable`` is false."""
        if self._config.log_cleaner_enable:
            for number in range(self._config.log_cleaner_threads):
                thread = threading.Thread(target=self._run, name=f"qbus-compact-{number}")
                thread.start()
                self._threads.append(thread)

    def stop(self) -> None:
        """End; what is under way ends at its next batches. Waits for that: for a thread."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    # For any thread

    def troubles(self) -> dict[TopicPartition, str]:
        """The partitions that are not compacted, for they are damaged, and how."""
        return {key: trouble.reason for key, trouble in list(self._troubles.items())}

    def compacted_topics(self) -> Iterator[str]:
        """The topics of which logs here were compacted, whatever their settings say by now."""
        for key in list(self._partitions):
            with suppress(ApiError):  # it is gone
                if self._logs.cleaned_before(*key):
                    yield key.topic

    def dirt(self) -> Iterator[tuple[TopicPartition, Dirt]]:
        """What there is to be compacted of each log. Reads of disks what is not known yet."""
        now_ms = self._clock.time_ms()
        for key, partition in list(self._partitions.items()):
            found = self._dirt_of(key, partition, now_ms)
            if found is not None:
                yield key, found

    # In the threads

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                found = self.clean_next()
            except Exception:  # noqa: BLE001 - the other logs are still to be compacted
                _log.exception("compaction failed; it goes on")
                found = False
            if not found:
                self._stopping.wait(max(self._config.log_cleaner_backoff_ms / 1000, 0.01))

    def clean_next(self) -> bool:
        """Compact the log that needs it most; whether there was one.

        One that cannot be compacted now is tried again after all others, which do not wait for it.
        """
        with self._choosing:
            chosen = self._choose()
            if chosen is None:
                self._postponed.clear()
                return False
            key, partition, dirt = chosen
            self._busy.add(key)
        try:
            if not self._clean(key, partition, dirt):
                self._postponed.add(key)
        except Exception:  # noqa: BLE001 - the other logs are still to be compacted
            self.statistics.failures += 1
            self._postponed.add(key)
            _log.exception("the compaction of %s failed; it is tried again", key)
        finally:
            self._busy.discard(key)
        return True

    def _choose(self) -> tuple[TopicPartition, Partition, Dirt] | None:
        now_ms = self._clock.time_ms()
        found: tuple[TopicPartition, Partition, Dirt] | None = None
        for key, partition in list(self._partitions.items()):
            if key in self._busy or key in self._postponed:
                continue
            if self._is_in_trouble(key, partition.log):
                continue
            dirt = self._dirt_of(key, partition, now_ms)
            if (
                dirt is not None
                and dirt.is_due(partition.log.config.min_cleanable_dirty_ratio)
                and (found is None or dirt.ratio > found[2].ratio)
            ):
                found = key, partition, dirt
        return found

    def _is_in_trouble(self, key: TopicPartition, log: Log) -> bool:
        trouble = self._troubles.get(key)
        if trouble is None:
            return False
        if trouble.log is log and trouble.rewrites == log.rewrites:
            return True
        self._troubles.pop(key, None)  # it was repaired, or begun anew
        return False

    def _dirt_of(self, key: TopicPartition, partition: Partition, now_ms: int) -> Dirt | None:
        log = partition.log
        config = log.config
        # A mirror holds what its source has, and is compacted by that alone.
        if not config.compacts or config.qbus_mirror_source or not log.is_usable:
            return None
        if self._logs.is_moving(*key):
            return None
        rewrites = log.rewrites
        segments = log.rewriter.segments
        try:
            return find_dirt(
                segments,
                config,
                cleaned_before=self._cleaned_before(log),
                limit=min(partition.last_stable_offset, log.flushed_offset),
                now_ms=now_ms,
            )
        except ApiError:  # it is gone
            return None
        except (BadBatch, OSError) as error:
            # What was cut off, repaired or deleted meanwhile says nothing of what is there now.
            if log.rewrites == rewrites and all(map(log.rewriter.has, segments)):
                self._complain(key, log, error)
        return None

    def _complain(self, key: TopicPartition, log: Log, error: BadBatch | OSError) -> None:
        if isinstance(error, BadBatch):
            self._stop_for(key, log, f"at offset {error.offset}: {error.problem}")
        else:
            _log.warning("%s is not compacted now, for its segments cannot be read: %s", key, error)

    def _cleaned_before(self, log: Log) -> int:
        offset = self._logs.cleaned_before(*log.topic_partition)
        return offset if offset <= log.log_end_offset else 0

    def _clean(self, key: TopicPartition, partition: Partition, dirt: Dirt) -> bool:
        log, begun = partition.log, self._clock.monotonic()

        def pace(count: int) -> None:
            self._pace(count)
            if self._stopping.is_set() or self._partitions.get(key) is not partition:
                raise _StoppingError

        threads = max(len(self._threads), 1)
        buffers = Buffers(
            self._config.log_cleaner_dedupe_buffer_size // threads,
            self._config.log_cleaner_io_buffer_load_factor,
            self._config.log_cleaner_io_buffer_size // threads // 2,
        )
        try:
            result = clean(log, dirt, buffers=buffers, now_ms=self._clock.time_ms(), pace=pace)
            self._logs.checkpoint_cleaned(*key, result.end_offset)
        except _StoppingError:
            return True
        except CleaningAbandonedError as error:
            _log.info("the compaction of %s was given up, and is tried again: %s", key, error)
            return False
        except BadBatch as bad:
            self._stop_for(key, log, f"at offset {bad.offset}: {bad.problem}")
            return True
        except (ApiError, OSError) as error:
            self.statistics.failures += 1
            _log.warning("the compaction of %s failed, and is tried again: %s", key, error)
            return False
        seconds = self._clock.monotonic() - begun
        self.statistics.add(result, seconds)
        _log.info(
            "%s is compacted up to offset %d in %.1f s: %d segments of %d bytes and %d records"
            " became %d of %d bytes and %d records",
            key,
            result.end_offset,
            seconds,
            result.segments_before,
            result.bytes_read,
            result.records_read,
            result.segments_after,
            result.bytes_written,
            result.records_kept,
        )
        return True

    def _stop_for(self, key: TopicPartition, log: Log, reason: str) -> None:
        self.statistics.failures += 1
        self._troubles[key] = Trouble(log, log.rewrites, reason)
        _log.error("%s is damaged, and not compacted until that is repaired: %s", key, reason)

    def _pace(self, count: int) -> None:
        """Wait as ``log.cleaner.io.max.bytes.per.second`` says, or until the cleaner stops."""
        rate = self._config.log_cleaner_io_max_bytes_per_second
        with self._pacing:
            self._bucket.spend(count)
            wait = self._bucket.wait(rate, self._clock.monotonic())
        while wait > _SHORTEST_WAIT_S and not self._stopping.wait(min(wait, _LONGEST_WAIT_S)):
            rate = self._config.log_cleaner_io_max_bytes_per_second
            with self._pacing:
                wait = self._bucket.wait(rate, self._clock.monotonic())
