"""Sends batches to the leaders of their partitions, and again as long as that may help."""

import asyncio
from collections.abc import Iterable, Mapping

from qbus.clock import Clock
from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.wire import ApiKey
from qbus.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from qbus.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

from ..cluster import Cluster, retrying
from ..errors import RequestTimedOut, api_error, check
from ..grouping import by_topic
from ..types import TopicPartition
from .accumulator import Accumulator
from .batch import Batch, ProducerIdentity
from .options import ProducerOptions
from .queue import OUT_OF_SEQUENCE, PartitionQueue

_NO_ACKS = 0
_MAX_REQUEST_BYTES = 16 * 1024 * 1024
_IDLE = 1.0
_FIRST_RETRY = 0.05
_LONGEST_RETRY = 1.0


class Sender:
    """The task that empties an :class:`Accumulator`.

    Every batch put there is delivered or failed, at the latest when ``delivery_timeout`` is over
    and what is in flight has been answered.
    """

    def __init__(
        self, cluster: Cluster, accumulator: Accumulator, options: ProducerOptions, clock: Clock
    ) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._options = options
        self._clock = clock
        self._wake = asyncio.Event()
        self._requests: set[asyncio.Task[None]] = set()
        self.progress = asyncio.Event()

    def wake(self) -> None:
        """Something is there to be sent."""
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            self._wake.clear()
            self._expire()
            while batches := self._take():
                await self._send_all(batches)
            try:
                async with asyncio.timeout(self._pause()):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def stop(self) -> None:
        """Give up what is in flight."""
        for request in self._requests:
            request.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)

    def _pause(self) -> float:
        """Seconds until the next batch is due, or a look around is."""
        now = self._clock.monotonic()
        due = [queue.next_at(self._options.linger) for queue in self._accumulator.queues.values()]
        return max(0.0, min([at - now for at in due if at is not None], default=_IDLE))

    def _take(self) -> list[Batch]:
        """A batch of each partition that has one due."""
        now = self._clock.monotonic()
        taken = (q.take(now, self._options.linger) for q in self._accumulator.queues.values())
        return [batch for batch in taken if batch is not None]

    async def _send_all(self, batches: Iterable[Batch]) -> None:
        """Start a request to each leader (more when they get too large)."""
        requests: dict[int, list[Batch]] = {}
        for batch in batches:
            try:
                leader = await self._prepare(batch)
            except QbusError as error:
                self._failed(batch, error)
                continue
            except Exception as error:  # noqa: BLE001 - the sender outlives what it cannot encode
                self._give_up(batch, error)
                continue
            request = requests.setdefault(leader, [])
            request.append(batch)
            if sum(part.size for part in request) > _MAX_REQUEST_BYTES:
                self._start(leader, requests.pop(leader))
        for leader, request in requests.items():
            self._start(leader, request)

    def _start(self, leader: int, batches: list[Batch]) -> None:
        request = asyncio.create_task(self._send(leader, batches))
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)

    async def _prepare(self, batch: Batch) -> int:
        """Encode ``batch``; the id of the leader to send it to."""
        topic, partition = batch.partition
        queue = self._queue(batch)
        await self._cluster.need([topic])
        leader = self._cluster.metadata.leader(topic, partition)
        if self._options.is_idempotent:
            if queue.needs_identity(batch):
                queue.set_identity(await self._new_identity())
            queue.number(batch)
        if batch.encoded is None:
            batch.encode(self._options.compression)
        return leader

    async def _new_identity(self) -> ProducerIdentity:
        async def attempt() -> ProducerIdentity:
            response: InitProducerIdResponse = await self._cluster.ask_any(
                ApiKey.INIT_PRODUCER_ID,
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0),
            )
            check(response.error_code)
            return ProducerIdentity(response.producer_id, response.producer_epoch)

        return await retrying(attempt, self._cluster.request_timeout)

    async def _send(self, leader: int, batches: list[Batch]) -> None:
        by_partition = {batch.partition: batch for batch in batches}
        request = self._request(by_partition)
        try:
            if self._options.acks == _NO_ACKS:
                connection = await self._cluster.connection(leader)
                await connection.send(ApiKey.PRODUCE, request)
                for batch in batches:
                    self._delivered(batch, -1, -1)
            else:
                response = await self._cluster.ask(leader, ApiKey.PRODUCE, request)
                self._answered(by_partition, response)
        except QbusError as error:
            for batch in batches:
                self._failed(batch, error)
        finally:
            self.wake()

    def _request(self, batches: Mapping[TopicPartition, Batch]) -> ProduceRequest:
        return ProduceRequest(
            transactional_id=None,
            acks=self._options.acks,
            timeout_ms=int(self._cluster.request_timeout * 1000),
            topic_data=[
                TopicProduceData(
                    name=topic,
                    partition_data=[
                        PartitionProduceData(
                            index=index, records=batches[TopicPartition(topic, index)].encoded
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(batches).items()
            ],
        )

    def _answered(self, batches: Mapping[TopicPartition, Batch], response: ProduceResponse) -> None:
        unanswered = dict(batches)
        for topic in response.responses:
            for answer in topic.partition_responses:
                batch = unanswered.pop(TopicPartition(topic.name, answer.index), None)
                if batch is not None:
                    self._settle(batch, answer)
        for batch in unanswered.values():
            self._failed(batch, RequestTimedOut("the broker did not answer for this partition"))

    def _settle(self, batch: Batch, answer: PartitionProduceResponse) -> None:
        if answer.error_code == ErrorCode.NONE:
            self._delivered(batch, answer.base_offset, answer.log_append_time_ms)
        elif answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._delivered(batch, -1, -1)  # stored once, so long ago that nobody knows where
        else:
            self._failed(batch, api_error(answer.error_code, answer.error_message))

    def _delivered(self, batch: Batch, base_offset: int, log_append_time: int) -> None:
        self._queue(batch).delivered(batch)
        batch.delivered(base_offset, log_append_time)
        self._release(batch)

    def _failed(self, batch: Batch, error: QbusError) -> None:
        """Send ``batch`` again if that may help and there is time, else give it up."""
        now = self._clock.monotonic()
        if self._may_retry(error) and now < batch.created_at + self._options.delivery_timeout:
            assert isinstance(error, ApiError)
            self._cluster.metadata.forget([batch.partition.topic])
            delay = min(_FIRST_RETRY * 2**batch.attempts, _LONGEST_RETRY)
            batch.attempts += 1
            self._queue(batch).failed(batch, error.code, now + delay)
            return
        self._give_up(batch, error)

    def _give_up(self, batch: Batch, error: Exception) -> None:
        self._queue(batch).given_up(batch)
        batch.failed(error)
        self._release(batch)

    def _may_retry(self, error: QbusError) -> bool:
        if not isinstance(error, ApiError):
            return False
        return error.retriable or (self._options.is_idempotent and error.code in OUT_OF_SEQUENCE)

    def _expire(self) -> None:
        """Give up what has waited for too long without ever being on its way."""
        oldest = self._clock.monotonic() - self._options.delivery_timeout
        for queue in self._accumulator.queues.values():
            for batch in queue.expired(oldest):
                batch.failed(RequestTimedOut("not delivered in time"))
                self._release(batch)

    def _release(self, batch: Batch) -> None:
        self._accumulator.release(batch)
        self.progress.set()

    def _queue(self, batch: Batch) -> PartitionQueue:
        return self._accumulator.queues[batch.partition]
