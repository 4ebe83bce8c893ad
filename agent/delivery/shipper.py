"""From files that have something to read to the cluster, and from its answers to positions."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from qbus.clients import BulkDelivery, ClientClosed, Producer
from qbus.clients.partitioner import partition_for_key
from qbus.clock import Clock
from qbus.errors import ApiError, ErrorCode, QbusError

from ..config import AgentConfig
from ..positions import Positions
from ..tailing.chunk import Chunk
from ..tailing.file import TailedFile
from .limits import Budget, RateLimiter
from .partition_sender import Lane
from .pending_batch import PendingBatch

log = logging.getLogger(__name__)

_FOREVER_MS = 100 * 365 * 86_400_000
_PAUSE = 1.0
_FATAL = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


class Shipper:
    """Delivers files, each to one partition of its topic, for as long as that takes.

    An idempotent producer sends again what may help to be sent again, in order and without an end;
    what is refused for good is sent again by its lane, for operators can mend that.
    """

    def __init__(
        self,
        config: AgentConfig,
        positions: Positions,
        clock: Clock,
        take: Callable[[TailedFile, int], Chunk | None],
        *,
        host: str = "",
    ) -> None:
        """``take``: gives the next records of a file, as :meth:`Tailer.take`."""
        delivery = config.delivery
        self.batch_bytes = delivery.batch_bytes
        self.budget = Budget(delivery.memory_bytes)
        self.limiter = RateLimiter(delivery.rate_limit_bytes)
        self.clock = clock
        self.take = take
        self.records = 0
        self.bytes = 0
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when shipping cannot go on; holds why."""
        self._config = config
        self._host = host
        self._positions = positions
        self._partitions: dict[str, int] = {}
        self._waiting: dict[str, list[TailedFile]] = {}
        self._errors: dict[str, Exception] = {}
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._acknowledged: list[tuple[Lane, PendingBatch]] = []
        self._is_stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._producer = self._new_producer()
        self._renewing = asyncio.Lock()

    @property
    def error(self) -> Exception | None:
        """Why something cannot be delivered now."""
        lanes = (lane.error for lane in self._lanes.values() if lane.error is not None)
        return next(iter(self._errors.values()), None) or next(lanes, None)

    @property
    def is_idle(self) -> bool:
        """Whether all that was read is delivered, and written down."""
        return not any(lane.outstanding for lane in self._lanes.values())

    def ready(self, file: TailedFile) -> None:
        """A file has something to read."""
        topic = file.position.topic
        if topic in self._partitions:
            self._lane_of(file).add(file)
        elif topic in self._waiting:
            self._waiting[topic].append(file)
        else:
            self._waiting[topic] = [file]
            self._spawn(self._find_partitions(topic))

    async def drain(self, timeout: float) -> bool:
        """Read no more, and wait until all that was read is delivered; whether it was."""
        self.limiter = _Closed()
        try:
            async with asyncio.timeout(timeout):
                while not self.is_idle:  # noqa: ASYNC110 - once, at the end
                    await asyncio.sleep(0.005)
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Let go of everything; what is not delivered is read again by the next agent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.failure.cancel()
        await self._producer.close(timeout=0)

    # What lanes ask for.

    async def send(self, topic: str, partition: int, parcel: PendingBatch) -> BulkDelivery:
        """Put records on their way. Raises :class:`~qbus.errors.QbusError`."""
        return await self._producer.send_many(
            topic, parcel.values, parcel.keys, parcel.headers, partition
        )

    def delivered(self, lane: Lane, parcel: PendingBatch) -> None:
        """Records are acknowledged: write it down, together with others of this moment."""
        if not self._acknowledged:
            asyncio.get_running_loop().call_soon(self._write)
        self._acknowledged.append((lane, parcel))

    async def refused(self, topic: str, error: Exception) -> None:
        """Records were not taken: get another producer where this one has given up."""
        del topic
        code = error.code if isinstance(error, ApiError) else None
        if code not in _FATAL and isinstance(error, QbusError) and type(error) is not ClientClosed:
            return
        failed = self._producer
        async with self._renewing:
            if self._producer is failed and not self._is_stopping:
                await failed.close(timeout=0)
                self._producer = self._new_producer()

    # Inside.

    def _write(self) -> None:
        for _, parcel in self._acknowledged:
            for chunk in parcel.chunks:
                chunk.file.acknowledge(chunk)
            parcel.chunks.clear()
        try:
            self._positions.write()
        except OSError as error:
            self._errors["positions"] = error
            log.error("cannot write positions, so nothing more is read: %s", error.strerror)  # noqa: TRY400
            asyncio.get_running_loop().call_later(_PAUSE, self._write)
            return
        self._errors.pop("positions", None)
        was_full = not self.budget.has_room
        for lane, parcel in self._acknowledged:
            self.records += len(parcel)
            self.bytes += parcel.size
            self.budget.used -= parcel.memory
            parcel.forget()
            lane.release(parcel)
        self._acknowledged.clear()
        if was_full:
            for lane in self._lanes.values():
                lane.wake()

    def _lane_of(self, file: TailedFile) -> Lane:
        """The one lane of a file: its partition stays the same when a topic gets more of them."""
        position = file.position
        count = self._partitions[position.topic]
        if not 0 <= position.partition < count:
            name = f"{self._host}:{position.path}".encode("utf-8", "surrogateescape")
            position.partition = partition_for_key(name, count)
            self._positions.change(position)
        key = (position.topic, position.partition)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(*key, self)
            self._spawn(lane.run())
        return lane

    async def _find_partitions(self, topic: str) -> None:
        while True:
            try:
                self._partitions[topic] = await self._producer.partitions(topic)
            except QbusError as error:
                if topic not in self._errors:
                    log.warning("%s: %s; trying again", topic, error)
                self._errors[topic] = error
                await self.refused(topic, error)
                await asyncio.sleep(_PAUSE)
            else:
                break
        self._errors.pop(topic, None)
        for file in self._waiting.pop(topic):
            self._lane_of(file).add(file)

    def _new_producer(self) -> Producer:
        delivery = self._config.delivery
        return Producer(
            self._config.bootstrap,
            compression=delivery.compression,
            compression_level=delivery.compression_level,
            linger_ms=0,
            batch_bytes=delivery.batch_bytes,
            buffer_bytes=4 * delivery.memory_bytes,
            delivery_timeout_ms=_FOREVER_MS,
            request_timeout_ms=delivery.request_timeout_ms,
            client_id="qbus-agent",
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("shipping cannot go on", exc_info=error)
            if not self.failure.done():
                self.failure.set_exception(error)


class _Closed(RateLimiter):
    """Lets nothing through."""

    def __init__(self) -> None:
        super().__init__(0)

    def delay(self, now: float) -> float:  # noqa: ARG002
        """For ever."""
        return 3600.0
