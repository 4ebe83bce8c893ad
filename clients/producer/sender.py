"""Sends batches to the leaders of their partitions."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from qbus.clock import Clock
from qbus.errors import QbusError
from qbus.wire import ApiKey, Part, encode_request
from qbus.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from qbus.wire.messages.produce import ProduceRequest, ProduceResponse

from ..errors import ClientClosed, ConnectionFailed, NotSafe, RequestTimedOut, check
from ..net.cluster import Cluster
from ..net.connection import Connection, PendingAnswer
from ..net.trouble import USUAL_S
from ..types import TopicPartition
from .accumulator import Accumulator
from .batch import UNANSWERED, Batch, ProducerIdentity
from .batch_completer import BatchCompleter
from .options import ProducerOptions
from .plain import is_plain, plain_answer, plain_request
from .plan import NodeState, Planner
from .requests import answers, milliseconds, produce_request
from .transaction import TransactionState

log = logging.getLogger(__name__)

AddPartitions = Callable[[frozenset[TopicPartition]], Coroutine[Any, Any, None]]

_NO_ACKS = 0
_LAST_PRODUCE_OF_V1 = 11
"""From version 12 on, Produce adds its partitions to the transaction by itself (KIP-890)."""
_EXPIRY = 0.05
"""The seconds after which batches that are too old are looked for again, at most."""
_LEAD = 0.0015
"""Seconds by which planned work starts early: timers are up to 1 ms late, and encoding takes
time.
"""


class Sender:
    """Empties an :class:`Accumulator`; all in one loop, whose thread alone completes batches.

    It works in turns, and no turn waits for a broker: every batch completes within
    ``delivery_timeout``, whatever brokers do.
    """

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        options: ProducerOptions,
        clock: Clock,
        transaction: TransactionState | None = None,
    ) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._options = options
        self._clock = clock
        self._transaction = transaction
        self.add_partitions: AddPartitions | None = None
        """Tells the coordinator of the transaction of partitions; in a transaction only."""
        self._adding: asyncio.Task[None] | None = None
        self._planner = Planner(accumulator, cluster.metadata, options, transaction)
        self._completer = BatchCompleter(cluster, accumulator, options, clock, transaction)
        self._lead = min(_LEAD, options.linger / 3)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context: Context | None = None
        self._is_woken = False
        self._is_called = False  # by another thread
        self._expire_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._awaited: set[asyncio.Future[memoryview]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_identifying = False
        self._refreshing: set[str] = set()
        self.is_answering = False
        """Whether an answer is handled: :attr:`after_answer` is called at the end of it."""
        self.after_answer: Callable[[], object] | None = None
        self.progress = self._completer.progress

    def start(self) -> None:
        """Start sending, in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self.wake()

    def wake(self) -> None:
        """Take a turn soon: there is something to send."""
        if self._loop is not None and not self._is_woken:
            # Not in the context of the last sender: a turn works for all senders.
            self._loop.call_soon(self._go_on, context=self._context)
            self._is_woken = True

    def call(self) -> None:
        """Take a turn soon, as :meth:`wake` does; for other threads than the loop's."""
        loop = self._loop
        if loop is None or self._is_called:
            return
        self._is_called = True
        try:
            loop.call_soon_threadsafe(self._on_call, context=self._context)
        except BaseException as error:
            self._is_called = False  # who is interrupted here keeps nobody else from calling
            if not (isinstance(error, RuntimeError) and loop.is_closed()):
                raise  # else another thread has closed it, and what was added has failed

    def _on_call(self) -> None:
        self._is_called = False  # before the turn: what is added from now on needs another
        self._go_on()

    def turn_after(self, add: Callable[[], object]) -> None:
        """Take a turn now, if ``add`` adds something to be sent; in the loop's thread."""
        is_woken, self._is_woken = self._is_woken, True  # nobody needs to wake it
        announced = self._accumulator.announced
        try:
            add()
        finally:
            self._is_woken = is_woken
            if self._accumulator.announced != announced:
                self._go_on()

    async def stop(self) -> None:
        """Give up what is not delivered; spool it if there is a spool."""
        self._halt()
        pending: list[asyncio.Future[Any]] = [*self._tasks, *self._awaited]
        for each in pending:
            each.cancel()
        await asyncio.gather(*pending, return_exceptions=True)  # handles responses that arrived
        await self._completer.close(self._accumulator.fail(ClientClosed()))

    # Transactions.

    def use(self, identity: ProducerIdentity) -> None:
        """Send what is sent from now on as ``identity``; nothing may be under way."""
        self._planner.identity = identity
        self._accumulator.use_next()

    def drop_waiting(self, error: Exception) -> None:
        """Give up what is not delivered; what is in flight may be stored all the same."""
        self._completer.drop(error)

    async def drop(self, error: Exception) -> None:
        """Give up what is not delivered, and wait until nothing is in flight."""
        self._completer.drop(error)
        if self._adding is not None:
            self._adding.cancel()
            await asyncio.gather(self._adding, return_exceptions=True)
        while self._awaited:
            await asyncio.wait(set(self._awaited))

    def fail(self, error: Exception) -> None:
        """Fail everything: nothing can be sent any more, for that reason."""
        self._completer.fail(error)

    # Turns.

    def _go_on(self) -> None:
        """Take a turn, and set the loop's timer for the next; a task would start later."""
        if self._loop is None:
            return
        self._is_woken = False
        try:
            pause = self._turn()
        except Exception as error:  # noqa: BLE001 - deliveries report it
            self._break_down(error)
        else:
            self._go_on_at(self._loop, self._loop.time() + pause)

    def _go_on_at(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        """Take the next turn at that time at the latest.

        A timer that comes earlier stays: one turn too many costs less than a timer for each turn.
        """
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at, self._on_timer, context=self._context)

    def _on_timer(self) -> None:
        self._timer = None
        self._go_on()

    def _halt(self) -> None:
        """Take no more turns."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()

    def _break_down(self, error: BaseException) -> None:
        """Fail all deliveries after an unexpected error; nothing is sent any more."""
        log.error("the producer failed unexpectedly and sends no more", exc_info=error)
        self._halt()
        self._completer.fail(error if isinstance(error, Exception) else QbusError(str(error)))

    def _turn(self) -> float:
        """Do what can be done; return the seconds until there is more to do."""
        now = self._clock.monotonic()
        if now >= self._expire_at:
            self._expire_at = now + min(_EXPIRY, self._options.delivery_timeout / 100)
            self._completer.expire(now)
        with self._accumulator.lock:
            plan = self._planner.plan(now + self._lead)
        for node, connection, batches in plan.requests:
            self._start(node, connection, batches)
        for node in plan.to_connect:
            node.connecting = self._spawn(self._connect(node))
        if plan.needs_identity and not self._is_identifying:
            self._is_identifying = True
            self._spawn(self._identify())
        if plan.unadmitted and self._adding is None and self.add_partitions is not None:
            self._adding = self._spawn(self.add_partitions(frozenset(plan.unadmitted)))
        topics = plan.unknown_topics - self._refreshing
        if topics:
            self._refreshing |= topics
            self._spawn(self._find_leaders(topics))
        return plan.pause - (self._clock.monotonic() - now)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task is self._adding:
            self._adding = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._break_down(error)
        self.wake()

    async def _connect(self, node: NodeState) -> None:
        address = self._planner.address(node)
        try:
            connection = await self._cluster.connection(node.id)
            if address is not None:
                node.connected(connection, address)
        except QbusError as error:
            self._lost(node, error)
        finally:
            node.connecting = None

    async def _identify(self) -> None:
        try:
            response: InitProducerIdResponse = await self._cluster.ask_any(
                ApiKey.INIT_PRODUCER_ID,
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0),
            )
            check(response.error_code)
            self._planner.identity = ProducerIdentity(response.producer_id, response.producer_epoch)
        except QbusError as error:
            if isinstance(error, NotSafe):  # corrected perhaps before the next send
                self._completer.drop(error)
            elif not error.retriable:
                self._completer.fail(error)
                return
            self._note(self._accumulator.active, error)
            self._cluster.troubles.met("a producer id", error, grace=USUAL_S)
            await asyncio.sleep(self._completer.delay(0))
        else:
            self._cluster.troubles.solved("a producer id")
        finally:
            self._is_identifying = False

    async def _find_leaders(self, topics: set[str]) -> None:
        try:
            self._cluster.metadata.forget(topics)
            await self._cluster.need(topics)
        except QbusError as error:
            self._refused(topics, error)
        else:
            for topic in topics:
                refused = self._cluster.metadata.errors.get(topic)
                if refused is not None and not refused.retriable:
                    self._completer.refuse_topic(topic, refused)
            wanted = [key for key in self._accumulator.active if key.topic in topics]
            for key, reason in self._cluster.leaderless(wanted).items():
                self._accumulator.queues[key].fail_attempt(reason)
        self.wake()
        await asyncio.sleep(self._completer.delay(0))
        self._refreshing -= topics

    # Requests and answers.

    def _start(self, node: NodeState, connection: Connection, batches: list[Batch]) -> None:
        whole = [batch for batch in batches if self._is_encoded(batch)]
        if not whole:
            node.in_flight -= 1
        elif self._options.acks == _NO_ACKS:
            self._spawn(self._send_unanswered(node, connection, whole))
        else:
            self._send(node, connection, whole)

    def _is_encoded(self, batch: Batch) -> bool:
        if batch.encoded is None:
            try:
                batch.encoded = batch.encode(
                    self._options.compression, self._options.compression_level
                )
            except Exception as error:  # noqa: BLE001 - the others are sent all the same
                self._completer.give_up(batch, error)
                return False
        return True

    async def _send_unanswered(
        self, node: NodeState, connection: Connection, batches: list[Batch]
    ) -> None:
        try:
            await connection.send(ApiKey.PRODUCE, self._request(batches))
        except QbusError as error:
            self._undelivered(node, batches, error)
        else:
            for batch in batches:
                self._completer.delivered(batch, UNANSWERED)
        finally:
            node.in_flight -= 1

    def _send(self, node: NodeState, connection: Connection, batches: list[Batch]) -> None:
        def told(_: asyncio.Future[memoryview]) -> None:
            self._answered(node, batches, answer)

        try:
            answer = connection.begin(
                ApiKey.PRODUCE,
                None,
                self._options.request_timeout,
                newest=self._newest_produce(),
                told=told,
                write=partial(self._write, batches),
            )
        except QbusError as error:
            node.in_flight -= 1
            self._undelivered(node, batches, error)
            self.wake()
        else:
            self._awaited.add(answer.frame)

    def _write(
        self, batches: list[Batch], version: int, correlation_id: int, client_id: str
    ) -> list[Part]:
        if len(batches) > 1 or not is_plain(version):
            message = self._request(batches)
            return encode_request(ApiKey.PRODUCE, version, correlation_id, client_id, message)
        records = batches[0].encoded
        assert records is not None
        options = self._options
        return plain_request(
            version,
            correlation_id,
            client_id,
            options.transactional_id,
            options.acks,
            milliseconds(options.request_timeout),
            batches[0].partition,
            records,
        )

    def _request(self, batches: list[Batch]) -> ProduceRequest:
        options = self._options
        return produce_request(
            batches, options.acks, options.request_timeout, options.transactional_id
        )

    def _newest_produce(self) -> int | None:
        is_v1 = self._transaction is not None and not self._transaction.is_v2
        return _LAST_PRODUCE_OF_V1 if is_v1 else None

    def _answered(self, node: NodeState, batches: list[Batch], answer: PendingAnswer) -> None:
        self._awaited.discard(answer.frame)
        node.in_flight -= 1
        if answer.frame.cancelled():
            return
        self.is_answering = True
        try:
            self._handle_response(node, batches, answer)
            if self.after_answer is not None:
                self.after_answer()
        except Exception as error:  # noqa: BLE001 - deliveries report it
            self._break_down(error)
        finally:
            self.is_answering = False
        if not self._accumulator.is_drained:
            self.wake()

    def _handle_response(
        self, node: NodeState, batches: list[Batch], answer: PendingAnswer
    ) -> None:
        try:
            if len(batches) == 1 and is_plain(answer.version):
                stored = plain_answer(answer.frame.result(), batches[0].partition)
                if stored is not None:
                    outcome, throttle_ms = stored
                    node.answered(self._clock.monotonic(), throttle_ms)
                    self._completer.delivered(batches[0], outcome)
                    return
            response: ProduceResponse = answer.response()
        except QbusError as error:
            self._undelivered(node, batches, error)
        else:
            node.answered(self._clock.monotonic(), response.throttle_time_ms)
            for each in answers(batches, response):
                self._completer.handle_answer(each)

    # Errors.

    def _undelivered(self, node: NodeState, batches: list[Batch], error: QbusError) -> None:
        if isinstance(error, ConnectionFailed | RequestTimedOut):
            self._lost(node, error)
        for batch in batches:
            self._completer.failed(batch, error)

    def _lost(self, node: NodeState, error: QbusError) -> None:
        """Back off from a broker that cannot be reached or does not answer."""
        node.failed(self._clock.monotonic())
        topics = self._planner.led_by(node)
        self._cluster.metadata.forget(topics)
        self._refused(topics, error)

    def _refused(self, topics: Collection[str], error: QbusError) -> None:
        """Note why batches for ``topics`` cannot be sent now; give them up if no wait helps."""
        if isinstance(error, NotSafe):
            for topic in topics:
                self._completer.refuse_topic(topic, error)
        self._note((key for key in self._accumulator.active if key.topic in topics), error)

    def _note(self, keys: Iterable[Any], error: QbusError) -> None:
        for key in list(keys):
            self._accumulator.queues[key].fail_attempt(error)
