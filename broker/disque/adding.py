"""Jobs on their way into a partition: those of one turn of the event loop share a batch."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from qbus.delay import DELIVER_AT
from qbus.errors import ApiError, ErrorCode
from qbus.jobs import JobOptions, encode_id
from qbus.records import build_batch

from ..log import AppendInfo
from ..partition.partition import ACKS_ALL, Partition

_BATCH_BYTES: Final = 512 * 1024
_RECORD_BYTES: Final = 200  # what a job takes besides its body, about
_ACKS_LEADER: Final = 1

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


@dataclass(slots=True, eq=False)
class _NewJob:
    """A job that is to be appended, and who waits for its id."""

    body: bytes
    options: JobOptions
    is_async: bool
    added: asyncio.Future[str]
    on_late: Callable[[int], None] | None

    @property
    def kind(self) -> tuple[bool, bool]:
        """Which jobs share a batch."""
        return self.options.delay > 0, self.is_async


class _Append:
    """One batch that was appended, until it is acknowledged: what a partition calls back."""

    __slots__ = ("_first_offset", "_ids", "_jobs")

    def __init__(self, jobs: list[_NewJob], ids: list[str], first_offset: int) -> None:
        self._jobs = jobs
        self._ids = ids
        self._first_offset = first_offset

    def done(self) -> bool:
        """Whether nobody waits for it: those who ran out of time want to know, too."""
        return False

    def acknowledged(self, token: object, code: ErrorCode) -> None:  # noqa: ARG002 - there is one
        """It is acknowledged (NONE), or never will be."""
        for number, job in enumerate(self._jobs):
            if job.added.done():
                if not code and job.on_late is not None and not job.is_async:
                    job.on_late(self._first_offset + number)
            elif code:
                job.added.set_exception(ApiError(code))
            else:
                job.added.set_result(self._ids[number])


class Adder:
    """Appends jobs to partitions that are led here."""

    def __init__(self, delays: Delays, now_ms: Callable[[], int]) -> None:
        self._delays = delays
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[tuple[Partition, bytes], list[_NewJob]] = {}
        self._open: Counter[Partition] = Counter()
        self.added = 0

    def open(self, partition: Partition) -> int:
        """How many jobs for now are on their way into a partition, and count in no length yet."""
        return self._open[partition]

    def add(
        self,
        partition: Partition,
        topic_id: bytes,
        body: bytes,
        options: JobOptions,
        *,
        is_async: bool = False,
        on_late: Callable[[int], None] | None = None,
    ) -> asyncio.Future[str]:
        """Append a job at the end of this turn; the future has its id once it is safe.

        ``is_async``: the id is there as soon as the job is appended. ``on_late`` is called with the
        job's offset if it is safe only when nobody waits any longer. It fails with ApiError.
        """
        added: asyncio.Future[str] = self._loop.create_future()
        key = (partition, topic_id)
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = []
            self._loop.call_soon(self._append_all, key)
        waiting.append(_NewJob(body, options, is_async, added, on_late))
        if not options.delay:
            self._open[partition] += 1
            added.add_done_callback(partial(self._on_added, partition))
        return added

    def _on_added(self, partition: Partition, _: object) -> None:
        self._open[partition] -= 1
        if self._open[partition] <= 0:
            del self._open[partition]

    def _append_all(self, key: tuple[Partition, bytes]) -> None:
        jobs = self._waiting.pop(key)
        while jobs:
            count, size, kind = 0, 0, jobs[0].kind
            for job in jobs:
                size += len(job.body) + _RECORD_BYTES
                if job.kind != kind or (count and size > _BATCH_BYTES):
                    break
                count += 1
            self._append(*key, jobs[:count])
            del jobs[:count]

    def _append(self, partition: Partition, topic_id: bytes, jobs: list[_NewJob]) -> None:
        is_delayed, is_async = jobs[0].kind
        acks = _ACKS_LEADER if is_async else ACKS_ALL
        now_ms = self._now_ms()
        try:
            batch = build_batch((None, one.body, _headers(one, now_ms), now_ms) for one in jobs)
            for job in jobs:
                job.body = b""  # which may be much, until all replicas have it
            if is_delayed:
                info = self._append_delayed(partition, batch, acks)
            else:
                info = partition.append(memoryview(batch), acks)
            if info.log_append_time >= 0:
                now_ms = info.log_append_time
            ids = [
                encode_id(
                    topic_id,
                    partition.index,
                    info.first_offset + number,
                    job.options,
                    now_ms // 1000 + job.options.delay,
                )
                for number, job in enumerate(jobs)
            ]
        except (ApiError, ValueError) as error:
            for job in jobs:
                if not job.added.done():
                    job.added.set_exception(error)
            return
        self.added += len(jobs)
        appended = _Append(jobs, ids, info.first_offset)
        if is_async or partition.high_watermark > info.last_offset:
            appended.acknowledged(None, ErrorCode.NONE)
        else:
            partition.when_acknowledged(info.last_offset + 1, appended, None)

    def _append_delayed(self, partition: Partition, batch: bytearray, acks: int) -> AppendInfo:
        intake = self._delays.intake(partition, memoryview(batch), acks)
        if intake is None:
            if partition.error:
                raise ApiError(partition.error)
            raise ApiError(ErrorCode.INVALID_REQUEST, _NO_DELAYS)
        return intake.append()[0]


def _headers(job: _NewJob, now_ms: int) -> list[tuple[str, bytes]]:
    headers = job.options.headers()
    if job.options.delay:
        headers.append((DELIVER_AT, str(now_ms + 1000 * job.options.delay).encode()))
    return headers
