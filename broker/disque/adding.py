"""Jobs on their way into a partition: those of one turn of the event loop share a batch."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from qbus.delay import DELIVER_AT
from qbus.errors import ApiError, ErrorCode
from qbus.jobs import JobIds, JobOptions
from qbus.records import HEADER_SIZE, Buffer, encode_records
from qbus.records.control import small_varint
from qbus.records.header import write_new_header

from ..log import AppendInfo
from ..partition.partition import ACKS_ALL, Partition
from ..turn_end import at_end
from . import errors, resp
from .connection import PendingReply

_log = logging.getLogger(__name__)

_BATCH_BYTES: Final = 512 * 1024
_RECORD_BYTES: Final = 200  # what a job takes besides its body, about
_ACKS_LEADER: Final = 1
NEVER: Final = float("inf")
_LEAST_S: Final = 0.01  # between two looks at those whose time is up

_NO_DELAYS: Final = "the queue takes no delayed jobs: its topic has qbus.delay.enable=false"


class Intake(Protocol):
    """A batch with delayed records, on its way into the log."""

    @property
    def needs_thread(self) -> bool:
        """Whether a thread has to call :meth:`read` first."""

    def read(self) -> None:
        """Read what the batch's orders are about. Raises ApiError."""

    def append(self) -> tuple[AppendInfo, Any]:
        """Append it. Raises ApiError."""


class Delays(Protocol):
    """What takes delayed records."""

    def intake(self, partition: Partition, batch: memoryview, acks: int) -> Intake | None:
        """What is to become of a batch; None: nothing in it is delayed. Raises ApiError."""


class NewJob:
    """A job that is to be appended, and the reply that its client waits for.

    ``on_late`` is called with the job's offset if it is safe only after ``timeout_ms``, when its
    client was told that it is not; 0: the client waits as long as it takes.
    """

    __slots__ = ("body", "deadline", "is_async", "is_late", "on_late", "options", "reply")

    def __init__(
        self,
        body: bytes,
        options: JobOptions,
        *,
        is_async: bool = False,
        timeout_ms: int = 0,
        on_late: Callable[[int], None] | None = None,
    ) -> None:
        """Make it in a running event loop. ``is_async``: it is safe once it is appended."""
        self.body = body
        self.options = options
        self.is_async = is_async
        self.is_late = False
        self.on_late = on_late
        self.reply = PendingReply()
        self.deadline = NEVER
        if timeout_ms:
            self.deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        """When its client is told that it is not safe, by the event loop's clock in seconds."""

    @property
    def is_delayed(self) -> bool:
        """Whether it is to be given out later."""
        return self.options.delay > 0

    def added(self, text: bytes, offset: int) -> None:
        """It is safe at ``offset``, and ``text`` is its id."""
        if self.is_late:
            if self.on_late is not None and not self.is_async:
                self.on_late(offset)
        else:
            self.reply.answer(b"+%b\r\n" % text)

    def failed(self, error: Exception, partition: Partition) -> None:
        """It was not appended to ``partition``, or may be lost."""
        is_full = partition.log.has_full_disk
        self.reply.answer(resp.error(why_not_added(error, is_full=is_full)))

    def expire(self) -> None:
        """Its time is up: its client is told so, unless it has its reply."""
        self.deadline = NEVER
        if not self.reply.done():
            self.is_late = True
            self.reply.answer(resp.error(errors.NO_REPLICAS_IN_TIME))


def why_not_added(error: BaseException, *, is_full: bool = False) -> str:
    """The reply to an ADDJOB that failed; ``is_full``: the partition's disk has no room."""
    if not isinstance(error, ApiError):
        return f"ERR {error}"
    if error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
        return errors.NO_REPLICAS
    if error.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
        return errors.NO_REPLICAS_IN_TIME
    if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
        if is_full:
            return errors.NO_ROOM
        return errors.NOT_STORED.format(error)
    return f"ERR {error}"


