"""Tells the partitions and groups of a transaction how it has ended, until all of them know.

All that is to be told to a broker goes into the next request to it, and few requests are under way
to each. What cannot be told now, because a partition has no leader or its broker does not answer,
is tried again until it can be, or until another broker coordinates the transactional id, which
begins anew with what the log says.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from qbus.errors import ErrorCode, QbusError

from ..internal_logs import LogMetadata, Outcome, Shard
from .machine import EPOCH_PER_TRANSACTION, TransactionMachine
from .state import Place, Transaction

_log = logging.getLogger(__name__)

_REQUESTS: Final = 2  # under way to one broker
_LONGEST_S: Final = 2.0
_GONE_AFTER: Final = 6  # attempts, in 2.5 s: this broker may hear of a new topic later than others
_COMPLAIN_AFTER: Final = 5  # attempts
_COMPLAIN_EVERY: Final = 30  # attempts, later

# The partition has a marker of this transaction, or of a later one; or it is a mirror, which takes
# no producer's records, and markers from its source alone.
_DONE: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.POLICY_VIOLATION}
)


class Marker(NamedTuple):
    """How a transaction has ended, for some of its partitions.

    ``coordinator_epoch`` is the leader epoch of the coordinator's partition: partitions refuse what
    a former coordinator says.
    """

    producer_id: int
    epoch: int
    coordinator_epoch: int
    committed: bool
    transaction_version: int
    partitions: tuple[Place, ...]


Told = Mapping[tuple[int, Place], ErrorCode]
"""What partitions answered, by producer id and partition."""


class _Noted(Protocol):
    """Takes what a broker's partitions answered; ``problem``: why some did not."""

    def __call__(self, told: Told, problem: str = "", /) -> None:
        """Take it."""


class MarkerTransport(Protocol):
    """The way to the brokers that have to be told."""

    async def write(self, broker: int, markers: Sequence[Marker]) -> Told:
        """Have a broker append markers; what its partitions answered when they were acknowledged.

        Raises QbusError: it cannot be asked.
        """

    def write_own(
        self, broker: int, markers: Sequence[Marker], told: Callable[[Told], object]
    ) -> bool:
        """The same without a task, if ``broker`` is this one; false: it is another.

        ``told`` is called once with the answers, before this returns or later.
        """

    async def end_group(self, group: str, producer_id: int, epoch: int, *, committed: bool) -> None:
        """Have a group's coordinator store or drop the offsets of a transaction.

        ``epoch`` is the one that the transaction had. Raises QbusError: it cannot be done now.
        """


class _Ending:
    """A transaction of which some partitions or groups have not been told how it ended."""

    __slots__ = ("attempts", "finished", "groups", "is_over", "partitions", "shard", "transaction")

    def __init__(self, shard: Shard[TransactionMachine], transaction: Transaction) -> None:
        self.shard = shard
        self.transaction = transaction
        self.partitions = set(transaction.partitions)
        self.groups = set(transaction.groups)
        self.attempts = 0  # that failed
        self.is_over = False
        self.finished = asyncio.Event()

    @property
    def is_told(self) -> bool:
        """Whether all of them know."""
        return not self.partitions and not self.groups

    def marker(self, partitions: Iterable[Place]) -> Marker:
        """What some of its partitions are told."""
        transaction = self.transaction
        return Marker(
            transaction.producer_id,
            transaction.epoch,
            self.shard.epoch,
            transaction.is_committed,
            transaction.client_version,
            tuple(sorted(partitions)),
        )


