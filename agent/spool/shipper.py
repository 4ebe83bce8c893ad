"""Empties one spool: batches that writers keep there are delivered in order, then removed.

Each topic and partition has one batch in flight at a time; batches of earlier writers go first. A
batch is acknowledged in the spool once the broker has it. An agent that dies in between delivers
that batch again: at most one for each queue.
"""

import asyncio
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from qbus.clients.spool import QueueName, Spool, SpoolQueue
from qbus.errors import ApiError, QbusError
from qbus.records import BatchHeader, CorruptBatch
from qbus.service.backoff import Backoff
from qbus.service.lock import DirectoryInUse, DirectoryLock

from ..quarantine import Quarantine
from ..status import SpoolStatus
from .sending import REFUSED, SpoolSender

_log = logging.getLogger(__name__)

_LOCK = "agent.lock"
_LONGEST_PAUSE_S = 10.0

Batch = tuple[BatchHeader, bytes]


class SpoolShipper:
    """Ships one spool. Run it as a task, and stop it."""

    def __init__(
        self, directory: Path, sender: SpoolSender, quarantine: Quarantine, poll_s: float
    ) -> None:
        """``poll_s``: seconds between two scans of the directory."""
        self._directory = directory
        self._spool = Spool(directory)
        self._sender = sender
        self._quarantine = quarantine
        self._poll_s = poll_s
        self._working: dict[QueueName, asyncio.Task[None]] = {}
        self._drained: dict[Path, int] = {}
        self._stopping = asyncio.Event()
        self._error: str | None = None
        self._errors: dict[QueueName, str] = {}
        self._queues = 0
        self._waiting_bytes = 0
        self._records = 0
        self._bytes = 0
        self._damaged = 0

    @property
    def status(self) -> SpoolStatus:
        """The state of the spool."""
        return SpoolStatus(
            directory=str(self._directory),
            queues=self._queues,
            waiting_bytes=self._waiting_bytes,
            delivered_records=self._records,
            delivered_bytes=self._bytes,
            damaged=self._damaged,
            error=self._error or next(iter(self._errors.values()), None),
        )

    async def run(self) -> None:
        """Deliver what is there and what is added, until :meth:`stop`."""
        lock = DirectoryLock(self._directory / _LOCK, "another agent")
        try:
            while not self._stopping.is_set():
                try:
                    if await asyncio.to_thread(self._acquired, lock):
                        await self._start_queues()
                    self._error = None
                except (OSError, DirectoryInUse) as error:
                    self._note(str(error))
                await self._pause(self._poll_s)
            await asyncio.gather(*self._working.values(), return_exceptions=True)
        finally:
            for task in self._working.values():
                task.cancel()
            await asyncio.gather(*self._working.values(), return_exceptions=True)
            lock.release()

    def stop(self) -> None:
        """Start nothing more; :meth:`run` returns once the batches in flight are delivered."""
        self._stopping.set()

    def _acquired(self, lock: DirectoryLock) -> bool:
        """Whether the spool exists; it is locked then."""
        if not self._directory.exists():
            return False
        lock.acquire()
        return True

    async def _start_queues(self) -> None:
        """Start shipping every queue that is not being shipped."""
        queues, sizes, self._damaged = await asyncio.to_thread(self._scan)
        self._queues = len(queues)
        self._drained = {path: size for path, size in self._drained.items() if path in sizes}
        self._waiting_bytes = sum(
            max(0, size - self._drained.get(path, 0)) for path, size in sizes.items()
        )
        by_name: dict[QueueName, list[SpoolQueue]] = {}
        for queue in queues:
            by_name.setdefault(queue.name, []).append(queue)
        for name, some in by_name.items():
            if name not in self._working:
                task = asyncio.create_task(self._ship(name, some))
                self._working[name] = task
                task.add_done_callback(partial(self._done, name))

    def _scan(self) -> tuple[list[SpoolQueue], dict[Path, int], int]:
        self._spool.clean()
        queues = self._spool.queues()
        return queues, {queue.directory: queue.size() for queue in queues}, len(self._quarantine)

    async def _ship(self, name: QueueName, queues: list[SpoolQueue]) -> None:
        """Empty the queues of one partition, one after the other."""
        try:
            for queue in queues:
                if self._stopping.is_set():
                    return
                await self._drain(queue)
            self._errors.pop(name, None)
        except (OSError, QbusError) as error:
            self._note(str(error), name)

    async def _drain(self, queue: SpoolQueue) -> None:
        size = await asyncio.to_thread(queue.size)
        if self._drained.get(queue.directory) != size:
            batches = queue.batches(self._quarantine_segment)
            while (found := await asyncio.to_thread(_next, batches)) is not None:
                if not await self._deliver(queue, *found):
                    return
            self._drained[queue.directory] = size
        await asyncio.to_thread(queue.remove_if_done, self._quarantine_segment)

    async def _deliver(self, queue: SpoolQueue, header: BatchHeader, batch: bytes) -> bool:
        """Send a batch until it is stored, and acknowledge it; False: stop shipping this queue."""
        backoff = Backoff(longest_s=_LONGEST_PAUSE_S)
        while True:
            try:
                await self._sender.send(queue.name, header, batch)
                break
            except CorruptBatch as error:
                await self._refuse(queue, header, batch, error)
                break
            except QbusError as error:
                if isinstance(error, ApiError) and error.code in REFUSED:
                    await self._refuse(queue, header, batch, error)
                    break
                self._note(str(error), queue.name)
            await self._pause(backoff.failed())
            if self._stopping.is_set():
                return False
        await asyncio.to_thread(queue.acknowledge, header.last_offset + 1)
        self._errors.pop(queue.name, None)
        self._records += header.records_count
        self._bytes += len(batch)
        return not self._stopping.is_set()

    async def _refuse(
        self, queue: SpoolQueue, header: BatchHeader, batch: bytes, error: QbusError
    ) -> None:
        origin = queue.directory / f"{header.base_offset:020d}.refused"
        kept = await asyncio.to_thread(self._quarantine.keep_batches, origin, batch)
        _log.error("%d records of %s are kept in %s: %s", header.records_count, queue.name.topic,
                   kept, error)  # fmt: skip

    def _quarantine_segment(self, segment: Path, damage: CorruptBatch) -> None:
        """Keep a copy of a damaged segment; its whole batches are delivered all the same."""
        kept = self._quarantine.copy(segment)
        _log.error("%s; a copy of the file is kept in %s", damage, kept)

    def _done(self, name: QueueName, _: asyncio.Task[None]) -> None:
        del self._working[name]

    def _note(self, error: str, name: QueueName | None = None) -> None:
        known = self._error if name is None else self._errors.get(name)
        if error != known:
            _log.warning("spool %s: %s", self._directory, error)
        if name is None:
            self._error = error
        else:
            self._errors[name] = error

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass


def _next(batches: Iterator[Batch]) -> Batch | None:
    return next(batches, None)
