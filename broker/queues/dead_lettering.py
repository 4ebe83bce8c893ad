"""Records that a share group gives up go to its dead letter topic (KIP-1191).

They are not given out meanwhile. Each is stored there at least once: again, if the broker fails
between that and the control record that says so.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from qbus import dead_letters
from qbus.clock import Clock
from qbus.errors import ApiError, CorruptBatch, ErrorCode, QbusError
from qbus.records import Compression, ConsumerRecord
from qbus.records.control import History
from qbus.service.backoff import Backoff

from ..delay.log_throttle import LogThrottle
from ..partition.partition import Partition
from .batches import StoredBatch
from .settings import GroupSettings
from .settlement import Given

_log = logging.getLogger(__name__)

_MOST_RECORDS: Final = 1000
_MOST_BYTES: Final = 512 * 1024
_FIRST_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 10.0
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class DeadLetterTopics(Protocol):
    """Stores batches in topics, wherever their partitions are led."""

    async def write(self, topic: str, batch: bytearray) -> None:
        """Store a batch on all in-sync replicas, at least once. Raises QbusError."""


class GivesUp(Protocol):
    """A queue whose records are moved."""

    partition: Partition
    group: str

    @property
    def clock(self) -> Clock:
        """The broker's clock."""

    @property
    def settings(self) -> GroupSettings:
        """How the group takes records."""

    def is_moving(self, offset: int) -> bool:
        """Whether a record is given up, and still to be moved."""

    def archive_moved(
        self, given: Sequence[Given], *, is_stored: bool
    ) -> "asyncio.Future[None] | None":
        """Finish records that were moved, or dropped; None: there is nothing left of them."""

    async def batch_of(self, offset: int) -> StoredBatch | None:
        """The batch that has the record at ``offset``; None: it is gone.

        Raises ApiError, OSError.
        """


class DeadLetter(NamedTuple):
    """A record that is given up, and what it went through."""

    record: ConsumerRecord
    history: History


class DeadLettering:
    """Moves what one group gives up of one partition.

    In memory are the places alone: the records are read when it is their turn.
    """

    def __init__(self, queue: GivesUp, topics: DeadLetterTopics) -> None:
        self._queue = queue
        self._topics = topics
        self._waiting: deque[Given] = deque()
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._backoff = Backoff(_FIRST_RETRY_S, _LONGEST_RETRY_S)
        self._failures = LogThrottle(queue.clock)
        self._successes = LogThrottle(queue.clock)

    def __len__(self) -> int:
        """How many ranges of records are to be moved."""
        return len(self._waiting)

    def add(self, given: Sequence[Given]) -> None:
        """Move these records, too."""
        self._waiting.extend(given)
        if self._waiting and self._task is None and not self._is_stopped:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Move nothing any more: who leads the partition next does."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while self._waiting and not self._is_stopped:
                try:
                    await self._move(self._waiting[0])
                except (QbusError, OSError) as error:
                    self._failed(error)
                    await asyncio.sleep(self._backoff.failed())
                else:
                    self._backoff.succeeded()
                    self._waiting.popleft()
        finally:
            self._task = None

    async def _move(self, given: Given) -> None:
        """Move a range of records, and say so. Raises QbusError, OSError."""
        offset = given.first
        while offset <= given.last:
            topic = self._queue.settings.dead_letter_topic
            last = given.last
            if topic:
                letters, last = await self._read(offset, given)
                if letters:
                    await self._store(topic, letters)
            done = self._queue.archive_moved(
                [given._replace(first=offset, last=last)], is_stored=bool(topic)
            )
            if done is not None:
                await done
            if topic and self._successes.allows():
                _log.warning("%s: records were given up: they are in %s", self._queue, topic)
            elif not topic and self._failures.allows():
                _log.warning(
                    "%s: records were given up, and dropped: there is no dead letter topic",
                    self._queue,
                )
            offset = last + 1

    async def _read(self, offset: int, given: Given) -> tuple[list[DeadLetter], int]:
        """Those that are still to be moved of some of the records from ``offset``; the last of all.

        Those that are not there any more, or are damaged, are left out.
        """
        try:
            batch = await self._queue.batch_of(offset)
        except CorruptBatch:
            return [], offset
        except ApiError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return [], offset
        if batch is None:
            return [], offset
        last = min(given.last, batch.header.last_offset, offset + _MOST_RECORDS - 1)
        letters: list[DeadLetter] = []
        size = 0
        try:
            records = batch.records(offset, last)
        except CorruptBatch:
            return [], last
        for record in records:
            size += len(record.value or b"") + len(record.key or b"")
            if letters and size > _MOST_BYTES:
                return letters, record.offset - 1
            if self._queue.is_moving(record.offset):
                letters.append(DeadLetter(record, given.history))
        return letters, last

    async def _store(self, topic: str, letters: list[DeadLetter]) -> None:
        """Store records in ``topic``. Raises QbusError."""
        try:
            await self._topics.write(topic, self._batch(letters))
        except ApiError as error:
            if error.code not in _TOO_LARGE:
                raise
            if len(letters) > 1:
                for letter in letters:
                    await self._store(topic, [letter])
            else:
                await self._store_large(topic, letters)

    async def _store_large(self, topic: str, letters: list[DeadLetter]) -> None:
        """Store a record that is too large for ``topic`` as it is; drop it if it always is."""
        try:
            batch = await asyncio.to_thread(self._batch, letters, Compression.GZIP)
            await self._topics.write(topic, batch)
        except ApiError as error:
            if error.code not in _TOO_LARGE:
                raise
            _log.error(
                "%s: the record at offset %d is given up, and dropped, for it is too large for the"
                " dead letter topic %s: %s",
                self._queue,
                letters[0].record.offset,
                topic,
                error,
            )

    def _batch(
        self, letters: list[DeadLetter], compression: Compression = Compression.NONE
    ) -> bytearray:
        partition, group = self._queue.partition, self._queue.group
        return to_dead_letters(letters, partition.topic, partition.index, group, compression)

    def _failed(self, error: QbusError | OSError) -> None:
        if self._failures.allows():
            _log.warning(
                "%s: records are given up, and wait for their dead letter topic %s: %s",
                self._queue,
                self._queue.settings.dead_letter_topic,
                error,
            )


def to_dead_letters(
    letters: Sequence[DeadLetter],
    topic: str,
    partition: int,
    group: str,
    compression: Compression = Compression.NONE,
) -> bytearray:
    """The batch for the dead letter topic of records of the partition ``partition`` of ``topic``.

    Headers that a former dead letter topic needed are replaced.
    """
    from qbus.records.encode import encode_records  # noqa: PLC0415 - loads the codec

    source = (
        (dead_letters.TOPIC, topic.encode()),
        (dead_letters.PARTITION, b"%d" % partition),
        (dead_letters.GROUP, group.encode()),
    )
    return encode_records(
        [record.value for record, _ in letters],
        [record.key for record, _ in letters],
        [
            (
                *(header for header in record.headers if header[0] not in dead_letters.ALL),
                *source,
                (dead_letters.OFFSET, b"%d" % record.offset),
                (dead_letters.DELIVERIES, b"%d" % history.deliveries),
                (dead_letters.MESSAGE, _reason(history)),
            )
            for record, history in letters
        ],
        [record.timestamp for record, _ in letters],
        base_timestamp=letters[0].record.timestamp,
        compression=compression,
    )


def _reason(history: History) -> bytes:
    if history.rejected:
        return b"rejected"
    return b"given out %d times: %d refused, %d timed out" % (
        history.deliveries,
        history.nacks,
        history.timeouts,
    )