class _Line:
    """What one broker is to be told next."""

    __slots__ = ("requests", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[_Ending, set[Place]] = {}
        self.requests = 0


class MarkerSender:
    """Tells partitions of the transactions that end, and the log when all of them know."""

    def __init__(self, node_metadata: LogMetadata, transport: MarkerTransport) -> None:
        self._metadata = node_metadata
        self._transport = transport
        self._endings: dict[str, _Ending] = {}
        self._lines: dict[int, _Line] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        # For metrics
        self.written = 0
        self.retries = 0

    def __len__(self) -> int:
        return len(self._endings)

    def begin(self, shard: Shard[TransactionMachine], transaction: Transaction) -> None:
        """Tell everybody how ``transaction`` ended; the shard's log says so already."""
        name = transaction.transactional_id
        known = self._endings.get(name)
        if known is not None:
            if known.shard is shard and known.transaction == transaction:
                return
            self._drop(known)
        ending = self._endings[name] = _Ending(shard, transaction)
        if ending.is_told:
            self._finish(ending)
            return
        self._route(ending, transaction.partitions)
        for group in transaction.groups:
            self._start(self._tell_group(ending, group))

    async def wait(self, transactional_id: str, timeout_s: float) -> bool:
        """Wait until the end of a transaction is known everywhere; false: not in time."""
        ending = self._endings.get(transactional_id)
        if ending is None:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await ending.finished.wait()
        except TimeoutError:
            return False
        return True

    def left(self, transaction: Transaction) -> frozenset[Place] | None:
        """The partitions that do not know yet how a transaction ended; None: all of them know."""
        ending = self._endings.get(transaction.transactional_id)
        return None if ending is None else frozenset(ending.partitions)

    def forget(self, shard: Shard[TransactionMachine]) -> None:
        """Another broker coordinates the transactions of this shard, or it is loaded again."""
        for ending in [one for one in self._endings.values() if one.shard is shard]:
            self._drop(ending)

    async def stop(self) -> None:
        """Tell nobody anything any more."""
        for ending in list(self._endings.values()):
            self._drop(ending)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # Partitions

    def _route(self, ending: _Ending, partitions: Iterable[Place]) -> None:
        """Line partitions up for the brokers that lead them."""
        if ending.is_over:
            return
        later: set[Place] = set()
        problem = "it has no leader"
        for place in partitions:
            topic = self._metadata.topics.get(place[0])
            if topic is None or place[1] >= len(topic.partitions):
                if ending.attempts < _GONE_AFTER:
                    later.add(place)
                    problem = "it is not known here"
                    continue
                _log.info(
                    "%s-%d does not exist any more: transaction %r ends without it",
                    *place,
                    ending.transaction.transactional_id,
                )
                ending.partitions.discard(place)
                continue
            leader = topic.partitions[place[1]].leader
            if leader in self._metadata.brokers:
                line = self._lines.setdefault(leader, _Line())
                if not line.waiting and line.requests < _REQUESTS:
                    self._loop.call_soon(self._send, leader, line)
                line.waiting.setdefault(ending, set()).add(place)
            else:
                later.add(place)
        if later:
            self._try_later(ending, later, problem)
        if ending.is_told:
            self._finish(ending)

    def _send(self, broker: int, line: _Line) -> None:
        if not line.waiting or line.requests >= _REQUESTS:
            return
        waiting, line.waiting = line.waiting, {}
        wanted = {ending: places for ending, places in waiting.items() if not ending.is_over}
        if not wanted:
            return
        markers = [ending.marker(places) for ending, places in wanted.items()]
        noted = partial(self._note_all, wanted)
        try:
            # It takes no place of the few requests: else some of this broker's partitions that
            # nothing is acknowledged of would hold up all transactions.
            if self._transport.write_own(broker, markers, noted):
                return
        except Exception as error:  # noqa: BLE001 - whatever it is, the partitions are to be told
            _log_unexpected(error)
            noted({}, f"broker {broker}: {error!r}")
            return
        line.requests += 1
        self._start(self._tell(broker, line, markers, noted))

    async def _tell(
        self, broker: int, line: _Line, markers: Sequence[Marker], noted: "_Noted"
    ) -> None:
        told: Told = {}
        problem = ""
        try:
            told = await self._transport.write(broker, markers)
        except Exception as error:  # noqa: BLE001 - likewise
            problem = f"broker {broker}: {error!r}"
            _log_unexpected(error)
        finally:
            line.requests -= 1
            if line.waiting:
                self._send(broker, line)
        noted(told, problem)

    def _note_all(
        self, wanted: Mapping[_Ending, set[Place]], told: Told, problem: str = ""
    ) -> None:
        """What became of the markers of some transactions on one broker."""
        for ending, places in wanted.items():
            self._note(ending, places, told, problem)

    def _note(self, ending: _Ending, places: set[Place], told: Told, problem: str) -> None:
        """What became of the markers of one transaction on one broker."""
        if ending.is_over:
            return
        again: set[Place] = set()
        for place in places:
            code = told.get((ending.transaction.producer_id, place))
            if code in _DONE:
                ending.partitions.discard(place)
                self.written += 1
            elif code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                _log.warning(
                    "%s-%d knows a later coordinator of transaction %r than this one, which leaves"
                    " the transaction's end to it",
                    *place,
                    ending.transaction.transactional_id,
                )
                self._drop(ending)
                return
            else:
                again.add(place)
                problem = problem or ("it did not answer" if code is None else code.name)
        if again:
            self._try_later(ending, again, problem)
        if ending.is_told:
            self._finish(ending)

    def _try_later(self, ending: _Ending, places: set[Place], problem: str) -> None:
        self.retries += len(places)
        ending.attempts += 1
        if _is_worth_a_word(ending.attempts):
            topic, index = min(places)
            _log.warning(
                "transaction %r is %s, and %d of its partitions cannot be told, such as %s-%d: %s;"
                " trying again (attempt %d)",
                ending.transaction.transactional_id,
                ending.transaction.state.label,
                len(places),
                topic,
                index,
                problem,
                ending.attempts,
            )
        self._loop.call_later(_pause_s(ending.attempts), self._route, ending, places)

    # Groups

    async def _tell_group(self, ending: _Ending, group: str) -> None:
        transaction = ending.transaction
        epoch = transaction.epoch
        if transaction.client_version >= EPOCH_PER_TRANSACTION:
            epoch -= 1  # the one that it has by now is the next transaction's
        attempt = 0
        while not ending.is_over:
            try:
                await self._transport.end_group(
                    group,
                    transaction.producer_id,
                    epoch,
                    committed=transaction.is_committed,
                )
            except Exception as error:  # noqa: BLE001 - likewise
                self.retries += 1
                attempt += 1
                _log_unexpected(error)
                if _is_worth_a_word(attempt):
                    _log.warning(
                        "transaction %r is %s, and the coordinator of group %r cannot be told: %s;"
                        " trying again (attempt %d)",
                        transaction.transactional_id,
                        transaction.state.label,
                        group,
                        error,
                        attempt,
                    )
                await asyncio.sleep(_pause_s(attempt))
                continue
            self.written += 1
            ending.groups.discard(group)
            if ending.is_told and not ending.is_over:
                self._finish(ending)
            return

    # When all know

    def _finish(self, ending: _Ending) -> None:
        """Have the log say that all know."""
        if ending.is_over:
            return
        transaction = ending.transaction
        name = transaction.transactional_id

        def complete(machine: TransactionMachine, now_ms: int) -> Outcome[bool]:
            return machine.complete(name, transaction, now_ms)

        stored = ending.shard.submit(complete)
        stored.add_done_callback(partial(self._finished, ending))
        ending.finished.set()  # whoever waits asks behind this one

    def _finished(self, ending: _Ending, stored: "asyncio.Future[bool]") -> None:
        """The log says it; or it takes no records now, as when too few replicas are in sync."""
        if stored.cancelled():
            return
        error = stored.exception()
        if ending.is_over:
            return
        if error is None:
            self._drop(ending)
            return
        ending.attempts += 1
        if _is_worth_a_word(ending.attempts):
            _log.warning(
                "transaction %r is over, but its log %s cannot say so: %s;"
                " trying again (attempt %d)",
                ending.transaction.transactional_id,
                ending.shard,
                error,
                ending.attempts,
            )
        self._loop.call_later(_pause_s(ending.attempts), self._finish, ending)

    def _drop(self, ending: _Ending) -> None:
        ending.is_over = True
        ending.finished.set()
        if self._endings.get(ending.transaction.transactional_id) is ending:
            del self._endings[ending.transaction.transactional_id]

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)  # a compiled one is no Coroutine
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("telling of transactions failed", exc_info=task.exception())


def _pause_s(attempt: int) -> float:
    return float(min(0.02 * 2 ** min(attempt, 10), _LONGEST_S))


def _is_worth_a_word(attempt: int) -> bool:
    return attempt == _COMPLAIN_AFTER or not attempt % _COMPLAIN_EVERY


def _log_unexpected(error: Exception) -> None:
    """Say where an error arose that nobody knows of; the others are expected, and told later."""
    if not isinstance(error, QbusError):
        _log.error("telling of a transaction's end failed", exc_info=error)
