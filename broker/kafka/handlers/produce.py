"""Produce (key 0): append one record batch to each of some partitions.

Version 7 allows zstd, 8 says which records are to blame, 10 who leads instead (KIP-951), 13 names
topics by id. Versions 0 to 2 are advertised, for clients that match exact numbers, but not served:
they carry older record formats.

A mirror's request says of which IDC's topic its batches are, in tagged fields of Qbus's own. To the
mirror of that topic, and to no other, they are appended at the offsets they have there: any number
of batches for a partition, with ``acks`` -1 alone. Ordinary producers may not write to a mirror.

In a topic with ``qbus.delay.enable`` a batch's records may be held back until they are due, or
cancel and reschedule others: see :mod:`qbus.broker.delay`. A cancel that comes too late is no
error: a tagged field of the response names it.

In a compacted topic a batch with records without keys is refused, and names them.

The first batch of a transaction in a partition is appended once the transaction's coordinator was
asked whether the partition belongs to it; from version 12 on it is added to it by that (KIP-890).

``acks`` 0 gets no answer: after an error the connection is closed, so that the client looks again
who leads. 1 is answered once the leader wrote the batch, -1 once the high watermark passed it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from qbus.errors import ApiError, ErrorCode
from qbus.names import INTERNAL_TOPICS
from qbus.records import Compression, read_header
from qbus.records.header import ATTRIBUTES_AT, TRANSACTIONAL
from qbus.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

from ...authorization import Operation, transactional_id
from ...authorization import topic as topic_resource
from ...compaction.keys import check_keys, needs_thread
from ...delay.contents import Contents, LoopBudget
from ...delay.intake import OrdersStored, StoredMeanwhileError
from ...log import AppendInfo, LogConfig, Provenance, RecordsRefusedError, Verification
from ...log.recompression import PRODUCER, must_recompress, recompressed
from ...partition.partition import ACKS_ALL, Partition
from ...partition.purgatory import Delayed
from ...turns import PIECE, Pace, next_turn
from ..context import RequestContext
from ..produce_answers import (
    DelayedProduce,
    bad_timestamps,
    name_leaders,
    record_errors,
    refuse_all,
    refused,
)

if TYPE_CHECKING:
    from ...broker import Broker
    from ...delay.incoming import PartitionIntake

_FIRST_WITH_ZSTD: Final = 7
_FIRST_WITH_LEADERS: Final = 10
_FIRST_WITH_ABORTABLE: Final = 11  # TRANSACTION_ABORTABLE (KIP-890)
_FIRST_THAT_ADDS: Final = 12  # partitions to their transactions
_FIRST_WITH_TOPIC_IDS: Final = 13

_ACKS: Final = (ACKS_ALL, 0, 1)
_CODEC_BITS: Final = 0x07


def handle(
    broker: "Broker", context: RequestContext, request: ProduceRequest
) -> (
    ProduceResponse | Delayed[ProduceResponse] | Coroutine[Any, Any, ProduceResponse | None] | None
):
    """Append, and answer as ``acks`` asks for.

    Raises:
        ApiError: an append failed, and with ``acks`` 0 there is no answer to say so in.
    """
    if request.acks not in _ACKS:
        message = f"acks {request.acks} is not -1, 0 or 1"
        return refuse_all(request, ApiError(ErrorCode.INVALID_REQUIRED_ACKS, message))
    if context.is_restricted and not _may_write_in_transaction(context, request):
        denied = ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not request.acks:
            raise denied
        return refuse_all(request, denied)
    appends = _Appends(broker, context, request.acks, request.transactional_id)
    if _is_long(request):
        held = 0 if context.keeps_frame else _keep_batches(request)
        return _append_in_pieces(appends, request, held)
    response = ProduceResponse(responses=[appends.topic(topic) for topic in request.topic_data])
    if appends.late or appends.unverified:
        return _append_late(appends, response, request.timeout_ms / 1000)
    return appends.answer(response, request.timeout_ms / 1000)


def _is_long(request: ProduceRequest) -> bool:
    count = len(request.topic_data)
    for topic in request.topic_data:
        count += len(topic.partition_data)
    return count > PIECE


def _keep_batches(request: ProduceRequest) -> int:
    """Copy the batches out of the frame, whose memory is used again once the handler returns.

    Returns how many bytes they have.
    """
    size = 0
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is not None:
                data.records = memoryview(bytearray(records))
                size += len(records)
    return size


async def _append_in_pieces(
    appends: "_Appends", request: ProduceRequest, held: int
) -> ProduceResponse | None:
    """Append to many partitions, with turns of the event loop between them.

    ``held``: bytes of copies of their batches.
    """
    with appends.holding(held):
        return await _append_some_at_a_time(appends, request)


async def _append_some_at_a_time(
    appends: "_Appends", request: ProduceRequest
) -> ProduceResponse | None:
    response, pace = ProduceResponse(), Pace()
    for topic in request.topic_data:
        data = topic.partition_data
        answers: list[PartitionProduceResponse] = []
        for start in range(0, len(data), PIECE):
            topic.partition_data = data[start : start + PIECE]
            if pace.is_over(len(topic.partition_data)):
                await next_turn()
            answers += appends.topic(topic).partition_responses
        response.responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )
    timeout_s = request.timeout_ms / 1000
    if appends.late or appends.unverified:
        return await _append_late(appends, response, timeout_s)
    answer = appends.answer(response, timeout_s)
    return await answer if isinstance(answer, Delayed) else answer


async def _append_late(
    appends: "_Appends", response: ProduceResponse, timeout_s: float
) -> ProduceResponse | None:
    """Append what coordinators are to be asked for, or threads have to prepare first.

    The connection's next request waits meanwhile.
    """
    if appends.unverified:
        await _verify(appends)
    lines: dict[Partition, list[_LateBatch]] = {}
    for late in appends.take_late():
        lines.setdefault(late.partition, []).append(late)
    with appends.holding(sum(late.size for line in lines.values() for late in line)):
        outcomes = await asyncio.gather(
            *(_append_in_turn(appends, line) for line in lines.values()), return_exceptions=True
        )
    for outcome in outcomes:
        if outcome is not None:  # raised when all are done: nothing is appended after the answer
            raise outcome
    answer = appends.answer(response, timeout_s)
    return await answer if isinstance(answer, Delayed) else answer


async def _append_in_turn(appends: "_Appends", line: "list[_LateBatch]") -> None:
    """Append batches of one partition one after another, each once a thread has prepared it."""
    while line:
        late = line.pop(0)
        try:
            appends.append_late(late, await appends.prepare(late))
        except ApiError as error:
            appends.refuse_late(late.answer, error)
        line[:0] = appends.take_late()  # it is to be prepared once more


async def _verify(appends: "_Appends") -> None:
    """Ask for transactions' first batches, and append those whose partitions belong to them."""
    batches, appends.unverified = appends.unverified, []
    producers: dict[tuple[int, int], list[_UnverifiedBatch]] = {}
    for one in batches:
        producers.setdefault((one.verification.producer_id, one.verification.epoch), []).append(one)
    for (producer_id, epoch), group in producers.items():
        codes = await appends.ask(producer_id, epoch, group)
        for one in group:
            partition = one.partition
            code = codes.get((partition.topic, partition.index), ErrorCode.UNKNOWN_SERVER_ERROR)
            try:
                if code:
                    raise ApiError(code, "the transaction's coordinator does not take the batch")
                appends.append_verified(one)
            except ApiError as error:
                appends.refuse_late(one.answer, error)


