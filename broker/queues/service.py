"""Queues of the partitions that this broker leads."""

import asyncio
import logging
import math
import re
from collections.abc import Iterable, Iterator
from typing import Final

from qbus.clock import Clock
from qbus.errors import ApiError, ErrorCode
from qbus.records import Buffer
from qbus.records.control import Change, ChangeKind

from ..delay.log_throttle import LogThrottle
from ..log.config import LogConfig
from ..partition.background_tasks import BackgroundTasks
from ..partition.events import PartitionListener
from ..partition.partition import Partition
from ..turn_end import at_end
from .batches import BatchCache, LogBatches
from .dead_lettering import DeadLetterTopics
from .fold import GroupProgress, QueueFold
from .journal import Entry, Journal
from .led import WaitsForRecords
from .queue import ShareQueue, not_due
from .settings import BY_DURATION, EARLIEST, LATEST, READ_COMMITTED, GroupSettings
from .source import retrieve
from .types import QueueCounts, QueueDescription

_log = logging.getLogger(__name__)

_DAY_S: Final = 86_400.0
_MOST_OFFERED: Final = 64 * 1024  # bytes of a batch that is kept before anybody has taken of it

MOST_GROUPS: Final = 1_000
"""How many share groups a partition knows at most."""

_DURATION: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,9}))?S)?)?"
)


