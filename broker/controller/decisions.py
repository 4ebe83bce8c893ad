"""The decisions that users ask for, written together: all that wait share transactions.

Requests put their items here, and each item succeeds or fails alone. One turn takes everything that
waits, plans it from the metadata cache, and writes it in as few transactions as the store allows;
the next turn begins when the cache has what this one wrote. So a request with many items costs a
few writes, and so do many requests that come while the turn before them is written. Two items about
the same thing never share a turn: the second is planned from what the first one left.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from qbus.errors import ApiError, ErrorCode
from qbus.metadata import (
    Create,
    MetadataStore,
    NodeError,
    Op,
    Set,
    StoreError,
    StoreUnavailable,
    TransactionTooLarge,
)
from qbus.metadata.feed import decide
from qbus.metadata.znodes import ChangeNode

from ..metadata.cache import MetadataCache

MAX_BYTES = 512 * 1024  # of a transaction; ZooKeeper takes 1 MiB
_OVERHEAD = 64  # bytes that an operation takes beside its path and its data
_AT_ONCE = 4  # transactions under way
_PLANNED_AT_ONCE = 50  # planning keeps the event loop busy: other tasks run after so many
_ATTEMPTS = 5
_CONFLICTS = 8  # in one batch, before it is cut in halves: each sends the rest of it again

_log = logging.getLogger(__name__)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Decision(NamedTuple, Generic[T_co]):
    """The operations to write, if any, the change to announce, and the outcome."""

    outcome: T_co
    ops: Sequence[Op]
    change: ChangeNode


Planned = Decision[T] | Awaitable[Decision[T]]

Plan = Callable[[int], Planned[T]]
"""Decides from current metadata, or reads what it needs first; given how often another write came
first.
"""


@dataclass(slots=True, eq=False)
class _Item:
    """An item of a request: what it is about, and who waits for its outcome."""

    about: Hashable
    plan: Plan[Any]
    is_dry: bool
    done: asyncio.Future[Any]
    decision: Decision[Any] | None = None
    sequence: int = -1
    size: int = 0

    def take(self, decision: Decision[Any]) -> None:
        """Keep what was decided, until it is written; answer if there is nothing to write."""
        self.decision = decision
        self.size = sum(map(_size, decision.ops)) + _announced_size(decision.change)
        if self.is_dry or self.writes_nothing:
            self.answer()

    def concerns(self, path: str) -> bool:
        """Whether what was decided has an operation on ``path``."""
        ops = () if self.decision is None else self.decision.ops
        return any(operation.path == path for operation in ops)

    @property
    def writes_nothing(self) -> bool:
        """Whether it is decided that all is as it should be."""
        return self.decision is not None and not self.decision.ops

    def refuse(self, error: Exception) -> None:
        """Answer with an error."""
        if not self.done.done():
            self.done.set_exception(error)

    def fail(self, error: Exception) -> None:
        """Answer with what planning raised."""
        if isinstance(error, StoreError):
            error = _refusal(error)
        elif not isinstance(error, ApiError):  # a defect is told to whom it concerns
            _log.error("the decision about %s failed", self.about, exc_info=error)
        self.refuse(error.with_traceback(None))  # whose frames hold the item

    def answer(self) -> None:
        """Answer with what was decided."""
        if self.decision is not None and not self.done.done():
            self.done.set_result(self.decision.outcome)


class DecisionQueue:
    """Writes decisions in turns, for one broker.

    Besides the errors of plans, items fail with POLICY_VIOLATION (too large for one transaction),
    UNKNOWN_SERVER_ERROR (the store refuses it for another reason), REQUEST_TIMED_OUT (the outcome
    is unknown) and NOT_CONTROLLER (other writes kept coming first).
    """

    def __init__(self, store: MetadataStore, metadata: MetadataCache) -> None:
        self._store = store
        self._metadata = metadata
        self._waiting: list[_Item] = []
        self._turns: asyncio.Task[None] | None = None
        self._writes = asyncio.Semaphore(_AT_ONCE)

    def put(self, about: Hashable, plan: Plan[T], *, dry: bool = False) -> asyncio.Future[T]:
        """Decide about something and write it; ``dry`` decides without writing.

        The future has the outcome, or an ApiError: of the plan, or as above.
        """
        item = _Item(about, plan, dry, asyncio.get_running_loop().create_future())
        self._waiting.append(item)
        if self._turns is None:
            self._turns = asyncio.create_task(self._take_turns())
        return item.done

    async def _take_turns(self) -> None:
        """Decide until nobody waits."""
        try:
            while self._waiting:
                turn = self._next_turn()
                try:
                    await self._decide(turn)
                except Exception as error:  # noqa: BLE001 - a defect is told to those who asked
                    for item in turn:
                        item.refuse(error)
        finally:
            self._turns = None

    def _next_turn(self) -> list[_Item]:
        """Take what waits, of each thing the first item."""
        seen: set[Hashable] = set()
        turn: list[_Item] = []
        rest: list[_Item] = []
        for item in self._waiting:
            (rest if item.about in seen else turn).append(item)
            seen.add(item.about)
        self._waiting = rest
        return turn

    async def _decide(self, turn: Sequence[_Item]) -> None:
        left = turn
        for attempt in range(_ATTEMPTS):
            left = await self._attempt(left, attempt)
            if not left:
                break
            try:
                await self._metadata.catch_up()
            except StoreError as error:
                _refuse(left, _unknown(error))
        _refuse(left, ApiError(ErrorCode.NOT_CONTROLLER, "other writes kept coming first"))
        written = [item for item in turn if item.sequence >= 0]
        if written:
            try:
                await self._metadata.applied(max(item.sequence for item in written))
            except StoreError as error:
                _refuse(written, _unknown(error))
        for item in written:
            item.answer()

    async def _attempt(self, items: Sequence[_Item], attempt: int) -> list[_Item]:
        """Plan and write; return those before which another write came."""
        try:
            fence = self._metadata.fence()  # before planning: what is planned is no older
        except ApiError as error:
            _refuse(items, error)
            return []
        writes: list[asyncio.Task[list[_Item]]] = []
        batch: list[_Item] = []
        size = 0
        try:
            for start in range(0, len(items), _PLANNED_AT_ONCE):
                some = items[start : start + _PLANNED_AT_ONCE]
                reading = [later for item in some if (later := self._plan(item, attempt))]
                await (asyncio.gather(*reading) if reading else asyncio.sleep(0))
                for item in some:
                    if item.done.done():
                        continue
                    if batch and size + item.size > MAX_BYTES:
                        writes.append(asyncio.create_task(self._write(batch, fence)))
                        batch, size = [], 0
                    batch.append(item)
                    size += item.size
            if batch:
                writes.append(asyncio.create_task(self._write(batch, fence)))
        finally:  # what is under way is part of this turn
            overtaken = await asyncio.gather(*writes)
        return [item for some in overtaken for item in some]

    def _plan(self, item: _Item, attempt: int) -> Coroutine[Any, Any, None] | None:
        """Decide on one item; what to await where something has to be read before."""
        if item.done.done():  # whoever asked is gone
            return None
        try:
            planned = item.plan(attempt)
        except Exception as error:  # noqa: BLE001 - the outcome of the plan
            item.fail(error)
            return None
        if isinstance(planned, Decision):
            item.take(planned)
            return None
        return self._plan_later(item, planned)

    async def _plan_later(self, item: _Item, planned: Awaitable[Decision[Any]]) -> None:
        try:
            item.take(await planned)
        except Exception as error:  # noqa: BLE001 - the outcome of the plan
            item.fail(error)

    async def _write(self, batch: Sequence[_Item], fence: Op, conflicts: int = 0) -> list[_Item]:
        """Write decisions together; return those before which another write came.

        A transaction does not apply as a whole. It says where, so that the item at fault is known
        and the others are written again. They are cut in halves when it is not known, or after
        many such ``conflicts``.
        """
        overtaken: list[_Item] = []
        try:
            await self._transact(batch, fence)
        except NodeError as error:
            if len(batch) == 1 or error.path == fence.path:
                return list(batch)
            overtaken = [item for item in batch if item.concerns(error.path)]
        except StoreUnavailable as error:
            _refuse(batch, _refusal(error))
            return []
        except StoreError as error:  # nothing was written
            if len(batch) == 1:
                _refuse(batch, _refusal(error))
                return []
        except Exception as error:  # noqa: BLE001 - the other batches are part of the turn
            _log.exception("writing %d decisions failed", len(batch))
            _refuse(batch, error)
            return []
        else:
            return []
        rest = [item for item in batch if item not in overtaken]
        middle = 0 if overtaken and conflicts < _CONFLICTS else len(rest) // 2
        parts = filter(None, (rest[:middle], rest[middle:]))
        again = await asyncio.gather(*(self._write(part, fence, conflicts + 1) for part in parts))
        return [*overtaken, *(item for some in again for item in some)]

    async def _transact(self, batch: Sequence[_Item], fence: Op) -> None:
        decisions = [item.decision for item in batch if item.decision is not None]
        ops = [operation for decision in decisions for operation in decision.ops]
        change = ChangeNode.merged(decision.change for decision in decisions)
        async with self._writes:
            sequence = await decide(self._store, [fence], ops, change)
        for item in batch:
            item.sequence = sequence


def _size(operation: Op) -> int:
    """About how many bytes an operation takes, with the parents that a creation brings along."""
    path = len(operation.path) + _OVERHEAD
    if isinstance(operation, Create):
        return 2 * path + len(operation.data)
    return path + len(operation.data) if isinstance(operation, Set) else path


def _announced_size(change: ChangeNode) -> int:
    """About how many bytes the feed's entry takes for a change, beside what ``_OVERHEAD`` has."""
    size = 0
    for name, detail in change.details.items():
        size += len(name) + 2 * _OVERHEAD
        size += sum(4 + 6 * len(replicas) for replicas in detail.added)
        size += sum(6 + len(key) + len(value) for key, value in detail.config.items())
    return size


def _refuse(items: Iterable[_Item], error: Exception) -> None:
    for item in items:
        item.refuse(error)


def _refusal(error: StoreError) -> ApiError:
    if isinstance(error, StoreUnavailable):
        return _unknown(error)
    if isinstance(error, TransactionTooLarge):
        return ApiError(ErrorCode.POLICY_VIOLATION, f"too large for one transaction: {error}")
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the metadata store refuses it: {error}")


def _unknown(error: StoreError) -> ApiError:
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, f"the outcome is unknown: {error}")