class _Append:
    """One batch that was appended, until it is acknowledged: what a partition calls back."""

    __slots__ = ("_adder", "_first_offset", "_ids", "_jobs", "_partition", "deadline")

    def __init__(
        self,
        adder: "Adder",
        partition: Partition,
        jobs: list[NewJob],
        ids: list[bytes],
        first_offset: int,
    ) -> None:
        self._adder = adder
        self._partition = partition
        self._jobs = jobs
        self._ids = ids
        self._first_offset = first_offset
        self.deadline = min([job.deadline for job in jobs])
        """When the first of the jobs runs out of time whose client was not told so yet."""

    def done(self) -> bool:
        """Whether nobody waits for it: those who ran out of time want to know, too."""
        return False

    def expire(self, now: float) -> None:
        """Tell those clients whose time is up."""
        if self.deadline > now:
            return
        for job in self._jobs:
            if job.deadline <= now:
                job.expire()
        self.deadline = min([job.deadline for job in self._jobs])

    def acknowledged(self, token: object, code: ErrorCode) -> None:  # noqa: ARG002 - there is one
        """It is acknowledged (NONE), or never will be."""
        self._adder.count_out(self._partition, self._jobs)
        self._adder.forget(self)
        if code:
            error = ApiError(code)
            for job in self._jobs:
                job.failed(error, self._partition)
            return
        offset = self._first_offset
        for number, job in enumerate(self._jobs):
            job.added(self._ids[number], offset + number)


