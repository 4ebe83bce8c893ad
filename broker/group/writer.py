"""Writes groups to the store, coalescing many writes into few transactions.

All writes that become pending while transactions are in flight go into the next transaction. (A
store takes 1,200 sets a second one at a time, and 50,000 in transactions of hundreds.) Two
transactions of different groups are in flight, so that the store has work while the next one is
prepared.

A transaction fails as a whole. When a version check failed or it was too large, each group is tried
alone, so that only the group fails that another broker has written, or that is too large by itself.
After any other failure what is stored is unknown, and all groups of the transaction are unloaded,
to be loaded again. The store works in order, so that load sees the outcome of the write.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from qbus.errors import ErrorCode
from qbus.metadata import MetadataStore, NodeError, Op, TransactionTooLarge

from .group_metadata import GroupMetadata
from .timers import Timers
from .znodes import MAX_OPS

_log = logging.getLogger(__name__)

# Errors of one group that fail all groups of its transaction.
_ERRORS_OF_ONE_GROUP = {ErrorCode.NOT_COORDINATOR, ErrorCode.INVALID_COMMIT_OFFSET_SIZE}

_MAX_IN_FLIGHT: Final = 2  # transactions in flight

Unload = Callable[[GroupMetadata, ErrorCode], None]


class GroupWriter:
    """The only writer of groups. It calls ``unload`` for groups whose write failed."""

    def __init__(
        self,
        store: MetadataStore,
        timers: Timers,
        now: Callable[[], float],
        timeout_s: float,
        unload: Unload,
        *,
        is_lazy: bool = False,
    ) -> None:
        """``is_lazy``: offsets need not be on stable storage when they are acknowledged."""
        self._store = store
        self._is_lazy = is_lazy
        self._timers = timers
        self._now = now
        self._timeout_s = timeout_s
        self._unload = unload
        self._waiting: dict[str, GroupMetadata] = {}
        self._in_flight: dict[GroupMetadata, bool] = {}  # whether another write is pending
        self._tasks: set[asyncio.Task[None]] = set()
        self._stuck: set[asyncio.Task[None]] = set()  # tasks whose transaction timed out

    def write(self, metadata: GroupMetadata) -> None:
        """Write the pending changes of a group soon; those of an unloaded one are refused."""
        if metadata.is_abandoned:
            metadata.refuse_pending()
        elif self._stuck:
            self._unload(metadata, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif metadata in self._in_flight:
            self._in_flight[metadata] = True
        else:
            self._waiting[metadata.group_id] = metadata
            if len(self._tasks) < _MAX_IN_FLIGHT:
                self._tasks.add(asyncio.create_task(self._run(), name="group writer"))

    async def drain(self) -> None:
        """Wait until everything pending is stored, for ``timeout_s`` at most."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._timeout_s)

    async def _run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            while self._waiting:
                await self._write_some(task)
        finally:
            self._tasks.discard(task)

    async def _write_some(self, task: asyncio.Task[None]) -> None:
        batch = self._next_batch()
        groups = [metadata for metadata, _ in batch]
        time_out = partial(self._time_out, task, groups)
        alarm = self._timers.call_at(self._now() + self._timeout_s, time_out)
        self._in_flight.update(dict.fromkeys(groups, False))
        try:
            await self._write_batch(batch)
        finally:
            alarm.cancel()
            self._stuck.discard(task)
            for metadata in groups:
                if self._in_flight.pop(metadata) and not metadata.is_abandoned:
                    self._waiting[metadata.group_id] = metadata

    def _next_batch(self) -> list[tuple[GroupMetadata, list[list[Op]]]]:
        """Take groups with their transactions, enough to fill one transaction."""
        batch = []
        size = 0
        while self._waiting and size < MAX_OPS:
            metadata = self._waiting.pop(next(iter(self._waiting)))
            if not metadata.is_abandoned:
                plan = metadata.begin_write()
                batch.append((metadata, plan))
                size += sum(len(ops) for ops in plan)
        return batch

    async def _write_batch(self, batch: list[tuple[GroupMetadata, list[list[Op]]]]) -> None:
        together = [(metadata, plan) for metadata, plan in batch if len(plan) <= 1]
        apart = [(metadata, plan) for metadata, plan in batch if len(plan) > 1]
        ops = [op for _, plan in together for transaction in plan for op in transaction]
        error = await self._transact([ops], [metadata for metadata, _ in together])
        if error not in _ERRORS_OF_ONE_GROUP or len(together) == 1:
            for metadata, _ in together:
                self._finish(metadata, error)
        else:
            apart = together + apart
        await asyncio.gather(*(self._write_alone(metadata, plan) for metadata, plan in apart))

    async def _write_alone(self, metadata: GroupMetadata, plan: list[list[Op]]) -> None:
        self._finish(metadata, await self._transact(plan, [metadata]))

    async def _transact(
        self, transactions: list[list[Op]], groups: list[GroupMetadata]
    ) -> ErrorCode:
        is_lazy = self._is_lazy and not any(metadata.is_writing_group for metadata in groups)
        transact = self._store.lazy_transaction if is_lazy else self._store.transaction
        try:
            for ops in transactions:
                if ops:
                    await transact(ops)
        except NodeError as error:
            _log.warning("another broker has written groups: %r", error)
            return ErrorCode.NOT_COORDINATOR
        except TransactionTooLarge as error:
            _log.warning("groups are too large to be stored: %s", error)
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        except Exception as error:  # noqa: BLE001 - after any error, what is stored is unknown
            _log.warning("cannot store groups: %r", error)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    def _finish(self, metadata: GroupMetadata, error: ErrorCode) -> None:
        if error:
            self._unload(metadata, error)
        elif not metadata.is_abandoned:
            metadata.commit_write()

    def _time_out(self, task: asyncio.Task[None], groups: Iterable[GroupMetadata]) -> None:
        """Unload all groups: the store does not answer, but may still perform the write."""
        self._stuck.add(task)
        waiting, self._waiting = self._waiting, {}
        for metadata in [*groups, *waiting.values()]:
            self._unload(metadata, ErrorCode.COORDINATOR_NOT_AVAILABLE)
