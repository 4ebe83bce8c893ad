"""One partition of an internal log that is led here: loaded by replay, then asked and written.

Operations of one turn of the event loop run one after another at its end, and all that they store
is one write. Every answer, also a refusal or what only reads, is given once everything is
acknowledged that was in the log before it: nobody is told what a new leader would not know.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from qbus.clock import Clock
from qbus.errors import ApiError, ErrorCode
from qbus.records.header import HEADER_SIZE, write_new_header
from qbus.service.backoff import Backoff

from ..partition.acknowledgement import Acknowledgement
from ..partition.partition import Partition
from .batches import Chunk, Marker, encode_batch, read_chunk
from .machine import LogRecord, M, Operation, Outcome, PackedRecords, Producer

_log = logging.getLogger(__name__)

A = TypeVar("A")

Check = Callable[[Partition], object]
"""Raises ApiError where an operation must not be carried out."""

_MOST_BYTES: Final = 512 * 1024  # of records in a batch, unless a single one is larger
_AT_ONCE: Final = 2_000  # records replayed before others have a turn
_RETRY_S: Final = 0.5
_LONGEST_RETRY_S: Final = 30.0
_GONE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class UnreadableRecordError(Exception):
    """A record of an internal log that its state cannot take in; the message names it."""


class Asker(Protocol):
    """Who waits for an operation: a future, or what is told like one.

    It is told from within the shard's own work: it must not ask anything else before it returns.
    """

    def done(self) -> bool:
        """Whether it waits no longer."""

    def set_result(self, result: Any, /) -> None:
        """What the operation answers; its records are acknowledged."""

    def set_exception(self, error: ApiError, /) -> None:
        """It was refused, or what became of it is not known."""


class _Request(NamedTuple):
    """An operation that somebody waits for."""

    operation: Operation[Any, Any]
    check: Check | None
    asker: Asker


class _Answer(NamedTuple):
    """What an operation came to, which waits for its acknowledgement."""

    asker: Asker
    value: Any
    error: ApiError | None
    acknowledged: Callable[[], object] | None


class LogCounts:
    """What the shards of an internal log did since the start: for metrics."""

    __slots__ = ("load_failures", "load_s", "loads", "replayed", "writes", "written")

    def __init__(self) -> None:
        self.loads = 0
        self.load_failures = 0  # attempts
        self.load_s = 0.0  # how long loading took, all shards together
        self.replayed = 0  # records
        self.written = 0  # records
        self.writes = 0


class Shard(Generic[M]):
    """One led partition of an internal log.

    ``epoch`` is the leader epoch. ``machine`` is the state; it is complete once ``is_ready``, and
    ``loaded`` is set then. ``has_failed`` is called when the log would not take what the state had
    taken in already: the shard is of no use any more.
    """

    def __init__(
        self,
        partition: Partition,
        epoch: int,
        make_machine: Callable[[int], M],
        clock: Clock,
        counts: LogCounts,
        has_failed: Callable[["Shard[M]"], object],
    ) -> None:
        self.partition = partition
        self.epoch = epoch
        self.machine = make_machine(partition.index)
        self.is_ready = False
        self.loaded = asyncio.Event()
        self.replayed = 0  # records taken in while it was loaded
        self._counts = counts
        self._make_machine = make_machine
        self._clock = clock
        self._has_failed = has_failed
        self._loop = asyncio.get_running_loop()
        self._requests: list[_Request] = []
        self._waiting: dict[_Release, None] = {}
        self._is_replayed = False
        self._closed: ErrorCode | None = None

    def __str__(self) -> str:
        return str(self.partition)

    # Loading

    async def load(self) -> bool:
        """Replay the log, and wait until all of it is acknowledged; false: it was closed.

        What fails is logged and tried again, less and less often.
        """
        backoff = Backoff(_RETRY_S, _LONGEST_RETRY_S)
        while self._closed is None:
            delay_s = _RETRY_S
            try:
                if not self._is_replayed:
                    await self._replay_log()
                if await self._is_acknowledged():
                    self.is_ready = True
                    self.loaded.set()
                    return True
            except Exception as error:  # noqa: BLE001 - another attempt, or another leader
                self._counts.load_failures += 1
                delay_s = backoff.failed()
                known = None if isinstance(error, ApiError | OSError) else error
                _log.error(
                    "%s cannot be loaded for now, the next attempt is in %.1f s: %s",
                    *(self, delay_s, error),
                    exc_info=known,
                )
            await asyncio.sleep(delay_s)
        return False

    async def _replay_log(self) -> None:
        log = self.partition.log
        machine = self._make_machine(self.partition.index)
        count, position = 0, log.log_start_offset
        while position < log.log_end_offset and self._closed is None:
            chunk = await asyncio.to_thread(read_chunk, log, position, log.log_end_offset)
            count += len(chunk.entries)
            await self._take_in(machine, chunk)
            position = chunk.next_offset
        self.replayed = count
        # No marker came between: the loop's condition and this are one step.
        self.machine = machine
        self._is_replayed = True

    @staticmethod
    async def _take_in(machine: M, chunk: Chunk) -> None:
        for number, entry in enumerate(chunk.entries, 1):
            if isinstance(entry, Marker):
                machine.marker(entry.producer_id, entry.epoch, committed=entry.committed)
            else:
                try:
                    machine.replay(
                        entry.key, entry.value, entry.offset, entry.timestamp, entry.producer
                    )
                except Exception as error:
                    raise UnreadableRecordError(
                        f"the record at offset {entry.offset} cannot be read: {error}"
                    ) from error
            if not number % _AT_ONCE:
                await asyncio.sleep(0)

    async def _is_acknowledged(self) -> bool:
        """Wait until all that was replayed is acknowledged; false: that cannot be waited for."""
        if self._closed is not None:
            return False
        end = self.partition.log.log_end_offset
        if self.partition.high_watermark < end or self.partition.error:
            acknowledgement = Acknowledgement()
            self.partition.when_acknowledged(end, acknowledgement, None)
            if await acknowledgement.wait():
                return False
        return self._is_open()

    def _is_open(self) -> bool:
        return self._closed is None

    def marked(self, producer_id: int, epoch: int, *, committed: bool) -> None:
        """A marker was appended to the log by somebody else."""
        if self._is_replayed and self._closed is None:
            self.machine.marker(producer_id, epoch, committed=committed)

    # Asking

    def submit(self, operation: Operation[M, A], check: Check | None = None) -> "asyncio.Future[A]":
        """Carry out an operation at the end of this turn of the event loop; its answer.

        ``check`` is called just before it, in the same step as the append.
        """
        answer: asyncio.Future[A] = self._loop.create_future()
        self.put(operation, answer, check)
        return answer

    def put(self, operation: Operation[M, Any], asker: Asker, check: Check | None = None) -> None:
        """The same; ``asker`` is told the answer."""
        if not self._requests:
            self._loop.call_soon(self._carry_out)
        self._requests.append(_Request(operation, check, asker))

    def _carry_out(self) -> None:
        requests, self._requests = self._requests, []
        refusal = self._refusal()
        if refusal is not None:
            for request in requests:
                _refuse(request.asker, refusal)
            return
        now_ms = self._clock.time_ms()
        run = _Run(self.partition.log.log_end_offset, now_ms, self._why_nothing_is_stored())
        try:
            answers = [self._run(request, run, now_ms) for request in requests]
            if run.batches:
                self._append(run)
        except Exception as error:  # noqa: BLE001 - what is in memory is not what is stored
            known = None if isinstance(error, ApiError | OSError) else error
            _log.error("%s is loaded again: %s", self, error, exc_info=known)
            code = error.code if isinstance(error, ApiError) else ErrorCode.KAFKA_STORAGE_ERROR
            for request in requests:
                _refuse(request.asker, _coordinator_error(code, str(error)))
            self._has_failed(self)
            return
        self._release_when_acknowledged(answers)

    def _refusal(self) -> ApiError | None:
        """Why nothing can be asked now."""
        if self._closed is not None:
            return _coordinator_error(self._closed)
        if not self.is_ready:
            return ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if self.partition.error:
            return _coordinator_error(self.partition.error)
        return None

    def _why_nothing_is_stored(self) -> ApiError | None:
        """Why the log takes nothing now, though it can be read: too few replicas are in sync."""
        try:
            self.partition.check_takes_own()
        except ApiError as error:
            return _coordinator_error(error.code, error.message)
        return None

    def _run(self, request: _Request, run: "_Run", now_ms: int) -> _Answer:
        """Carry out one operation, and take in its records.

        Raises whatever a state raises that cannot take its own records in.
        """
        try:
            if request.check is not None:
                request.check(self.partition)
            outcome: Outcome[Any] = request.operation(self.machine, now_ms)
        except ApiError as error:
            return _Answer(request.asker, None, error, None)
        except Exception:  # noqa: BLE001 - the others are carried out
            _log.exception("an operation on %s failed", self)
            failed = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed; its log says why")
            return _Answer(request.asker, None, failed, None)
        packed = outcome.packed
        if (outcome.records or packed is not None) and run.refusal is not None:
            return _Answer(request.asker, None, run.refusal, None)
        if packed is not None:
            self._take_in_own(outcome, run.add_packed(packed), now_ms)
        elif outcome.records:
            self._take_in_own(outcome, run.add(outcome.records, outcome.producer), now_ms)
        return _Answer(request.asker, outcome.answer, outcome.refusal, outcome.acknowledged)

    def _take_in_own(self, outcome: Outcome[Any], first_offset: int, now_ms: int) -> None:
        if outcome.apply is not None:
            outcome.apply(first_offset)
            return
        for offset, (key, value) in enumerate(outcome.records, first_offset):
            self.machine.replay(key, value, offset, now_ms, outcome.producer)

    def _append(self, run: "_Run") -> None:
        info = self.partition.append_own(run.encode(), run.count)
        self._counts.writes += 1
        self._counts.written += run.count
        if info.first_offset != run.first_offset:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"records meant for offset {run.first_offset} are at {info.first_offset}",
            )

    def _release_when_acknowledged(self, answers: list[_Answer]) -> None:
        end = self.partition.log.log_end_offset
        release = _Release(self, answers, self._loop.time())
        if self.partition.high_watermark >= end:
            release.acknowledged(None, ErrorCode.NONE)
        else:
            self._waiting[release] = None
            self.partition.when_acknowledged(end, release, None)

    def released(self, release: "_Release", code: ErrorCode) -> None:
        """Its answers are given; with an error, what became of its records is not known."""
        self._waiting.pop(release, None)
        if code and self._closed is None:
            self._has_failed(self)

    # From time to time

    def tick(self, patience_s: float) -> None:
        """Do what is due, and let nobody wait for longer than ``patience_s``."""
        oldest = self._loop.time() - patience_s
        for release in [one for one in self._waiting if one.since < oldest]:
            release.give_up()
        if not self.is_ready or self._closed is not None:
            return
        due = self.machine.next_tick_ms
        if due is not None and due <= self._clock.time_ms():
            self.submit(_tick).add_done_callback(_retrieve)

    def close(self, code: ErrorCode) -> None:
        """Answer nothing any more; what is asked or waits gets what ``code`` means to a client."""
        self._closed = code
        self.is_ready = False
        self.loaded.set()
        requests, self._requests = self._requests, []
        for request in requests:
            _refuse(request.asker, _coordinator_error(code))
        for release in list(self._waiting):
            release.acknowledged(None, code)


class _PackedBatch:
    """Encoded records of no transaction, behind room for the header of their batch."""

    __slots__ = ("content", "count")

    def __init__(self) -> None:
        self.content = bytearray(HEADER_SIZE)
        self.count = 0


class _Run:
    """The records of one turn, gathered into batches; ``refusal``: why there may be none."""

    __slots__ = (
        "_now_ms",
        "_packed",
        "_producer",
        "_records",
        "_size",
        "batches",
        "count",
        "first_offset",
        "refusal",
    )

    def __init__(self, first_offset: int, now_ms: int, refusal: ApiError | None) -> None:
        self.refusal = refusal
        self.first_offset = first_offset
        self.count = 0
        self.batches: list[tuple[Producer | None, list[LogRecord]] | _PackedBatch] = []
        self._records: list[LogRecord] | None = None  # of the last batch, or
        self._packed: _PackedBatch | None = None  # the last batch
        self._producer: Producer | None = None
        self._size = 0
        self._now_ms = now_ms

    def add(self, records: Sequence[LogRecord], producer: Producer | None) -> int:
        """Add records; the offset that the first of them will have."""
        first = self.first_offset + self.count
        self.count += len(records)
        self._packed = None
        for record in records:
            key, value = record
            size = len(key) if value is None else len(key) + len(value)
            self._size += size
            if self._records is None or self._producer != producer or self._size > _MOST_BYTES:
                self._records, self._producer, self._size = [], producer, size
                self.batches.append((producer, self._records))
            self._records.append(record)
        return first

    def add_packed(self, packed: PackedRecords) -> int:
        """The same of records that are encoded together: none of the others share their batches."""
        first = self.first_offset + self.count
        self.count += packed.count
        self._records = None
        self._size += packed.size
        batch = self._packed
        if batch is None or self._size > _MOST_BYTES:
            batch = self._packed = _PackedBatch()
            self._size = packed.size
            self.batches.append(batch)
        packed.add_to(batch.content, batch.count)
        batch.count += packed.count
        return first

    def encode(self) -> bytearray:
        """All of it, as it is appended."""
        if len(self.batches) == 1:
            return self._encode_batch(self.batches[0])
        whole = bytearray()
        for batch in self.batches:
            whole += self._encode_batch(batch)
        return whole

    def _encode_batch(
        self, batch: tuple[Producer | None, list[LogRecord]] | _PackedBatch
    ) -> bytearray:
        if isinstance(batch, _PackedBatch):
            write_new_header(batch.content, 0, batch.count, self._now_ms)
            return batch.content
        producer, records = batch
        return encode_batch(records, self._now_ms, producer)


class _Release:
    """The answers of one turn, which wait for the high watermark."""

    __slots__ = ("_answers", "_is_done", "_shard", "since")

    def __init__(self, shard: Shard[Any], answers: list[_Answer], since: float) -> None:
        self._shard = shard
        self._answers = answers
        self._is_done = False
        self.since = since

    def done(self) -> bool:
        """Whether nobody waits any longer."""
        return self._is_done

    def acknowledged(self, token: object, code: ErrorCode) -> None:  # noqa: ARG002 - there is one
        """It is acknowledged (NONE), or may never be."""
        if self._is_done:
            return
        self._is_done = True
        for answer in self._answers:
            if code:
                _refuse(answer.asker, _coordinator_error(code))
                continue
            if not answer.asker.done():
                if answer.error is not None:
                    answer.asker.set_exception(answer.error)
                else:
                    answer.asker.set_result(answer.value)
            if answer.acknowledged is not None:
                answer.acknowledged()
        self._shard.released(self, code)

    def give_up(self) -> None:
        """Let nobody wait any longer; what is to be done when it is acknowledged is done then."""
        for answer in self._answers:
            _refuse(
                answer.asker,
                ApiError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    f"{self._shard} was not acknowledged in time",
                ),
            )


def _tick(machine: Any, now_ms: int) -> Outcome[None]:
    outcome: Outcome[None] | None = machine.tick(now_ms)
    return Outcome(None) if outcome is None else outcome


def _retrieve(future: "asyncio.Future[Any]") -> None:
    """Nobody waits for it: an error was logged where it arose, or comes again."""
    if not future.cancelled():
        future.exception()


def _refuse(asker: Asker, error: ApiError) -> None:
    if not asker.done():
        asker.set_exception(error)


def _coordinator_error(code: ErrorCode, message: str | None = None) -> ApiError:
    """What a client of the coordinator gets where the log answers ``code``."""
    if code in _GONE:
        return ApiError(ErrorCode.NOT_COORDINATOR, message)
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return ApiError(code, message)
    return ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
