"""What follows the attempt to send a batch: completion, a retry, a split, an error, the spool."""

import asyncio

from qbus.clock import Clock
from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.service.backoff import backoff_delay

from ..errors import ClientClosed, NotSafe, RequestTimedOut
from ..net.cluster import Cluster
from ..net.trouble import USUAL_S
from .accumulator import Accumulator
from .batch import Batch, Stored
from .options import ProducerOptions
from .queue import OUT_OF_SEQUENCE
from .requests import Answer
from .spooling import Spooler
from .transaction import TransactionState

_MARKERS_S = 0.02
"""Seconds after which the markers of the transaction before are mostly written."""
_PROMPT_RETRIES = 3
"""Retries that go to a newly named leader without a pause."""
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_FATAL = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.PRODUCER_FENCED})


class BatchCompleter:
    """Decides about each batch that was sent, or waited too long. Runs in the loop's thread.

    Sets ``progress`` whenever a batch completes.
    """

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        options: ProducerOptions,
        clock: Clock,
        transaction: TransactionState | None = None,
    ) -> None:
        self._transaction = transaction
        self._cluster = cluster
        self._accumulator = accumulator
        self._options = options
        self._clock = clock
        self._spooler = Spooler(options.spool_dir, options) if options.spool_dir else None
        self._spooling: set[asyncio.Task[None]] = set()
        self.progress = asyncio.Event()

    async def close(self, incomplete: list[Batch]) -> None:
        """Give up what is not delivered; spool it if there is a spool."""
        for batch in sorted(incomplete, key=lambda batch: batch.created_at):
            if not batch.is_given_up:
                self._abandon(batch, ClientClosed())
        await asyncio.gather(*self._spooling)
        if self._spooler is not None:
            await self._spooler.close()

    def fail(self, error: Exception) -> None:
        """Fail everything: nothing can be sent any more, for that reason."""
        for batch in self._accumulator.fail(error):
            batch.is_given_up = True
            self._complete(batch, error)

    def expire(self, now: float) -> None:
        """Give up what is too old at ``now``, even in flight."""
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

    def handle_answer(self, answer: Answer) -> None:
        """Handle a broker's answer for a batch."""
        batch, outcome, hint = answer
        if isinstance(outcome, Stored):
            self.delivered(batch, outcome)
            return
        is_known = hint is not None and self._cluster.apply_leader_hint(
            *batch.partition, hint.leader_id, hint.epoch, hint.endpoint
        )
        self.failed(batch, outcome, is_leader_known=is_known)

    def delivered(self, batch: Batch, stored: Stored) -> None:
        """Complete a stored batch."""
        with self._accumulator.lock:
            self._accumulator.queues[batch.partition].delivered(batch)
        if self._cluster.troubles:
            self._cluster.troubles.solved(_name(batch))
        if not batch.is_given_up:
            self._complete(batch, stored)

    def failed(self, batch: Batch, error: QbusError, *, is_leader_known: bool = False) -> None:
        """Send ``batch`` again if that may help and there is time, else give it up."""
        code = error.code if isinstance(error, ApiError) else ErrorCode.UNKNOWN_SERVER_ERROR
        if code in _FATAL and self._transaction is None:
            self.fail(error)
        now = self._clock.monotonic()
        queue = self._accumulator.queues[batch.partition]
        queue.fail_attempt(error)
        if batch.is_given_up or not self._may_retry(error):
            self.give_up(batch, error)
        elif code in _TOO_LARGE:
            self._split(batch, error)
        else:
            delay = self.delay(batch.attempts)
            if code is ErrorCode.CONCURRENT_TRANSACTIONS:
                delay = backoff_delay(batch.attempts, _MARKERS_S, self._options.retry_backoff_max)
            elif is_leader_known and batch.attempts < _PROMPT_RETRIES:
                delay = 0.0
            elif not is_leader_known:
                self._cluster.metadata.forget([batch.partition.topic])
            batch.attempts += 1
            self._cluster.troubles.met(_name(batch), error, grace=USUAL_S)
            with self._accumulator.lock:
                queue.failed(batch, code, now + delay)
            if queue.is_displaced and self._transaction is not None:
                self._transaction.lost(error)

    def _split(self, batch: Batch, error: QbusError) -> None:
        if batch.count < 2:
            self.give_up(batch, error)
            return
        halves = batch.split()
        self._accumulator.replace(batch, halves)
        with self._accumulator.lock:
            self._accumulator.queues[batch.partition].too_large(batch, *halves)

    def give_up(self, batch: Batch, error: Exception) -> None:
        """Stop sending ``batch``, for that reason."""
        with self._accumulator.lock:
            self._accumulator.queues[batch.partition].given_up(batch)
        if not batch.is_given_up:
            batch.is_given_up = True
            self._complete(batch, error)

    def _may_retry(self, error: QbusError) -> bool:
        if not isinstance(error, ApiError):
            return False
        if self._options.is_idempotent and error.code in OUT_OF_SEQUENCE:
            return True
        return error.retriable or error.code in _TOO_LARGE

    def refuse_topic(self, topic: str, error: ApiError) -> None:
        """Fail everything that waits for a topic that cannot be written to."""
        with self._accumulator.lock:
            queues = [q for key, q in self._accumulator.active.items() if key.topic == topic]
            refused = [batch for queue in queues for batch in queue.expired(float("inf"))]
        self._drop(refused, error)

    def drop(self, error: Exception) -> None:
        """Give up everything that is not delivered; what is in flight is answered all the same."""
        with self._accumulator.lock:
            queues = list(self._accumulator.active.values())
            left = [batch for queue in queues for batch in queue.expired(float("inf"))]
        self._drop(left, error)

    def _drop(self, batches: list[Batch], error: Exception) -> None:
        for batch in batches:
            if isinstance(error, NotSafe):  # what a spool keeps is delivered once that is corrected
                self._abandon(batch, error)
                continue
            batch.is_given_up = True
            self._complete(batch, error)

    def _abandon(self, batch: Batch, error: QbusError) -> None:
        """Give up a batch that nobody waits for any more; spool it if there is a spool."""
        batch.is_given_up = True
        if self._spooler is None:
            self._complete(batch, error)
            return
        task = asyncio.create_task(self._spool(self._spooler, batch, error))
        self._spooling.add(task)
        task.add_done_callback(self._spooling.discard)

    async def _spool(self, spooler: Spooler, batch: Batch, error: QbusError) -> None:
        self._complete(batch, await spooler.keep(batch, error))

    def _complete(self, batch: Batch, outcome: Stored | Exception) -> None:
        batch.complete(outcome)
        self._accumulator.release(batch)
        self.progress.set()
        if self._transaction is not None and isinstance(outcome, Exception):
            self._transaction.lost(outcome)

    def delay(self, attempts: int) -> float:
        """Return the seconds to wait before the next attempt, after ``attempts`` failed ones."""
        options = self._options
        return backoff_delay(attempts, options.retry_backoff, options.retry_backoff_max)


def _name(batch: Batch) -> str:
    topic, partition = batch.partition
    return f"{topic}-{partition}"