class _UnverifiedBatch:
    """A transaction's first batch in a partition, and its place in the response."""

    __slots__ = ("answer", "batch", "partition", "verification")

    def __init__(
        self,
        partition: Partition,
        answer: PartitionProduceResponse,
        batch: memoryview,
        verification: Verification,
    ) -> None:
        self.partition = partition
        self.answer = answer
        self.batch = batch
        self.verification = verification


class _LateBatch(NamedTuple):
    """A batch that is appended once a thread has prepared it, and its place in the response.

    What ``prepare`` returns is given to ``append``, which returns None if it has to be prepared
    once more. ``size`` is that of the copy that is kept until then, in bytes; ``decodes`` says that
    it is decompressed and decoded, else what it is about is read from the disk.
    """

    partition: Partition
    answer: PartitionProduceResponse
    prepare: Callable[[], Any]
    append: Callable[[Any], "_Appended | None"]
    size: int = 0
    decodes: bool = False


class _Appended(NamedTuple):
    """What became of a batch, and of the orders about delayed records in it."""

    info: AppendInfo
    orders: OrdersStored | None = None


class _Appends:
    """The appends of one request."""

    __slots__ = (
        "_acks",
        "_broker",
        "_budget",
        "_context",
        "_replicas",
        "_transactional_id",
        "_version",
        "delayed",
        "failed",
        "late",
        "unverified",
    )

    def __init__(
        self, broker: "Broker", context: RequestContext, acks: int, transactional_id: str | None
    ) -> None:
        self._broker = broker
        self._context = context
        self._replicas = broker.replicas
        self._version = context.api_version
        self._acks = acks
        self._transactional_id = transactional_id
        self._budget = LoopBudget()
        self.failed = ErrorCode.NONE
        # What waits for the acknowledgements that acks=all asks for.
        self.delayed: DelayedProduce | None = None
        self.late: list[_LateBatch] = []
        self.unverified: list[_UnverifiedBatch] = []

    def topic(self, topic: TopicProduceData) -> TopicProduceResponse:
        """Append to the partitions of one topic."""
        key = topic.name if self._version < _FIRST_WITH_TOPIC_IDS else topic.topic_id
        partitions = self._replicas.partitions_of(key)
        is_denied = self._context.is_restricted and not self._may_write(key)
        answers = []
        for data in topic.partition_data:
            partition = None if is_denied else partitions.get(data.index)
            try:
                if is_denied:
                    raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if partition is None:
                    raise ApiError(self._replicas.why_missing(key, data.index))
                if partition.topic in INTERNAL_TOPICS:
                    raise ApiError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic is the system's own"
                    )
                answers.append(self._append(partition, topic, data))
            except ApiError as error:
                # Not the error itself: its traceback leads back here, a cycle that would keep the
                # request's memory.
                self.failed = error.code
                answers.append(self._refusal(partition, data, error))
        return TopicProduceResponse(
            name=topic.name, topic_id=topic.topic_id, partition_responses=answers
        )

    def _may_write(self, key: str | bytes) -> bool:
        """Whether the client may write to a topic by its name or id; an unknown id is let pass."""
        if isinstance(key, str):
            return self._context.allows(Operation.WRITE, topic_resource(key))
        known = self._broker.metadata.topics_by_id.get(key)
        return known is None or self._context.allows(Operation.WRITE, topic_resource(known.name))

    def _append(
        self, partition: Partition, topic: TopicProduceData, data: PartitionProduceData
    ) -> PartitionProduceResponse:
        records = data.records
        if not records:
            raise ApiError(ErrorCode.INVALID_RECORD, "one record batch is needed, there is none")
        if self._version < _FIRST_WITH_ZSTD:
            _refuse_zstd(records)
        if topic.mirror_source:
            info = self._append_mirrored(partition, topic, data, records)
        else:
            if len(records) > ATTRIBUTES_AT and records[ATTRIBUTES_AT] & TRANSACTIONAL:
                unverified = self._begin_to_verify(partition, data.index, records)
                if unverified is not None:
                    self.unverified.append(unverified)
                    return unverified.answer
            config = partition.log.config
            if config.compression_type != PRODUCER and must_recompress(records, config):
                answer = PartitionProduceResponse(index=data.index)
                self._recompress_first(partition, answer, records)
                return answer
            if config.compacts:
                if needs_thread(records) or not self._may_spend(len(records)):
                    answer = PartitionProduceResponse(index=data.index)
                    self._check_keys_first(partition, answer, records)
                    return answer
                check_keys(records)
            if config.qbus_delay_enable or partition.log.has_hidden:
                answer = PartitionProduceResponse(index=data.index)
                appended = self._append_or_hold(partition, answer, records)
                return answer if appended is None else self._answer(partition, answer, appended)
            info = partition.append(records, self._acks)
        return self._answer(partition, PartitionProduceResponse(index=data.index), _Appended(info))

    def _may_spend(self, count: int) -> bool:
        """Whether the event loop may look through so many bytes more."""
        try:
            self._budget.spend(count)
        except BlockingIOError:
            return False
        return True

    def _begin_to_verify(
        self, partition: Partition, index: int, records: memoryview
    ) -> _UnverifiedBatch | None:
        """A transactional batch that its coordinator is to be asked for; None: append it as it is.

        Beyond the life of the request's frame.
        """
        transactional_id = self._transactional_id
        if transactional_id is None:
            raise ApiError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "a transactional batch needs a transactional id",
            )
        header = read_header(records)
        verification = partition.begin_verification(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            begins_with_zero=self._version >= _FIRST_THAT_ADDS,
        )
        if verification is None:
            return None
        answer = PartitionProduceResponse(index=index)
        return _UnverifiedBatch(partition, answer, memoryview(bytearray(records)), verification)

    async def ask(
        self, producer_id: int, epoch: int, batches: Sequence[_UnverifiedBatch]
    ) -> dict[tuple[str, int], ErrorCode]:
        """Ask a transaction's coordinator for partitions: what the answer is to say of each."""
        assert self._transactional_id is not None
        partitions = [(one.partition.topic, one.partition.index) for one in batches]
        codes: dict[tuple[str, int], ErrorCode] = await self._broker.transactions.verify(
            self._transactional_id,
            producer_id,
            epoch,
            partitions,
            add=self._version >= _FIRST_THAT_ADDS,
            abortable=self._version >= _FIRST_WITH_ABORTABLE,
        )
        return codes

    def append_verified(self, unverified: _UnverifiedBatch) -> None:
        """Append a batch whose coordinator takes it. Raises ApiError."""
        partition, answer = unverified.partition, unverified.answer
        batch, verification = unverified.batch, unverified.verification
        config = partition.log.config
        if config.compression_type != PRODUCER and must_recompress(batch, config):
            self._recompress_first(partition, answer, batch, verification)
            return
        if config.compacts:
            self._check_keys_first(partition, answer, batch, verification)
            return
        appended = self._append_as_configured(partition, answer, batch, verification)
        if appended is not None:
            self._answer(partition, answer, appended)

    def _append_as_configured(
        self,
        partition: Partition,
        answer: PartitionProduceResponse,
        batch: memoryview,
        verification: Verification | None,
    ) -> _Appended | None:
        if partition.log.config.qbus_delay_enable or partition.log.has_hidden:
            return self._append_or_hold(partition, answer, batch, verification)
        return _Appended(partition.append(batch, self._acks, verification))

    def _answer(
        self, partition: Partition, answer: PartitionProduceResponse, appended: _Appended
    ) -> PartitionProduceResponse:
        info = appended.info
        answer.base_offset = info.first_offset
        answer.log_append_time_ms = info.log_append_time
        answer.log_start_offset = info.log_start_offset
        if appended.orders is not None:
            answer.orders_done = appended.orders.done
            answer.orders_late = appended.orders.late
        self._await(partition, info, answer)
        return answer

    def _await(
        self, partition: Partition, info: AppendInfo, answer: PartitionProduceResponse
    ) -> None:
        if self._acks == ACKS_ALL and partition.high_watermark <= info.last_offset:
            if self.delayed is None:
                self.delayed = DelayedProduce(self._replicas.purgatory.loop)
            self.delayed.expect(partition, info.last_offset + 1, answer)

    def _append_or_hold(
        self,
        partition: Partition,
        answer: PartitionProduceResponse,
        batch: memoryview,
        verification: Verification | None = None,
    ) -> _Appended | None:
        """Append a batch some of whose records may be delayed, cancel or reschedule.

        None: a thread has to read it first, or what the orders in it are about.
        """
        try:
            contents = self._broker.delays.look(partition, batch, self._budget)
        except BlockingIOError:
            self._read_first(partition, answer, batch, verification)
            return None
        return self._append_contents(partition, answer, batch, verification, contents)

    def _read_first(
        self,
        partition: Partition,
        answer: PartitionProduceResponse,
        records: memoryview,
        verification: Verification | None,
    ) -> None:
        """Keep a batch that is too large for the event loop until a thread has read it."""
        batch = memoryview(bytearray(records))
        read, ceiling = self._broker.delays.reader(partition, batch), self._ceiling
        self._keep(
            _LateBatch(
                partition,
                answer,
                lambda: read(ceiling),
                lambda contents: self._append_contents(
                    partition, answer, batch, verification, contents
                ),
                len(batch),
                True,
            )
        )

    @property
    def _ceiling(self) -> int:
        """The bytes that the records of one batch may take, decompressed."""
        return self._broker.config.message_decompressed_max_bytes

    def _append_contents(
        self,
        partition: Partition,
        answer: PartitionProduceResponse,
        batch: memoryview,
        verification: Verification | None,
        contents: Contents | None,
    ) -> _Appended | None:
        """Append a batch whose contents were read; returns as :meth:`_append_or_hold`."""
        intake = None
        if contents is not None:
            delays = self._broker.delays
            intake = delays.intake(partition, batch, self._acks, verification, contents)
        if intake is None:
            return _Appended(partition.append(batch, self._acks, verification))
        if not intake.needs_thread:
            return _Appended(*intake.append())
        self._keep(
            _LateBatch(
                partition,
                answer,
                intake.read,
                lambda _: self._append_read(partition, answer, intake, verification),
            )
        )
        return None

    def _append_read(
        self,
        partition: Partition,
        answer: PartitionProduceResponse,
        intake: "PartitionIntake",
        verification: Verification | None,
    ) -> _Appended | None:
        try:
            return _Appended(*intake.append())
        except StoredMeanwhileError as changed:
            batch = memoryview(bytearray(changed.batch))
        return self._append_or_hold(partition, answer, batch, verification)

    def _recompress_first(
        self,
        partition: Partition,
        answer: PartitionProduceResponse,
        records: memoryview,
        verification: Verification | None = None,
    ) -> None:
        """Keep a batch until it is compressed anew, beyond the life of the request's frame."""
        if partition.error:
            raise ApiError(partition.error)
        batch, config, ceiling = bytes(records), partition.log.config, self._ceiling
        self._keep(
            _LateBatch(
                partition,
                answer,
                lambda: _recompressed(batch, config, ceiling),
                lambda made: self._append_as_configured(
                    partition, answer, memoryview(made), verification
                ),
                len(batch),
                True,
            )
        )

    def _check_keys_first(
        self,
        partition: Partition,
        answer: PartitionProduceResponse,
        records: memoryview,
        verification: Verification | None = None,
    ) -> None:
        """Keep a batch for a compacted topic until a thread has seen its keys."""
        if partition.error:
            raise ApiError(partition.error)
        batch, ceiling = bytearray(records), self._ceiling
        self._keep(
            _LateBatch(
                partition,
                answer,
                lambda: check_keys(batch, ceiling),
                lambda _: self._append_as_configured(
                    partition, answer, memoryview(batch), verification
                ),
                len(batch),
                True,
            )
        )

    def _keep(self, late: _LateBatch) -> None:
        self.late.append(late)

    def take_late(self) -> list[_LateBatch]:
        """The batches that were kept since the last time."""
        taken, self.late = self.late, []
        return taken

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Account for ``size`` bytes of copied batches in the memory of unfinished requests."""
        memory = self._broker.memory
        memory.force(size)
        try:
            yield
        finally:
            memory.release(size)

    def prepare(self, late: _LateBatch) -> Awaitable[Any]:
        """Prepare a batch in a thread."""
        executor = self._replicas.decoders if late.decodes else None
        return self._replicas.purgatory.loop.run_in_executor(executor, late.prepare)

    def append_late(self, late: _LateBatch, prepared: Any) -> None:
        """Append a batch that is prepared. Raises :class:`~qbus.errors.ApiError`."""
        appended = late.append(prepared)
        if appended is not None:
            self._answer(late.partition, late.answer, appended)

    def refuse_late(self, answer: PartitionProduceResponse, error: ApiError) -> None:
        """Say in the response why a batch is not appended."""
        self.failed = error.code
        answer.error_code = error.code
        answer.error_message = error.message
        answer.base_offset = -1
        if isinstance(error, RecordsRefusedError):
            answer.record_errors = record_errors(error.errors)

    def answer(
        self, response: ProduceResponse, timeout_s: float
    ) -> ProduceResponse | Delayed[ProduceResponse] | None:
        """The response as ``acks`` asks for it, once everything that can be is appended.

        Raises:
            ApiError: with ``acks`` 0, an append failed.
        """
        if self.failed:
            if self._acks == 0:
                raise ApiError(self.failed)
            if self._version >= _FIRST_WITH_LEADERS:
                name_leaders(self._broker, response, self._context.peer.listener.name)
        if self._acks == 0:
            return None
        delayed = self.delayed
        if delayed is None:
            return response
        delayed.complete_with(response)
        if not delayed.done():
            self._replicas.purgatory.produces.add(delayed, max(timeout_s, 0.0))
        return delayed

    def _append_mirrored(
        self,
        partition: Partition,
        topic: TopicProduceData,
        data: PartitionProduceData,
        records: memoryview,
    ) -> AppendInfo:
        if self._acks != ACKS_ALL:
            raise ApiError(
                ErrorCode.INVALID_REQUIRED_ACKS, f"mirrors need acks -1, not {self._acks}"
            )
        provenance = Provenance(
            topic.mirror_source,
            topic.mirror_topic_id,
            data.mirror_follows,
            data.mirror_log_start_offset,
        )
        return partition.append_mirrored(records, provenance)

    def _refusal(
        self, partition: Partition | None, data: PartitionProduceData, error: ApiError
    ) -> PartitionProduceResponse:
        answer = refused(data.index, error)
        records = data.records
        if error.code is ErrorCode.INVALID_TIMESTAMP and partition and records:
            now_ms = self._broker.clock.time_ms()
            answer.record_errors = bad_timestamps(records, partition.log.config, now_ms)
        elif isinstance(error, RecordsRefusedError):
            answer.record_errors = record_errors(error.errors)
        return answer


def _recompressed(batch: bytes, config: LogConfig, ceiling: int) -> bytearray:
    if config.compacts:
        check_keys(batch, ceiling)
    return recompressed(batch, config, ceiling)


def _refuse_zstd(records: memoryview) -> None:
    if len(records) > ATTRIBUTES_AT and records[ATTRIBUTES_AT] & _CODEC_BITS == Compression.ZSTD:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7")


def _may_write_in_transaction(context: RequestContext, request: ProduceRequest) -> bool:
    """Whether the client may use the transactional id, if a batch is part of a transaction."""
    has_transactional = any(
        data.records
        and len(data.records) > ATTRIBUTES_AT
        and data.records[ATTRIBUTES_AT] & TRANSACTIONAL
        for topic in request.topic_data
        for data in topic.partition_data
    )
    if not has_transactional:
        return True
    name = request.transactional_id
    return name is not None and context.allows(Operation.WRITE, transactional_id(name))