class Adder:
    """Appends jobs to partitions that are led here."""

    __slots__ = (
        "_delays",
        "_encoder",
        "_loop",
        "_now_ms",
        "_offer",
        "_open",
        "_timer",
        "_unsafe",
        "_waiting",
        "added",
    )

    def __init__(
        self,
        delays: Delays,
        now_ms: Callable[[], int],
        offer: Callable[[Partition, Buffer], None],
    ) -> None:
        """``offer`` is called with each batch that was appended, and its partition."""
        self._offer = offer
        self._delays = delays
        self._encoder = JobEncoder()
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[tuple[Partition, JobIds], list[NewJob]] = {}
        self._open: dict[Partition, int] = {}
        self._unsafe: dict[_Append, None] = {}  # appended, not acknowledged, and timed
        self._timer: asyncio.TimerHandle | None = None
        self.added = 0

    def open(self, partition: Partition) -> int:
        """How many jobs for now are on their way into a partition, and count in no length yet."""
        return self._open.get(partition, 0)

    def is_adding(self, partition: Partition) -> bool:
        """Whether jobs are to be appended to a partition at the end of this turn."""
        return any(waits_for is partition for waits_for, _ in self._waiting)

    def add(self, partition: Partition, ids: JobIds, job: NewJob) -> None:
        """Append a job at the end of this turn; its reply has its id once it is safe."""
        key = (partition, ids)
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = []
            at_end(self._loop, partial(self._append_all, key))
        waiting.append(job)
        if not job.is_delayed:
            self._open[partition] = self._open.get(partition, 0) + 1

    def count_out(self, partition: Partition, jobs: list[NewJob]) -> None:
        """These jobs, which are all for now or none of them, are not on their way any more."""
        if not jobs[0].is_delayed:
            left = self._open.get(partition, 0) - len(jobs)
            if left > 0:
                self._open[partition] = left
            else:
                self._open.pop(partition, None)

    def _append_all(self, key: tuple[Partition, JobIds]) -> None:
        jobs = self._waiting.pop(key)
        while jobs:
            first, count, size = jobs[0], 0, 0
            for job in jobs:
                size += len(job.body) + _RECORD_BYTES
                is_other = (
                    job.is_async is not first.is_async or job.is_delayed is not first.is_delayed
                )
                if is_other or (count and size > _BATCH_BYTES):
                    break
                count += 1
            self._append(*key, jobs[:count])
            del jobs[:count]

    def _append(self, partition: Partition, ids: JobIds, jobs: list[NewJob]) -> None:
        is_delayed, is_async = jobs[0].is_delayed, jobs[0].is_async
        acks = _ACKS_LEADER if is_async else ACKS_ALL
        now_ms = self._now_ms()
        try:
            if is_delayed:
                batch = encode_delayed(jobs, now_ms)
            else:
                batch = self._encoder.encode(jobs, now_ms)
            for job in jobs:
                job.body = b""  # which may be much, until all replicas have it
            if is_delayed:
                info = self._append_delayed(partition, batch, acks)
            else:
                info = partition.append(memoryview(batch), acks)
                self._offer(partition, batch)
            if info.log_append_time >= 0:
                now_ms = info.log_append_time
            first, seconds = info.first_offset, now_ms // 1000
            texts = [
                ids.encode(
                    first + number, job.options, seconds + job.options.delay, is_delayed=is_delayed
                )
                for number, job in enumerate(jobs)
            ]
        except Exception as error:  # noqa: BLE001 - a defect must not leave clients waiting
            if not isinstance(error, (ApiError, ValueError)):
                _log.exception("%s: jobs cannot be added", partition)
            self.count_out(partition, jobs)
            for job in jobs:
                job.failed(error, partition)
            return
        self.added += len(jobs)
        appended = _Append(self, partition, jobs, texts, first)
        if is_async or partition.high_watermark > info.last_offset:
            appended.acknowledged(None, ErrorCode.NONE)
        else:
            self._watch(appended)
            partition.when_acknowledged(info.last_offset + 1, appended, None)

    def _append_delayed(self, partition: Partition, batch: bytearray, acks: int) -> AppendInfo:
        intake = self._delays.intake(partition, memoryview(batch), acks)
        if intake is None:
            if partition.error:
                raise ApiError(partition.error)
            raise ApiError(ErrorCode.INVALID_REQUEST, _NO_DELAYS)
        return intake.append()[0]

    # Time: one timer for all, as nearly every job is safe long before its time is up.

    def _watch(self, appended: _Append) -> None:
        deadline = appended.deadline
        if deadline < NEVER:
            self._unsafe[appended] = None
            self._wake_at(deadline)

    def forget(self, appended: _Append) -> None:
        """Somebody's time does not matter any more."""
        self._unsafe.pop(appended, None)

    def _wake_at(self, deadline: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now, following = self._loop.time(), NEVER
        for appended in list(self._unsafe):
            appended.expire(now)
            if appended.deadline < NEVER:
                following = min(following, appended.deadline)
            else:
                self.forget(appended)
        if following < NEVER:  # each job has a time of its own: a look at all is for many of them
            self._wake_at(max(following, now + _LEAST_S))


def encode_delayed(jobs: Sequence[NewJob], now_ms: int) -> bytearray:
    """A batch of jobs that are to be given out later, as records with a time of their own."""
    return encode_records(
        [job.body for job in jobs],
        None,
        [
            [
                *job.options.headers(),
                (DELIVER_AT, str(now_ms + 1000 * job.options.delay).encode()),
            ]
            for job in jobs
        ],
        base_timestamp=now_ms,
    )


class JobEncoder:
    """Makes batches of jobs for now, as :func:`qbus.records.encode_records` does, compiled.

    Most batches have one job, and most jobs the same options as the one before.
    """

    __slots__ = ("_headers", "_options")

    def __init__(self) -> None:
        self._options: JobOptions | None = None
        self._headers = b""

    def encode(self, jobs: Sequence[NewJob], now_ms: int) -> bytearray:
        """The batch, whose offsets and leader epoch are still to be set."""
        batch = bytearray(HEADER_SIZE)
        number = 0
        for job in jobs:
            if job.options is not self._options:
                self._options, self._headers = job.options, _encoded_headers(job.options)
            body, headers = job.body, self._headers
            # No attributes, the time of the batch, the job's number, no key (-1).
            fields = b"\0\0%b\x01%b" % (small_varint(number), small_varint(len(body)))
            batch += small_varint(len(fields) + len(body) + len(headers))
            batch += fields
            batch += body
            batch += headers
            number += 1
        write_new_header(batch, 0, number, now_ms)
        return batch


def _encoded_headers(options: JobOptions) -> bytes:
    """The headers of a job that is not delayed, as they stand at the end of its record."""
    found = options.headers()
    parts = [small_varint(len(found))]
    for name, value in found:
        encoded = name.encode()
        parts += (small_varint(len(encoded)), encoded, small_varint(len(value)), value)
    return b"".join(parts)