class LedQueues:
    """The queues of one partition that is led here.

    It is among the partition's watchers (:class:`~qbus.broker.partition.purgatory.Watcher`) while
    somebody waits for records of a queue, so that others' appends cost nothing more.
    """

    def __init__(
        self, partition: Partition, clock: Clock, cache: BatchCache, dead_letters: DeadLetterTopics
    ) -> None:
        self.partition = partition
        self.clock = clock
        self.journal = Journal(partition, clock)
        self.batches = LogBatches(partition.log, cache)
        self.loading = asyncio.Lock()
        self.dead_letters = dead_letters
        self.queues: dict[str, ShareQueue] = {}
        self._settings: dict[str, tuple[GroupSettings, LogConfig, GroupSettings]] = {}
        self._waited: dict[WaitsForRecords, None] = {}  # by whom, perhaps, for records to come
        self._loop = asyncio.get_running_loop()
        self._is_due = False
        self._led_since = clock.monotonic()
        self._idle_lines = LogThrottle(clock, _DAY_S)
        # What the log says of its queues: it is not replaced as long as the partition is led here.
        self.fold = partition.log.fold.part(QueueFold)

    def progress(self, group: str) -> GroupProgress | None:
        """What a group has done, if the partition knows it."""
        fold = self.fold
        return None if fold is None else fold.groups.get(group)

    def queue(self, group: str, settings: GroupSettings) -> ShareQueue:
        """The records as ``group`` takes them; one that is new begins. Raises ApiError."""
        settings = self._within_topic(group, settings)
        known = self.queues.get(group)
        if known is not None:
            known.configure(settings)
            return known
        if self.progress(group) is None and not settings.auto_offset_reset.startswith(BY_DURATION):
            self.start_now(group, settings.auto_offset_reset)
        queue = self.queues[group] = ShareQueue(self, group, settings)
        return queue

    def _within_topic(self, group: str, settings: GroupSettings) -> GroupSettings:
        """The settings in force: the topic's own before the group's."""
        config = self.partition.log.config
        known = self._settings.get(group)
        if known is None or known[0] is not settings or known[1] is not config:
            known = self._settings[group] = settings, config, settings.within(config)
        return known[2]

    def _check_count(self, group: str) -> None:
        fold = self.fold
        if fold is not None and len(fold.groups) >= MOST_GROUPS and group not in fold.groups:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"{self.partition} knows {MOST_GROUPS} share groups already",
            )

    def start_now(self, group: str, reset: str) -> None:
        """Have a group begin at the log's start, or at its end. Raises ApiError."""
        offset = {
            EARLIEST: self.partition.log.log_start_offset,
            LATEST: self.partition.visible_end,
        }.get(reset)
        if offset is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"share.auto.offset.reset: {reset!r}")
        self._start(group, offset, check=True)

    async def find_start(self, group: str, settings: GroupSettings) -> None:
        """Have a group that is new begin where its settings say. Raises ApiError."""
        reset = settings.auto_offset_reset
        if not reset.startswith(BY_DURATION):
            self.start_now(group, reset)
            return
        since = self.clock.time_ms() - duration_ms(reset.removeprefix(BY_DURATION))
        log = self.partition.log
        found = await asyncio.to_thread(log.offset_for_timestamp, since)
        if self.progress(group) is None:
            end = self.partition.visible_end
            self._start(group, end if found is None else min(found.offset, end), check=True)

    def start(self, group: str, offset: int) -> "asyncio.Future[None]":
        """Have a group begin at ``offset``, whatever it did; done when that is for good."""
        return self._start(group, offset, check=False)

    def _start(self, group: str, offset: int, *, check: bool) -> "asyncio.Future[None]":
        self.check()
        if check:
            self._check_count(group)
        acknowledged = self.journal.write(
            Entry(group, [Change(ChangeKind.STARTED, offset, offset)])
        )
        acknowledged.add_done_callback(retrieve)
        self.journal.flush()
        if self.progress(group) is None and acknowledged.done():
            acknowledged.result()
        queue = self.queues.get(group)
        if queue is not None:
            queue.begin()
        return acknowledged

    def check(self) -> None:
        """Raise ApiError unless control records may be appended."""
        if self.partition.error:
            raise ApiError(self.partition.error)
        if self.partition.log.config.qbus_mirror_source:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"{self.partition} is the copy of another cluster's partition: its records are"
                " taken there",
            )

    def mention(self) -> None:
        """Say again what the groups have done that retention may soon forget.

        A replica that begins with what is left of the log knows them by that.
        """
        fold, segments = self.fold, self.partition.log.full_segments()
        if fold is None or not segments or self.partition.error:
            return
        active_from = segments[-1].end_offset
        for name, progress in fold.groups.items():
            if progress.mentioned_at < active_from:
                start = max(progress.start, self.partition.log.log_start_offset)
                changes = [Change(ChangeKind.ARCHIVED, 0, start - 1)] if start else []
                self.journal.add(Entry(name, changes))

    def used_at(self, group: str) -> float:
        """When a group last used the partition: now, if a member waits for records.

        By the monotonic clock, in seconds; -inf: it has not since the partition is led here.
        """
        queue = self.queues.get(group)
        if queue is None:
            return -math.inf
        return self.clock.monotonic() if queue.waiting else queue.used_at

    @property
    def is_done(self) -> bool:
        """Whether all groups are done with all records; without a group, there is no record."""
        partition, log = self.partition, self.partition.log
        end = partition.high_watermark
        fold = self.fold
        if fold is None or end < log.log_end_offset or not_due(partition):
            return False
        if not fold.groups:
            return not _records_in(partition, [(log.log_start_offset, end - 1)])
        return not any(
            _records_in(partition, progress.done.gaps(start, end - 1))
            for progress in fold.groups.values()
            if (start := max(progress.start, log.log_start_offset)) < end
        )

    def give_up_idle(self) -> None:
        """Give up what idle groups keep from being removed, or warn of them."""
        log, config = self.partition.log, self.partition.log.config
        segments = log.full_segments()
        if self.fold is None or not config.removes_acknowledged or self.partition.error:
            return
        now, kept_before = self.clock.monotonic(), segments[-1].end_offset if segments else 0
        for name, progress in self.fold.groups.items():
            if progress.start >= kept_before or log.log_start_offset >= kept_before:
                continue  # it keeps nothing
            idle_s = now - max(self._led_since, self.used_at(name))
            limit_ms = config.qbus_queue_group_idle_ms
            if 0 <= limit_ms < idle_s * 1000:
                self._give_up(name, progress, kept_before)
            elif limit_ms < 0 and idle_s >= _DAY_S and self._idle_lines.allows():
                _log.warning(
                    "%s: share group %s has taken nothing for %.0f h, and keeps up to %d bytes:"
                    " work on them, delete the group, or set qbus.queue.group.idle.ms",
                    self.partition,
                    name,
                    idle_s / 3600,
                    log.size,
                )

    def _give_up(self, name: str, progress: GroupProgress, offset: int) -> None:
        _log.warning(
            "%s: share group %s has taken nothing for longer than qbus.queue.group.idle.ms: what it"
            " has not done of the records from %d to %d is given up",
            self.partition,
            name,
            progress.start,
            offset - 1,
        )
        queue = self.queues.get(name)
        if queue is not None and queue.state is not None:
            queue.give_up_before(offset)
        else:
            change = Change(ChangeKind.ARCHIVED, progress.start, offset - 1)
            self.journal.add(Entry(name, [change]))

    def watch(self, queue: WaitsForRecords) -> None:
        """Have ``queue`` look when records become visible, as long as somebody waits for them."""
        self._waited[queue] = None
        self.partition.watchers[self] = None
        if queue.settings.isolation == READ_COMMITTED:
            self.partition.committed_watchers[self] = None

    @property
    def sees_hidden(self) -> bool:
        """See :class:`~qbus.broker.partition.purgatory.Watcher`."""
        return False

    def advanced(self, size: int) -> None:  # noqa: ARG002
        """See :class:`~qbus.broker.partition.purgatory.Watcher`: look at the end of this turn."""
        if not self._is_due:
            self._is_due = True
            at_end(self._loop, self._look)

    def offer(self, batch: Buffer) -> None:
        """A batch was appended: keep it for who waits, if anybody does."""
        if self._waited and len(batch) <= _MOST_OFFERED and self.batches.log is self.partition.log:
            self.batches.offer(batch)

    def _look(self) -> None:
        self._is_due = False
        for queue in list(self._waited):
            if not queue.advanced():
                self._waited.pop(queue, None)
        if not self._waited:
            self._unwatch()

    def _unwatch(self) -> None:
        self.partition.watchers.pop(self, None)
        self.partition.committed_watchers.pop(self, None)

    def close(self, code: ErrorCode) -> None:
        """Give out nothing any more."""
        for queue in self.queues.values():
            queue.close(code)
        self.queues.clear()
        self._waited.clear()
        self._unwatch()
        self.batches.clear()


