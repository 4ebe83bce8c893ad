"""Shipping files to topics by the configuration in force, until stopped."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from qbus.clock import Clock, SystemClock
from qbus.security.connecting import OutgoingSecurity

from .config import AgentConfig
from .delivery import Dispatcher
from .positions import Position, Positions, PositionsWriter
from .quarantine import Quarantine
from .status import FileStatus
from .tailing.reporting import FileReporter
from .tailing.source import SourceReader
from .tailing.tailer import Tailer

log = logging.getLogger(__name__)

_SYNC_INTERVAL = 1.0


class FileShipper:
    """Ships files: :meth:`start`, then :meth:`wait` and :meth:`apply`, then :meth:`stop`."""

    def __init__(self, config: AgentConfig, data_dir: Path, clock: Clock | None = None) -> None:
        """``data_dir`` holds the positions, of this agent alone."""
        self.config = config
        self._data_dir = data_dir
        self._clock = clock or SystemClock()
        self._positions: Positions | None = None
        self._writer: PositionsWriter | None = None
        self._pipeline: _Pipeline | None = None
        self._syncing: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._stopped = asyncio.Event()
        self._records = 0
        self._bytes = 0
        self._refused = 0
        self._truncations = 0

    @property
    def records(self) -> int:
        """Records acknowledged since the start."""
        return self._records + (self._pipeline.dispatcher.records if self._pipeline else 0)

    @property
    def bytes(self) -> int:
        """Bytes of files acknowledged since the start."""
        return self._bytes + (self._pipeline.dispatcher.bytes if self._pipeline else 0)

    @property
    def refused(self) -> int:
        """Records set aside since the start: they are too large for their topics."""
        return self._refused + (self._pipeline.dispatcher.refused_records if self._pipeline else 0)

    @property
    def truncations(self) -> int:
        """Truncations of files noticed since the start."""
        return self._truncations + (self._pipeline.truncations if self._pipeline else 0)

    @property
    def memory_bytes(self) -> int:
        """About how many bytes are in memory, read and not acknowledged."""
        return self._pipeline.dispatcher.budget.used if self._pipeline else 0

    @property
    def error(self) -> str | None:
        """Why some records cannot be delivered now, or positions may not be on the disk."""
        error = self._pipeline.dispatcher.error if self._pipeline else None
        if error is not None:
            return str(error) or type(error).__name__
        error = self._writer.sync_error if self._writer else None
        return None if error is None else f"positions may not be on the disk: {error}"

    def files(self) -> Iterable[FileStatus]:
        """Return the status of each file, made when it is asked for."""
        return self._pipeline.reporter.files() if self._pipeline else ()

    async def start(self) -> None:
        """Begin to ship.

        Raises:
            OSError: positions cannot be kept.
            DirectoryInUse: another agent keeps its positions there.
            ConfigError: this machine cannot do what the configuration says.
        """
        self._positions = Positions(self._data_dir, self._clock)
        self._writer = PositionsWriter(self._positions, self._clock)
        try:
            self._pipeline = self._new(self.config)
        except BaseException:
            self._positions.close()
            raise
        self._syncing = asyncio.create_task(self._sync())

    async def apply(self, config: AgentConfig) -> None:
        """Deliver what was read, within the drain timeout, and go on as ``config`` says.

        Raises :class:`~qbus.errors.ConfigError` for what this machine cannot do; then the
        configuration stays as it was.
        """
        async with self._changing:
            if self._pipeline is None or config == self.config:
                self.config = config
                return
            await self._end(self._pipeline)
            try:
                self._pipeline = self._new(config)
            except BaseException:
                self._pipeline = self._new(self.config)
                raise
            self.config = config

    async def wait(self) -> None:
        """Return when stopped; raise the error that ended shipping."""
        while not self._stopped.is_set():
            pipeline = self._pipeline
            if pipeline is None:
                return
            stopped = asyncio.ensure_future(self._stopped.wait())
            events: set[asyncio.Future[Any]] = {
                stopped,
                pipeline.tailing,
                pipeline.dispatcher.failure,
            }
            try:
                await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopped.cancel()
            if pipeline is self._pipeline and not self._changing.locked():
                pipeline.check()
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """Stop reading, deliver what was read within the drain timeout, and close."""
        async with self._changing:
            pipeline, self._pipeline = self._pipeline, None
            if pipeline is not None:
                await self._end(pipeline)
            if self._syncing is not None:
                self._syncing.cancel()
                await asyncio.gather(self._syncing, return_exceptions=True)
            if self._writer is not None:
                await self._writer.close()
                self._writer = None
            if self._positions is not None:
                self._positions.close()
                self._positions = None
            self._stopped.set()

    def _new(self, config: AgentConfig) -> "_Pipeline":
        assert self._positions is not None
        assert self._writer is not None
        return _Pipeline(
            config, self._positions, self._writer, Quarantine(self._data_dir), self._clock
        )

    async def _end(self, pipeline: "_Pipeline") -> None:
        timeout = pipeline.config.delivery.drain_timeout_ms / 1000
        if not await pipeline.end(timeout):
            log.warning("not everything was delivered within %s s: the rest is read again", timeout)
        self._records += pipeline.dispatcher.records
        self._bytes += pipeline.dispatcher.bytes
        self._refused += pipeline.dispatcher.refused_records
        self._truncations += pipeline.truncations
        if self._pipeline is pipeline:
            self._pipeline = None

    async def _sync(self) -> None:
        """Bring positions to stable storage, some time after they are written."""
        assert self._writer is not None
        while True:
            await asyncio.sleep(_SYNC_INTERVAL)
            with contextlib.suppress(OSError):  # the writer and the status tell of it
                await self._writer.sync()


class _Pipeline:
    """What runs for one configuration: a tailer and a dispatcher."""

    def __init__(
        self,
        config: AgentConfig,
        positions: Positions,
        writer: PositionsWriter,
        quarantine: Quarantine,
        clock: Clock,
    ) -> None:
        self.config = config
        OutgoingSecurity(config.security.security())  # raises ConfigError before files are open
        host = config.host or socket.gethostname()
        sources = self._sources = [
            SourceReader(source, config.tailing, positions, host) for source in config.sources
        ]
        self.tailer = Tailer(
            sources,
            config.tailing,
            positions,
            clock,
            shares_partition=self._shares_partition,
            save=writer.write,
            linger=config.delivery.linger_ms / 1000,
        )
        self.dispatcher = Dispatcher(
            config,
            positions,
            writer,
            clock,
            self.tailer.read_chunk,
            quarantine=quarantine,
            host=host,
        )
        self.tailer.on_ready = self.dispatcher.ready
        self.tailer.together = self.dispatcher.together
        self.reporter = FileReporter(self.tailer.registry, clock)
        self.tailing = asyncio.create_task(self.tailer.run())

    @property
    def truncations(self) -> int:
        """Truncations of files that were noticed."""
        return sum(source.truncations for source in self._sources)

    def _shares_partition(self, one: Position, other: Position) -> bool:
        return self.dispatcher.shares_partition(one, other)

    def check(self) -> None:
        """Raise the error that ended one of its parts."""
        for work in (self.tailing, self.dispatcher.failure):
            if work.done() and not work.cancelled():
                work.result()

    async def end(self, timeout: float) -> bool:
        """Stop; return whether what was read was delivered within ``timeout`` seconds."""
        is_drained = await self.dispatcher.drain(timeout)
        self.tailing.cancel()
        await asyncio.gather(self.tailing, return_exceptions=True)
        self.tailer.close()
        await self.dispatcher.close()
        return is_drained
