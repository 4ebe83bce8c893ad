"""Records that are due too late for their ``qbus-ttl`` go to the dead letter topic."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, Protocol

from qbus.clock import Clock
from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.records import Compression
from qbus.service.backoff import Backoff

from ..partition.partition import Partition
from .delivery import (
    MOST_LOOKED_AT,
    MOST_RECORDS,
    Due,
    read_part,
    still_held,
    to_dead_letters,
    to_deliver,
)
from .fold import DelayFold
from .held import HeldRecord, HeldRecords
from .log_throttle import LogThrottle
from .schedule import Held

_log = logging.getLogger(__name__)

_FIRST_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 10.0
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class DeadLetterTopics(Protocol):
    """Stores batches in topics, wherever their partitions are led."""

    async def write(self, topic: str, batch: bytearray) -> None:
        """Store a batch on all in-sync replicas, at least once. Raises QbusError."""


class DeadLettering:
    """Moves records of one partition to its dead letter topic, each at least once.

    In memory are only the places of those that wait, at most ``MOST_LOOKED_AT``; their records are
    read again, one batch at a time. The topic is the one that the configuration names then. Where
    it names none any more, the partition delivers, and so drops, what waited.
    """

    def __init__(
        self,
        partition: Partition,
        clock: Clock,
        topics: DeadLetterTopics,
        held: Callable[[], HeldRecords],
        when_idle: Callable[[], None],
    ) -> None:
        """``held``: the partition's records. ``when_idle``: called when none wait any more."""
        self._partition = partition
        self._clock = clock
        self._topics = topics
        self._held = held
        self._when_idle = when_idle
        self._waiting: dict[Held, None] = {}
        self._stored: list[Held] = []  # which are to be given up next, and not stored again
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._backoff = Backoff(_FIRST_RETRY_S, _LONGEST_RETRY_S)
        self._failures = LogThrottle(clock)
        self._successes = LogThrottle(clock)
        self._moved = 0  # records, since the log last said how many

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, entry: Held) -> bool:
        return entry in self._waiting

    def add(self, entries: Iterable[Held]) -> None:
        """Move these records, too; they are held back until that is done."""
        self._waiting.update(dict.fromkeys(entries))
        if self._waiting and self._task is None and not self._is_stopped:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Move nothing any more: the partition is led elsewhere."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while self._waiting and not self._is_stopped:
                topic = self._partition.log.config.qbus_delay_dead_letter_topic
                if not topic:
                    self._waiting.clear()
                    return
                try:
                    await self._move_part(topic)
                except (QbusError, OSError) as error:
                    self._failed(topic, error)
                    await asyncio.sleep(self._backoff.failed())
                    self._drop_stale()
                else:
                    self._backoff.succeeded()
                    self._say_moved(topic)
        finally:
            self._task = None
            self._when_idle()

    async def _move_part(self, topic: str) -> None:
        self._give_up()
        entries = list(islice(self._waiting, MOST_RECORDS))
        records, count = await asyncio.to_thread(read_part, self._held(), entries)
        contains = self._fold.schedule.contains
        records = [record for record in records if contains(record.due, record.offset)]
        if records and not self._is_stopped:
            await self._store(topic, records)
        # Those that could not be read go, too: who delivers finds them again, and says so.
        for entry in entries[:count]:
            self._waiting.pop(entry, None)

    @property
    def _fold(self) -> DelayFold:
        fold = self._partition.log.fold.part(DelayFold)
        assert fold is not None
        return fold

    async def _store(self, topic: str, records: list[HeldRecord]) -> None:
        """Store records in ``topic``, and then give them up here. Raises QbusError."""
        try:
            await self._topics.write(topic, self._batch(records))
        except ApiError as error:
            if error.code not in _TOO_LARGE:
                raise
            if len(records) > 1:
                for record in records:
                    await self._store(topic, [record])
            else:
                await self._store_large(topic, records[0])
            return
        self._moved += len(records)
        self._stored = [Held(record.due, record.offset, 0) for record in records]
        self._give_up()

    async def _store_large(self, topic: str, record: HeldRecord) -> None:
        """Store a record that is too large for ``topic`` as it is; drop it if it always is."""
        try:
            batch = await asyncio.to_thread(self._batch, [record], Compression.GZIP)
            await self._topics.write(topic, batch)
        except ApiError as error:
            if error.code not in _TOO_LARGE:
                raise
            _log.error(
                "%s: the delayed record with offset %d was due too long ago and is dropped, for it"
                " is too large for the dead letter topic %s: %s",
                self._partition,
                record.original_offset,
                topic,
                error,
            )
        else:
            self._moved += 1
        self._stored = [Held(record.due, record.offset, 0)]
        self._give_up()

    def _batch(
        self, records: list[HeldRecord], compression: Compression = Compression.NONE
    ) -> bytearray:
        partition = self._partition
        return to_dead_letters(records, partition.topic, partition.index, compression)

    def _give_up(self) -> None:
        """Hold back no longer what was stored. Raises ApiError."""
        partition = self._partition
        due = still_held(Due([], self._stored, [], []), self._fold)
        if due and not self._is_stopped:
            now_ms = self._clock.time_ms()
            partition.append_own(to_deliver(due, partition.log.config, now_ms), 0)
        self._stored = []

    def _drop_stale(self) -> None:
        """Forget the places of records that were cancelled, rescheduled or carried."""
        due = set(self._fold.schedule.due(self._clock.time_ms(), MOST_LOOKED_AT))
        self._waiting = {entry: None for entry in self._waiting if entry in due}

    def _failed(self, topic: str, error: QbusError | OSError) -> None:
        if self._failures.allows():
            _log.warning(
                "%s: %d delayed records were due too long ago, and wait for their dead letter"
                " topic %s: %s",
                self._partition,
                len(self._waiting),
                topic,
                error,
            )

    def _say_moved(self, topic: str) -> None:
        if self._moved and (not self._waiting or self._successes.allows()):
            _log.warning(
                "%s: %d delayed records were due too long ago: now in %s",
                self._partition,
                self._moved,
                topic,
            )
            self._moved = 0
