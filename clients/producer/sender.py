"""Sends batches to the leaders of their partitions, and again as long as that may help."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Coroutine, Iterable
from typing import Any

from qbus.clock import Clock
from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.wire import ApiKey
from qbus.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from qbus.wire.messages.produce import ProduceResponse

from ..cluster import Cluster
from ..connection import Connection
from ..errors import ClientClosed, ConnectionFailed, RequestTimedOut, check
from .accumulator import Accumulator
from .batch import Batch, ProducerIdentity, Stored
from .link import Link
from .options import ProducerOptions
from .plan import Planner
from .queue import OUT_OF_SEQUENCE
from .requests import Answer, answers, produce_request
from .spooling import Spooler

log = logging.getLogger(__name__)

_NO_ACKS = 0
_TIMER_GRAIN = 0.001
"""Seconds by which the loop's timers may be late: what is due so soon is due."""
_PROMPT_RETRIES = 3
"""How often a batch follows to the leader that a broker names, before it pauses."""
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_FATAL = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.PRODUCER_FENCED})


class Sender:
    """Empties an :class:`Accumulator`; all in one loop, whose thread alone settles batches.

    Nothing but its tasks waits for brokers, so every batch is settled when ``delivery_timeout`` is
    over, whatever they do.
    """

    def __init__(
        self, cluster: Cluster, accumulator: Accumulator, options: ProducerOptions, clock: Clock
    ) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._options = options
        self._clock = clock
        self._planner = Planner(accumulator, cluster.metadata, options)
        self._spooler = Spooler(options.spool_dir, options) if options.spool_dir else None
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._spooling: set[asyncio.Task[None]] = set()
        self._is_identifying = False
        self._refreshing: set[str] = set()
        self.progress = asyncio.Event()

    def wake(self) -> None:
        """Something is there to be sent."""
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            self._wake.clear()
            try:
                pause = self._turn()
            except Exception as error:
                log.exception("the producer cannot go on")
                self.fail(error)
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    async def stop(self) -> None:
        """Give up all that is not delivered, and keep it where it can be kept."""
        unsettled = self._accumulator.fail(ClientClosed())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for batch in sorted(unsettled, key=lambda batch: batch.created_at):
            if not batch.is_given_up:
                self._abandon(batch, ClientClosed())
        await asyncio.gather(*self._spooling)
        if self._spooler is not None:
            await self._spooler.close()

    def fail(self, error: Exception) -> None:
        """Nothing can be sent any more, for that reason."""
        for batch in self._accumulator.fail(error):
            batch.is_given_up = True
            self._settle(batch, error)

    # What to do next.

    def _turn(self) -> float:
        """Do what can be done; seconds until there is more to do."""
        now = self._clock.monotonic()
        self._expire(now)
        with self._accumulator.lock:
            plan = self._planner.plan(now + _TIMER_GRAIN)
        for link, connection, batches in plan.requests:
            self._start(link, connection, batches)
        for link in plan.to_connect:
            link.connecting = self._spawn(self._connect(link))
        if plan.needs_identity and not self._is_identifying:
            self._is_identifying = True
            self._spawn(self._identify())
        topics = plan.unknown_topics - self._refreshing
        if topics:
            self._refreshing |= topics
            self._spawn(self._find_leaders(topics))
        return plan.pause

    def _expire(self, now: float) -> None:
        """Give up what has taken too long, be it in flight."""
        timeout = self._options.delivery_timeout
        with self._accumulator.lock:
            expired = [
                (batch, queue.error)
                for queue in self._accumulator.active.values()
                for batch in queue.expired(now - timeout)
            ]
        for batch, error in expired:
            reason = f": {error}" if error is not None else ""
            late = RequestTimedOut(f"not delivered in {timeout} s{reason}")
            late.__cause__ = error
            self._abandon(batch, late)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the producer cannot go on", exc_info=error)
            self.fail(error if isinstance(error, Exception) else QbusError(str(error)))
        self.wake()

    async def _connect(self, link: Link) -> None:
        address = self._planner.address(link)
        try:
            connection = await self._cluster.connection(link.node_id)
            if address is not None:
                link.connected(connection, address)
        except QbusError as error:
            self._lost(link, error)
        finally:
            link.connecting = None

    async def _identify(self) -> None:
        try:
            response: InitProducerIdResponse = await self._cluster.ask_any(
                ApiKey.INIT_PRODUCER_ID,
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0),
            )
            check(response.error_code)
            self._planner.identity = ProducerIdentity(response.producer_id, response.producer_epoch)
        except QbusError as error:
            if not error.retriable:
                self.fail(error)
                return
            self._note(self._accumulator.active, error)
            await asyncio.sleep(self._delay(0))
        finally:
            self._is_identifying = False

    async def _find_leaders(self, topics: set[str]) -> None:
        try:
            self._cluster.metadata.forget(topics)
            await self._cluster.need(topics)
        except QbusError as error:
            self._note((key for key in self._accumulator.active if key.topic in topics), error)
        else:
            for topic in topics:
                refused = self._cluster.metadata.errors.get(topic)
                if refused is not None and not refused.retriable:
                    self._refuse_topic(topic, refused)
        self.wake()
        await asyncio.sleep(self._delay(0))
        self._refreshing -= topics

    # Requests and answers.

    def _start(self, link: Link, connection: Connection, batches: list[Batch]) -> None:
        whole = [batch for batch in batches if self._is_encoded(batch)]
        if whole:
            self._spawn(self._send(link, connection, whole))
        else:
            link.in_flight -= 1

    def _is_encoded(self, batch: Batch) -> bool:
        if batch.encoded is None:
            try:
                batch.encoded = batch.encode(
                    self._options.compression, self._options.compression_level
                )
            except Exception as error:  # noqa: BLE001 - the others are sent all the same
                self._give_up(batch, error)
                return False
        return True

    async def _send(self, link: Link, connection: Connection, batches: list[Batch]) -> None:
        timeout = self._options.request_timeout
        request = produce_request(batches, self._options.acks, timeout)
        try:
            if self._options.acks == _NO_ACKS:
                await connection.send(ApiKey.PRODUCE, request)
                for batch in batches:
                    self._delivered(batch, Stored(-1, -1))
                return
            response: ProduceResponse = await connection.request(ApiKey.PRODUCE, request, timeout)
        except QbusError as error:
            if isinstance(error, ConnectionFailed | RequestTimedOut):
                self._lost(link, error)
            for batch in batches:
                self._failed(batch, error)
        else:
            link.answered(self._clock.monotonic(), response.throttle_time_ms)
            for answer in answers(batches, response):
                self._take_in(answer)
        finally:
            link.in_flight -= 1

    def _take_in(self, answer: Answer) -> None:
        batch, outcome, hint = answer
        if isinstance(outcome, Stored):
            self._delivered(batch, outcome)
            return
        is_known = hint is not None and self._cluster.apply_leader_hint(
            *batch.partition, hint.leader_id, hint.epoch, hint.endpoint
        )
        self._failed(batch, outcome, is_leader_known=is_known)

    def _delivered(self, batch: Batch, stored: Stored) -> None:
        with self._accumulator.lock:
            self._accumulator.queues[batch.partition].delivered(batch)
        if not batch.is_given_up:
            self._settle(batch, stored)

    def _failed(self, batch: Batch, error: QbusError, *, is_leader_known: bool = False) -> None:
        """Send ``batch`` again if that may help and there is time, else give it up."""
        code = error.code if isinstance(error, ApiError) else ErrorCode.UNKNOWN_SERVER_ERROR
        if code in _FATAL:
            self.fail(error)
        now = self._clock.monotonic()
        queue = self._accumulator.queues[batch.partition]
        queue.error = error
        if batch.is_given_up or not self._may_retry(error):
            self._give_up(batch, error)
        elif code in _TOO_LARGE:
            self._split(batch, error)
        else:
            delay = self._delay(batch.attempts)
            if is_leader_known and batch.attempts < _PROMPT_RETRIES:
                delay = 0.0
            elif not is_leader_known:
                self._cluster.metadata.forget([batch.partition.topic])
            batch.attempts += 1
            with self._accumulator.lock:
                queue.failed(batch, code, now + delay)

    def _split(self, batch: Batch, error: QbusError) -> None:
        if batch.count < 2:
            self._give_up(batch, error)
            return
        halves = batch.split()
        self._accumulator.replace(batch, halves)
        with self._accumulator.lock:
            self._accumulator.queues[batch.partition].too_large(batch, *halves)

    def _give_up(self, batch: Batch, error: Exception) -> None:
        with self._accumulator.lock:
            self._accumulator.queues[batch.partition].given_up(batch)
        if not batch.is_given_up:
            batch.is_given_up = True
            self._settle(batch, error)

    def _may_retry(self, error: QbusError) -> bool:
        if not isinstance(error, ApiError):
            return False
        if self._options.is_idempotent and error.code in OUT_OF_SEQUENCE:
            return True
        return error.retriable or error.code in _TOO_LARGE

    def _refuse_topic(self, topic: str, error: ApiError) -> None:
        """What waits for a topic that cannot be written to need not wait any longer."""
        with self._accumulator.lock:
            queues = [q for key, q in self._accumulator.active.items() if key.topic == topic]
            refused = [batch for queue in queues for batch in queue.expired(float("inf"))]
        for batch in refused:
            batch.is_given_up = True
            self._settle(batch, error)

    def _abandon(self, batch: Batch, error: QbusError) -> None:
        """Nobody waits for the delivery any more: keep the batch if there is a place."""
        batch.is_given_up = True
        if self._spooler is None:
            self._settle(batch, error)
            return
        task = asyncio.create_task(self._spool(self._spooler, batch, error))
        self._spooling.add(task)
        task.add_done_callback(self._spooling.discard)

    async def _spool(self, spooler: Spooler, batch: Batch, error: QbusError) -> None:
        self._settle(batch, await spooler.keep(batch, error))

    def _settle(self, batch: Batch, outcome: Stored | Exception) -> None:
        batch.settle(outcome)
        self._accumulator.release(batch)
        self.progress.set()

    # Trouble.

    def _lost(self, link: Link, error: QbusError) -> None:
        """A broker cannot be reached, or does not answer."""
        link.failed(self._clock.monotonic())
        topics = self._planner.led_by(link)
        self._cluster.metadata.forget(topics)
        self._note((key for key in self._accumulator.active if key.topic in topics), error)

    def _note(self, keys: Iterable[Any], error: QbusError) -> None:
        for key in list(keys):
            self._accumulator.queues[key].error = error

    def _delay(self, attempts: int) -> float:
        """Seconds before the next attempt: doubling, spread by a fifth."""
        longest = self._options.retry_backoff_max
        delay = min(self._options.retry_backoff * 2.0 ** min(attempts, 30), longest)
        return delay * random.uniform(0.8, 1.2)  # noqa: S311 - not a secret
