"""Replicas that move between the data directories of this broker (KIP-113).

Each move copies in a thread while the partition is used, as many at a time as there are
directories; the others wait. See :mod:`qbus.broker.log.moving` for what a crash leaves.
"""

import asyncio
import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Protocol

from qbus.clock import Clock
from qbus.config.topic import FOREVER
from qbus.errors import ApiError, ErrorCode
from qbus.service.token_bucket import TokenBucket

from ..log import DataDirectory, LogManager, TopicPartition
from ..log.moving import LogMove, MoveEndedError
from .events import PartitionListener
from .partition import Partition
from .registry import PartitionRegistry

_log = logging.getLogger(__name__)

_PATIENCE_S = 1.0
_LONGEST_WAIT_S = 1.0
_MB = 1_000_000


class MoveConfig(Protocol):
    """The part of the broker's configuration that moves read."""

    @property
    def replica_alter_log_dirs_io_max_bytes_per_second(self) -> int:
        """How much all moves together copy in a second."""


class _Pace:
    """Makes the threads that copy wait for their share of the rate."""

    def __init__(self, config: MoveConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._bucket = TokenBucket(clock.monotonic())
        self._lock = threading.Lock()

    def wait_for(self, move: LogMove, count: int) -> None:
        """Return when ``count`` bytes more may be copied, or the move has ended."""
        with self._lock:
            self._bucket.spend(count)
        while (seconds := self._wait()) and not move.has_ended:
            time.sleep(min(seconds, _LONGEST_WAIT_S))

    def _wait(self) -> float:
        rate = self._config.replica_alter_log_dirs_io_max_bytes_per_second
        if rate >= FOREVER:
            return 0.0
        with self._lock:
            return self._bucket.wait(rate, self._clock.monotonic())


class LogDirMoves(PartitionListener[Partition]):
    """The moves that are under way."""

    def __init__(
        self, registry: PartitionRegistry, logs: LogManager, config: MoveConfig, clock: Clock
    ) -> None:
        self._registry = registry
        self._logs = logs
        self._clock = clock
        self._pace = _Pace(config, clock)
        self._threads = ThreadPoolExecutor(len(logs.directories), "qbus-move")
        self._moves: dict[TopicPartition, tuple[LogMove, asyncio.Task[None]]] = {}
        self._copying: dict[LogMove, Future[None]] = {}  # in a thread, or waiting for one
        self._finishing: set[TopicPartition] = set()
        self._asking = asyncio.Lock()
        self._is_stopping = False

    async def resume(self) -> None:
        """Begin the moves again that the end of the broker cut off."""
        for directory in self._logs.directories:
            for key in directory.cut_moves:
                if self._registry.get_partition(*key) is None:
                    why = self._registry.why_missing(*key).name
                    _log.warning("%s does not move on to %s: %s", key, directory.path, why)
                    continue
                _log.info("%s: its move to %s was cut off; it begins anew", key, directory.path)
                try:
                    await self.move(key, directory.path)
                except ApiError as error:
                    _log.error("%s does not move to %s: %s", key, directory.path, error)
            directory.cut_moves.clear()

    async def move(self, key: TopicPartition, path: str) -> None:
        """Have a partition's replica in the data directory ``path`` before long.

        Where it is there already, a move to elsewhere ends. A partition that this broker does not
        hold yet will be created there.

        Raises:
            ApiError: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR, or why the partition is not here.
        """
        async with self._asking:  # two who ask at once must not both begin
            await self._move(key, self._logs.directory_at(path))

    async def _move(self, key: TopicPartition, target: DataDirectory) -> None:
        if self._is_stopping:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is shutting down")
        if key in self._moves:
            move, task = self._moves[key]
            if move.target == target.path and not move.has_ended:
                return
            self._cancel(move)
            await asyncio.wait([task])
        partition = self._registry.get_partition(*key)
        if partition is None:
            code = self._registry.why_missing(*key)
            if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._logs.prefer(*key, target)
            raise ApiError(code)
        if partition.log.directory.rpartition("/")[0] == target.path:
            return
        if not partition.log.is_usable:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{key} cannot be read")
        move = await asyncio.to_thread(self._logs.begin_move, partition.log, target)
        _log.info("moving %s: %.1f MB", move, partition.log.size / _MB)
        task = asyncio.create_task(self._run(key, move), name=f"move {key}")
        self._moves[key] = move, task

    def closed(self, partition: Partition) -> None:
        """End the move of a partition that is not held here any more."""
        key = TopicPartition(partition.topic, partition.index)
        if key in self._moves and key not in self._finishing:
            self._cancel(self._moves[key][0])

    async def stop(self) -> None:
        """Let go of all moves: the next start begins them anew."""
        self._is_stopping = True
        async with self._asking:  # a move that is about to begin
            for move, _ in self._moves.values():
                self._cancel(move)
            if self._moves:
                await asyncio.wait([task for _, task in self._moves.values()])
        await asyncio.to_thread(self._threads.shutdown)

    def _cancel(self, move: LogMove) -> None:
        """End a move soon; one that waits for a thread at once."""
        move.cancel()
        if move in self._copying:
            self._copying[move].cancel()

    async def _run(self, key: TopicPartition, move: LogMove) -> None:
        begun = self._clock.monotonic()
        try:
            while not (move.is_done or move.problem or move.has_ended):
                await self._copy(move)
                if not move.is_outdated:
                    await self._finish(key, move)
        except MoveEndedError:
            pass
        except ApiError as error:
            move.problem = str(error)
        except Exception as error:  # noqa: BLE001 - said below; the broker goes on
            move.problem = repr(error)
            _log.exception("moving %s failed", move)
        finally:
            self._report(move, self._clock.monotonic() - begun)
            if not (self._is_stopping and move.has_ended):
                await asyncio.to_thread(self._logs.end_move, move)
            del self._moves[key]

    async def _finish(self, key: TopicPartition, move: LogMove) -> None:
        partition = self._registry.get_partition(*key)
        if partition is None or partition.log is not move.log:
            move.cancel()  # it is not held here any more
            return
        self._finishing.add(key)
        try:
            place = partial(self._logs.finish_move, move)
            if await self._registry.reopen(partition, place, _PATIENCE_S):
                return
        finally:
            self._finishing.discard(key)
        if self._registry.get_partition(*key) is partition:
            _log.warning(
                "moving %s: its last step waits until what was appended is acknowledged", move
            )
            await asyncio.sleep(_PATIENCE_S)

    def _report(self, move: LogMove, seconds: float) -> None:
        if move.is_done:
            _log.info("moved %s: %.1f MB in %.1f s", move, move.copied_bytes / _MB, seconds)
        elif move.problem:
            _log.error("moving %s failed, it stays where it is: %s", move, move.problem)
        elif self._is_stopping:
            _log.info("moving %s is cut off; the next start begins it anew", move)
        else:
            _log.info("moving %s is cancelled", move)

    async def _copy(self, move: LogMove) -> None:
        copying = self._threads.submit(move.copy, partial(self._pace.wait_for, move))
        self._copying[move] = copying
        try:
            await asyncio.wrap_future(copying)
        except asyncio.CancelledError:
            if move.has_ended:  # before a thread was free
                raise MoveEndedError(str(move)) from None
            raise
        finally:
            del self._copying[move]