class QueueService(PartitionListener[Partition]):
    """The queues of all partitions that this broker leads, by partition and share group."""

    def __init__(
        self, clock: Clock, dead_letters: DeadLetterTopics, cache: BatchCache | None = None
    ) -> None:
        """``cache``: bounds what is kept of the batches of all partitions."""
        self._clock = clock
        self._dead_letters = dead_letters
        self._cache = cache or BatchCache()
        self._led: dict[Partition, LedQueues] = {}

    def register(self, tasks: BackgroundTasks, retention_interval_s: float) -> None:
        """Add the tasks of the service."""
        tasks.add("mention share groups", retention_interval_s, self.mention)
        tasks.add("give up records of idle groups", retention_interval_s, self.give_up_idle)

    def __iter__(self) -> Iterator[ShareQueue]:
        """The queues that somebody used since this broker leads their partitions."""
        for led in list(self._led.values()):
            yield from list(led.queues.values())

    def queue(self, partition: Partition, group: str, settings: GroupSettings) -> ShareQueue:
        """The records of a partition that is led here, as ``group`` takes them.

        A group that is new begins where ``settings.auto_offset_reset`` says. A queue goes by the
        settings that it was asked for with last. Raises ApiError.
        """
        return self._of(partition).queue(group, settings)

    def _of(self, partition: Partition) -> LedQueues:
        """Raises ApiError unless the partition is led here."""
        led = self._led.get(partition)
        if led is None or led.batches.log is not partition.log:
            if led is not None:
                led.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            led = LedQueues(partition, self._clock, self._cache, self._dead_letters)
            led.check()
            self._led[partition] = led
        else:
            led.check()
        return led

    def offer(self, partition: Partition, batch: Buffer) -> None:
        """A batch of records was just appended to a partition, which may be led here.

        Where somebody waits for them, they need not be read.
        """
        led = self._led.get(partition)
        if led is not None:
            led.offer(batch)

    @staticmethod
    def groups(partition: Partition) -> list[str]:
        """The share groups that a partition knows; any replica knows them."""
        fold = partition.log.fold.part(QueueFold)
        return [] if fold is None else list(fold.groups)

    def describe(self, partition: Partition, group: str) -> QueueDescription | None:
        """A group's state in a partition, None before its first use. Raises ApiError unless led."""
        led = self._of(partition)
        queue = led.queues.get(group)
        if queue is not None and queue.state is not None:
            return queue.describe()
        progress = led.progress(group)
        if progress is None:
            return None
        start = max(progress.start, partition.log.log_start_offset)
        end = partition.visible_end
        undone = progress.done.gaps(start, end - 1) if start < end else ()
        length = _records_in(partition, undone)
        return QueueDescription(start, length, 0, not_due(partition), -1, QueueCounts())

    def describe_unused(self, partition: Partition, settings: GroupSettings) -> QueueDescription:
        """What a group with these settings finds in a partition that it has not used yet.

        ``start_offset`` is -1. Raises ApiError unless the partition is led here.
        """
        self._of(partition)
        begin, end = partition.log.log_start_offset, partition.visible_end
        takes_all = settings.auto_offset_reset == EARLIEST and begin < end
        length = _records_in(partition, [(begin, end - 1)]) if takes_all else 0
        return QueueDescription(-1, length, 0, not_due(partition), -1, QueueCounts())

    async def set_start(self, partition: Partition, group: str, offset: int) -> None:
        """Have a group begin at ``offset``, whatever it did; for good on return. Raises ApiError.

        What is given out now is given out no more: it cannot be acknowledged.
        """
        log_start, end = partition.log.log_start_offset, partition.high_watermark
        if not log_start <= offset <= end:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} has offsets from {log_start} to {end}"
            )
        await self._of(partition).start(group, offset)

    async def delete(self, partition: Partition, group: str) -> None:
        """Forget a group's state in a partition; for good on return. Raises ApiError."""
        led = self._of(partition)
        if led.progress(group) is not None:
            acknowledged = led.journal.write(Entry(group, [Change(ChangeKind.FORGOTTEN, 0, 0)]))
            led.journal.flush()
            if led.progress(group) is None:
                queue = led.queues.pop(group, None)
                if queue is not None:
                    queue.close(ErrorCode.GROUP_ID_NOT_FOUND)
            await acknowledged

    def mention(self) -> None:
        """Say again in each log which groups there are, before retention takes where it says so."""
        for led in list(self._led.values()):
            led.mention()

    def give_up_idle(self) -> None:
        """Give up what idle groups keep, where the topics' configuration says so."""
        for led in list(self._led.values()):
            led.give_up_idle()

    def used_at(self, partition: Partition) -> float:
        """When any group last used a partition: see :meth:`LedQueues.used_at`."""
        led = self._led.get(partition)
        return -math.inf if led is None else max(map(led.used_at, led.queues), default=-math.inf)

    def is_done(self, partition: Partition) -> bool:
        """Whether no record waits for anyone: see :attr:`LedQueues.is_done`.

        False where the partition is not led here.
        """
        try:
            return self._of(partition).is_done
        except ApiError:
            return False

    # The partitions

    def leading(self, partition: Partition, leader_epoch: int) -> None:  # noqa: ARG002
        """See :class:`PartitionListener`: who had something has it no more."""
        self.stepping_down(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        fold = partition.log.fold.part(QueueFold)
        if fold is not None and fold.groups and not partition.log.config.qbus_mirror_source:
            self._led[partition] = LedQueues(
                partition, self._clock, self._cache, self._dead_letters
            )

    def stepping_down(self, partition: Partition, code: ErrorCode) -> None:
        """See :class:`PartitionListener`."""
        led = self._led.pop(partition, None)
        if led is not None:
            led.close(code)

    def closed(self, partition: Partition) -> None:
        """See :class:`PartitionListener`."""
        self.stepping_down(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def stop(self) -> None:
        """Give out nothing any more."""
        for led in list(self._led.values()):
            led.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._led.clear()


def _records_in(partition: Partition, ranges: Iterable[tuple[int, int]]) -> int:
    """How many visible records there are in ranges of offsets, both ends included."""
    hidden_between = partition.log.hidden_between
    return sum(high - low + 1 - hidden_between(low, high + 1) for low, high in ranges)


def duration_ms(text: str) -> int:
    """The milliseconds of an ISO 8601 duration of days and less. Raises ApiError."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()) or text.endswith("T"):
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{text!r} is no duration such as PT1H or P1DT12H")
    days, hours, minutes, seconds, fraction = match.groups()
    whole_s = 0
    for count, unit_s in ((days, 86_400), (hours, 3_600), (minutes, 60), (seconds, 1)):
        whole_s += unit_s * int(count or 0)
    return 1000 * whole_s + int((fraction or "0").ljust(3, "0")[:3])
