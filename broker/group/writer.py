"""Writes what groups want stored, as few transactions as keep up.

All that gathers while transactions are in flight goes into the next one (one at a time a store
takes 1,200 sets a second, in transactions of hundreds 50,000). Two are in flight, of different
groups, so that the store has work while the next is put together.

A transaction fails as a whole: when a version check did it, or it was too large, each group is
tried alone, so that only the one fails that someone else has written, or that is too large by
itself. After any other failure nobody knows what is stored, and all its groups are given up for
their owner to load again. (A store does what it is asked in order, so what is read then is what
came of the write.)
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from qbus.errors import ErrorCode
from qbus.metadata import MetadataStore, NodeError, Op, TransactionTooLarge

from .hosted import HostedGroup
from .stored import MAX_OPS
from .timers import Timers

_log = logging.getLogger(__name__)

# What one group may have brought upon all that are written with it.
_OF_ONE = {ErrorCode.NOT_COORDINATOR, ErrorCode.INVALID_COMMIT_OFFSET_SIZE}

_LANES: Final = 2  # transactions in flight

GiveUp = Callable[[HostedGroup, ErrorCode], None]


class Writer:
    """The only one who writes groups. ``give_up`` hears of groups whose writing failed."""

    def __init__(
        self,
        store: MetadataStore,
        timers: Timers,
        now: Callable[[], float],
        patience: float,
        give_up: GiveUp,
    ) -> None:
        self._store = store
        self._timers = timers
        self._now = now
        self._patience = patience
        self._give_up = give_up
        self._waiting: dict[str, HostedGroup] = {}
        self._flying: dict[HostedGroup, bool] = {}  # whether more has gathered for it meanwhile
        self._lanes: set[asyncio.Task[None]] = set()
        self._stuck: set[asyncio.Task[None]] = set()  # those of the lanes

    def write(self, hosted: HostedGroup) -> None:
        """Have what ``hosted`` gathered stored soon."""
        if self._stuck:
            self._give_up(hosted, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif hosted in self._flying:
            self._flying[hosted] = True
        else:
            self._waiting[hosted.group_id] = hosted
            if len(self._lanes) < _LANES:
                self._lanes.add(asyncio.create_task(self._run(), name="group writer"))

    async def drain(self) -> None:
        """Wait until all that was handed in is stored; no longer than patience allows."""
        if self._lanes:
            await asyncio.wait(self._lanes, timeout=self._patience)

    async def _run(self) -> None:
        lane = asyncio.current_task()
        assert lane is not None
        try:
            while self._waiting:
                await self._write_some(lane)
        finally:
            self._lanes.discard(lane)

    async def _write_some(self, lane: asyncio.Task[None]) -> None:
        batch = self._take_off()
        groups = [hosted for hosted, _ in batch]
        give_up = partial(self._lose_patience, lane, groups)
        alarm = self._timers.call_at(self._now() + self._patience, give_up)
        self._flying.update(dict.fromkeys(groups, False))
        try:
            await self._write_batch(batch)
        finally:
            alarm.cancel()
            self._stuck.discard(lane)
            for hosted in groups:
                if self._flying.pop(hosted) and not hosted.is_abandoned:
                    self._waiting[hosted.group_id] = hosted

    def _take_off(self) -> list[tuple[HostedGroup, list[list[Op]]]]:
        """Groups with the transactions that they need: enough to fill one."""
        batch = []
        size = 0
        while self._waiting and size < MAX_OPS:
            hosted = self._waiting.pop(next(iter(self._waiting)))
            if not hosted.is_abandoned:
                plan = hosted.take_off()
                batch.append((hosted, plan))
                size += sum(len(ops) for ops in plan)
        return batch

    async def _write_batch(self, batch: list[tuple[HostedGroup, list[list[Op]]]]) -> None:
        together = [(hosted, plan) for hosted, plan in batch if len(plan) <= 1]
        apart = [(hosted, plan) for hosted, plan in batch if len(plan) > 1]
        ops = [op for _, plan in together for transaction in plan for op in transaction]
        error = await self._transact([ops])
        if error not in _OF_ONE or len(together) == 1:
            for hosted, _ in together:
                self._finish(hosted, error)
        else:
            apart = together + apart
        for hosted, plan in apart:
            self._finish(hosted, await self._transact(plan))

    async def _transact(self, transactions: list[list[Op]]) -> ErrorCode:
        try:
            for ops in transactions:
                if ops:
                    await self._store.transaction(ops)
        except NodeError as error:
            _log.warning("groups are not stored as they were left: %r", error)
            return ErrorCode.NOT_COORDINATOR
        except TransactionTooLarge as error:
            _log.warning("groups are too large to be stored: %s", error)
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        except Exception as error:  # noqa: BLE001 - whatever it was, it is not known to be stored
            _log.warning("cannot store groups: %r", error)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    def _finish(self, hosted: HostedGroup, error: ErrorCode) -> None:
        if error:
            self._give_up(hosted, error)
        elif not hosted.is_abandoned:
            hosted.land()

    def _lose_patience(self, lane: asyncio.Task[None], groups: Iterable[HostedGroup]) -> None:
        """The store does not answer. It may yet do what it was asked, but nobody waits for it."""
        self._stuck.add(lane)
        waiting, self._waiting = self._waiting, {}
        for hosted in [*groups, *waiting.values()]:
            self._give_up(hosted, ErrorCode.COORDINATOR_NOT_AVAILABLE)
