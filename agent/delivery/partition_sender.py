"""The way to one partition: files take turns, and at most a batch is on its way.

What is on its way when the agent dies is sent again by the next one. So a lane reads no further
ahead of the positions that are written down than a batch, in two halves: while one is on its way
the other is read.
"""

import asyncio
import logging
import random
from collections import deque
from typing import Protocol

from qbus.clients.producer import BulkDelivery
from qbus.clock import Clock
from qbus.errors import QbusError

from ..tailing.chunk import Chunk
from ..tailing.file import TailedFile
from .limits import Budget, RateLimiter
from .pending_batch import PendingBatch

log = logging.getLogger(__name__)

READ_BYTES = 256 * 1024
"""How much of one file is read at a time, before it is the next one's turn."""
_FEWEST_BYTES = 4096
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


class Port(Protocol):
    """What all lanes share."""

    budget: Budget
    limiter: RateLimiter
    clock: Clock
    batch_bytes: int

    def take(self, file: TailedFile, most: int) -> Chunk | None:
        """The next records of a file, if it has any now."""

    async def send(self, topic: str, partition: int, parcel: PendingBatch) -> BulkDelivery:
        """Put records on their way. Raises :class:`~qbus.errors.QbusError`."""

    def delivered(self, lane: "Lane", parcel: PendingBatch) -> None:
        """Records are acknowledged: call :meth:`Lane.release` once that is written down."""

    async def refused(self, topic: str, error: Exception) -> None:
        """Records were not taken; wait here until they may be sent again."""


class Lane:
    """Reads files in turn, and sends what is in them to one partition."""

    def __init__(self, topic: str, partition: int, port: Port) -> None:
        self.topic = topic
        self.partition = partition
        self.outstanding = 0
        """Bytes that were read, and are not written down as delivered."""
        self.error: Exception | None = None
        self._port = port
        self._half = max(1, port.batch_bytes // 2)
        self._ready: deque[TailedFile] = deque()
        self._sent: deque[PendingBatch] = deque()
        self._failed = False
        self._attempts = 0
        self._wake = asyncio.Event()

    def add(self, file: TailedFile) -> None:
        """A file has something to read."""
        self._ready.append(file)
        self._wake.set()

    def wake(self) -> None:
        """There may be room again."""
        self._wake.set()

    def release(self, parcel: PendingBatch) -> None:
        """It is written down that a parcel was delivered."""
        self.outstanding -= parcel.size
        self._wake.set()

    async def run(self) -> None:
        """Read and send, until cancelled."""
        while True:
            self._wake.clear()
            if self._failed:
                await self._recover()
            else:
                while (parcel := self._gather()) is not None:
                    await self._send(parcel)
            pause = self._port.limiter.delay(self._port.clock.monotonic()) if self._ready else 0
            try:
                async with asyncio.timeout(pause or None):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _gather(self) -> PendingBatch | None:
        """Read half a batch, as far as there is something to read, and room for it."""
        port = self._port
        if self._failed or self.outstanding > self._half or not port.budget.has_room:
            return None
        parcel = PendingBatch()
        while self._ready and parcel.size < self._half:
            if port.limiter.delay(port.clock.monotonic()) or not port.budget.has_room:
                break
            file = self._ready.popleft()
            most = max(_FEWEST_BYTES, min(READ_BYTES, self._half - parcel.size))
            chunk = port.take(file, most)
            if chunk is None:
                continue
            self._ready.append(file)
            if chunk.values:
                before = parcel.memory
                parcel.add(chunk, file.labels)
                port.budget.used += parcel.memory - before
                port.limiter.take(chunk.end - chunk.start)
            else:  # a long way to the end of a line: others have their turn
                self._wake.set()
                break
        if not parcel.values:
            return None
        self.outstanding += parcel.size
        return parcel

    async def _send(self, parcel: PendingBatch) -> None:
        """Put a parcel on its way, whatever that takes."""
        self._sent.append(parcel)
        while True:
            try:
                delivery = await self._port.send(self.topic, self.partition, parcel)
            except QbusError as error:
                self._note(error)
                await self._port.refused(self.topic, error)
                await self._pause()
            else:
                delivery.add_done_callback(lambda done: self._settled(parcel, done.exception(0)))
                return

    def _settled(self, parcel: PendingBatch, error: Exception | None) -> None:
        """It is known what became of a parcel."""
        parcel.is_settled, parcel.error = True, error
        if error is not None:
            self._failed = True
            self._note(error)
            self._wake.set()
            return
        self._arrived(parcel)

    def _arrived(self, parcel: PendingBatch) -> None:
        self._sent.remove(parcel)
        self.error, self._attempts = None, 0
        self._port.delivered(self, parcel)
        if self._failed:
            self._wake.set()

    async def _recover(self) -> None:
        """Once all is settled send again what was refused, one after the other."""
        if not all(parcel.is_settled for parcel in self._sent):
            return
        while self._sent:
            parcel = self._sent[0]
            assert parcel.error is not None
            await self._port.refused(self.topic, parcel.error)
            await self._pause()
            try:
                await (await self._port.send(self.topic, self.partition, parcel))
            except QbusError as error:
                parcel.error = error
                self._note(error)
            else:
                self._arrived(parcel)
        self._failed = False
        self._wake.set()

    def _note(self, error: Exception) -> None:
        if self.error is None:
            log.warning("%s-%d: %s; trying again", self.topic, self.partition, error)
        self.error = error

    async def _pause(self) -> None:
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(self._attempts, 16))
        self._attempts += 1
        await asyncio.sleep(longest * random.uniform(0.8, 1.2))  # noqa: S311 - not a secret
