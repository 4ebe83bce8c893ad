"""From files that have something to read to partitions, and from acknowledgements to positions."""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from qbus.clients import Admin, BulkDelivery, ClientClosed, Producer
from qbus.clients.producer.partitioner import partition_for_key
from qbus.clock import Clock
from qbus.errors import ApiError, ConfigError, ErrorCode, QbusError
from qbus.service.token_bucket import RateLimit

from ..config import AgentConfig
from ..positions import Position, Positions, PositionsWriter
from ..quarantine import Quarantine
from ..tailing.file import Chunk, TailedFile
from .partition_sender import PartitionSender, explained
from .pending_batch import MemoryBudget, PendingBatch

log = logging.getLogger(__name__)

_FOREVER_MS = 100 * 365 * 86_400_000
_CLIENT_ID = "qbus-agent"
_PAUSE_S = 1.0
_LOOK_MS = 2000
_BURST_S = 0.1
_FATAL = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)

Delivered = list[tuple[PartitionSender, PendingBatch]]
"""Acknowledged batches and their senders."""


class Dispatcher:
    """Delivers files, each to one partition of its topic, however long that takes.

    An idempotent producer retries retriable errors in order, without an end. The partition's sender
    retries what the producer gives up, since an operator can remove the cause.
    """

    def __init__(
        self,
        config: AgentConfig,
        positions: Positions,
        writer: PositionsWriter,
        clock: Clock,
        read_chunk: Callable[[TailedFile, int], Chunk | None],
        *,
        quarantine: Quarantine,
        host: str = "",
    ) -> None:
        """``read_chunk`` returns the next records of a file, as :meth:`Tailer.read_chunk`.

        quarantine: keeps the records that are too large for their topics.
        """
        delivery = config.delivery
        self.batch_bytes = delivery.batch_bytes
        self.budget = MemoryBudget(delivery.memory_bytes)
        self.rate_limit = RateLimit(delivery.rate_limit_bytes, clock.monotonic(), burst_s=_BURST_S)
        self.clock = clock
        self.read_chunk = read_chunk
        self.records = 0
        self.bytes = 0
        self.refused_records = 0
        """Records that are too large for their topics, and were set aside."""
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Holds the error that ended delivery, once there is one."""
        self._config = config
        self._security = config.security.security()
        self._host = host
        self._positions = positions
        self._quarantine = quarantine
        self._writer = writer
        self._partitions: dict[str, int] = {}
        self._waiting: dict[str, list[TailedFile]] = {}
        self._errors: dict[str, Exception] = {}
        self._unreachable: Exception | None = None
        self._senders: dict[tuple[str, int], PartitionSender] = {}
        self._acknowledged: Delivered = []
        self._woken: list[PartitionSender] = []
        self._is_gathering = False
        self._is_stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._producer = self._new_producer()
        self._renewing = asyncio.Lock()
        self.spawn(self._look_for_brokers())

    @property
    def error(self) -> Exception | None:
        """Why some records cannot be delivered now."""
        if self._writer.error is not None:
            return self._writer.error
        for error in self._errors.values():
            return error
        for sender in self._senders.values():
            if (met := sender.trouble) is not None:
                return met
        return None if self.records else self._unreachable  # brokers that take records are there

    @property
    def is_idle(self) -> bool:
        """Whether everything that was read is delivered and checkpointed."""
        return not any(sender.outstanding for sender in self._senders.values())

    def ready(self, file: TailedFile) -> None:
        """Begin to read a file that has something to read."""
        topic = file.position.topic
        if topic in self._partitions:
            self._sender_of(file).add(file)
        elif topic in self._waiting:
            self._waiting[topic].append(file)
        else:
            self._waiting[topic] = [file]
            self.spawn(self._find_partitions(topic))

    def shares_partition(self, one: Position, other: Position) -> bool:
        """Whether two files of one topic go to one partition; they may while it has no answer."""
        count = self._partitions.get(one.topic)
        if count is None:
            return True
        return self._partition_of(one, count) == self._partition_of(other, count)

    async def drain(self, timeout: float) -> bool:
        """Stop reading; return whether what was read is delivered within ``timeout`` seconds."""
        self.budget.limit = 0
        try:
            async with asyncio.timeout(timeout):
                while not self.is_idle:  # noqa: ASYNC110 - once, at the end
                    await asyncio.sleep(0.005)
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Stop; the next agent reads again what is not delivered."""
        self._is_stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.failure.cancel()
        await self._producer.close(timeout=0)

    def together(self, notice: Callable[[], object]) -> None:
        """Call ``notice``, which finds files that are ready; then read and send all of them now."""
        self._is_gathering = True
        try:
            notice()
        finally:
            self._is_gathering = False
            self._go_on()

    def _go_on(self) -> None:
        if self._woken and not self._is_stopping:
            self._producer._send_at_once(self._send_woken)

    def _send_woken(self) -> None:
        woken, self._woken = self._woken, []
        try:
            for sender in woken:
                sender.go_on()
        except Exception as error:  # noqa: BLE001 - it ends delivery
            self._fail(error)

    # What senders use.

    def soon(self, sender: PartitionSender) -> None:
        """Have a sender go on, together with others of this moment."""
        if not self._woken and not self._is_gathering:
            asyncio.get_running_loop().call_soon(self._go_on)
        self._woken.append(sender)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what has to wait; an error of it ends delivery."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def send_now(self, topic: str, partition: int, batch: PendingBatch) -> BulkDelivery | None:
        """Hand records to the producer; None: that has to wait, or fails."""
        if batch.keys is not None or batch.headers is not None:
            return None
        return self._producer._send_values(topic, batch.values, batch.size, partition)

    async def send(self, topic: str, partition: int, batch: PendingBatch) -> BulkDelivery:
        """Hand records to the producer. Raises :class:`~qbus.errors.QbusError`."""
        return await self._producer.send_many(
            topic, batch.values, batch.keys, batch.headers, partition
        )

    def delivered(self, sender: PartitionSender, batch: PendingBatch) -> None:
        """Checkpoint acknowledged records, together with others of the same answer."""
        if not self._acknowledged and not self._producer._is_answering:
            asyncio.get_running_loop().call_soon(self._checkpoint)
        self._acknowledged.append((sender, batch))

    async def refused(self, topic: str, error: Exception) -> None:  # noqa: ARG002 - the protocol's
        """Replace the producer if the error is fatal for it, whatever topic met it."""
        code = error.code if isinstance(error, ApiError) else None
        if code not in _FATAL and isinstance(error, QbusError) and type(error) is not ClientClosed:
            return
        failed = self._producer
        async with self._renewing:
            if self._producer is failed and not self._is_stopping:
                try:
                    producer = self._new_producer()
                except ConfigError as wrong:  # a certificate's file is being replaced
                    log.warning("%s; trying again", wrong)
                    return
                await failed.close(timeout=0)
                self._producer = producer

    async def set_aside(self, topic: str, batch: PendingBatch, index: int, why: Exception) -> None:
        """Keep a record that its topic will never take, and say so. Raises OSError."""
        value = batch.values[index]
        chunk, number = batch.origin(index)
        file = chunk.file
        offset = file.offset_of(chunk, number, value)
        where = f"at byte {offset}" if offset >= 0 else f"in bytes {chunk.start} to {chunk.end}"
        name = f"{topic}.{os.path.basename(file.path)}.{max(offset, chunk.start)}"  # noqa: PTH119
        kept = await asyncio.to_thread(self._quarantine.keep_record, name, value)
        self.refused_records += 1
        file.refused += 1
        file.refusal = f"the record {where} ({len(value)} bytes), now in {kept}: {why}"
        log.error("%s: topic %s refuses %s", file.path, topic, file.refusal)

    def _checkpoint(self) -> None:
        """Advance the positions of the acknowledged records and have them written."""
        acknowledged, self._acknowledged = self._acknowledged, []
        if not acknowledged:
            return
        for _, batch in acknowledged:
            for chunk in batch.chunks:
                chunk.file.acknowledge(chunk)
            batch.chunks.clear()
        self._write_positions(acknowledged)

    def _write_positions(self, acknowledged: Delivered) -> None:
        if not self._is_stopping:
            self._writer.write(partial(self._checkpointed, acknowledged))

    def _checkpointed(self, acknowledged: Delivered, error: OSError | None) -> None:
        """Let senders go on behind records whose positions are written."""
        if error is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(_PAUSE_S, self._write_positions, acknowledged)
            return
        was_full = not self.budget.has_room
        for sender, batch in acknowledged:
            self.records += len(batch)
            self.bytes += batch.size
            self.budget.used -= batch.memory
            batch.forget()
            sender.release(batch)
        if was_full:
            for sender in self._senders.values():
                sender.wake()

    def _sender_of(self, file: TailedFile) -> PartitionSender:
        """Return the sender of a file, which keeps its partition when its topic grows."""
        position = file.position
        partition = self._partition_of(position, self._partitions[position.topic])
        if position.partition != partition:
            position.partition = partition
            self._positions.change(position)
        key = (position.topic, position.partition)
        sender = self._senders.get(key)
        if sender is None:
            sender = self._senders[key] = PartitionSender(*key, self)
        return sender

    def _partition_of(self, position: Position, count: int) -> int:
        """The partition of a file: the one it has, or the one that its host and path decide."""
        if 0 <= position.partition < count:
            return position.partition
        name = f"{self._host}:{position.path}".encode("utf-8", "surrogateescape")
        return partition_for_key(name, count)

    async def _look_for_brokers(self) -> None:
        """Say early whether brokers can be reached: there may be nothing to send for hours."""
        bootstrap = self._config.bootstrap
        async with Admin(
            bootstrap,
            client_id=_CLIENT_ID,
            request_timeout_ms=_LOOK_MS,
            security=self._security,
        ) as admin:
            while True:
                try:
                    found = await admin.describe_cluster()
                except QbusError as error:
                    if self._unreachable is None:
                        log.warning(
                            "no broker of %s can be reached: %s; trying again", bootstrap, error
                        )
                    self._unreachable = error
                    await asyncio.sleep(_PAUSE_S)
                else:
                    break
        self._unreachable = None
        names = ", ".join(f"{node.host}:{node.port}" for node in found.nodes)
        log.info("ships to the cluster %s of the brokers %s", found.cluster_id, names)

    async def _find_partitions(self, topic: str) -> None:
        while True:
            try:
                self._partitions[topic] = len(await self._producer.partitions(topic))
            except QbusError as error:
                if topic not in self._errors:
                    log.warning("%s; trying again", explained(topic, error))
                self._errors[topic] = error
                await self.refused(topic, error)
                await asyncio.sleep(_PAUSE_S)
            else:
                break
        if self._errors.pop(topic, None) is not None:
            log.info("%s: its partitions are known", topic)
        for file in self._waiting.pop(topic):
            self._sender_of(file).add(file)

    def _new_producer(self) -> Producer:
        delivery = self._config.delivery
        producer = Producer(
            self._config.bootstrap,
            compression=delivery.compression,
            compression_level=delivery.compression_level,
            linger_ms=0,
            batch_bytes=delivery.batch_bytes,
            buffer_bytes=4 * delivery.memory_bytes,
            delivery_timeout_ms=_FOREVER_MS,
            request_timeout_ms=delivery.request_timeout_ms,
            client_id=_CLIENT_ID,
            security=self._security,
        )
        producer._after_answer(self._checkpoint)
        return producer

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        log.error("delivery has failed", exc_info=error)
        if not self.failure.done():
            self.failure.set_exception(error)
