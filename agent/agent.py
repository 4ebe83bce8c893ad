"""The agent: files to topics, as its configuration says, until it is stopped."""

import asyncio
import contextlib
import logging
import socket
from pathlib import Path
from typing import Any

from qbus.clock import Clock, SystemClock

from .config import AgentConfig
from .delivery import Shipper
from .positions import Positions
from .status import FileStatus
from .tailing.file import TailedFile
from .tailing.reporting import Reporter
from .tailing.source import SourceReader
from .tailing.tailer import Tailer

log = logging.getLogger(__name__)

_SYNC_INTERVAL = 1.0


class Agent:
    """Ships files. Use: :meth:`start`, then :meth:`wait` or :meth:`apply`, then :meth:`stop`."""

    def __init__(self, config: AgentConfig, data_dir: Path, clock: Clock | None = None) -> None:
        """``data_dir``: where positions are kept, for this agent alone."""
        self.config = config
        self._data_dir = data_dir
        self._clock = clock or SystemClock()
        self._positions: Positions | None = None
        self._shipping: _Shipping | None = None
        self._syncing: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._stopped = asyncio.Event()
        self._records = 0
        self._bytes = 0

    @property
    def records(self) -> int:
        """Records acknowledged since the start."""
        return self._records + (self._shipping.shipper.records if self._shipping else 0)

    @property
    def bytes(self) -> int:
        """Bytes of files acknowledged since the start."""
        return self._bytes + (self._shipping.shipper.bytes if self._shipping else 0)

    @property
    def memory_bytes(self) -> int:
        """About how much is in memory, read and not acknowledged."""
        return self._shipping.shipper.budget.used if self._shipping else 0

    @property
    def error(self) -> str | None:
        """Why something cannot be delivered now."""
        error = self._shipping.shipper.error if self._shipping else None
        return None if error is None else str(error) or type(error).__name__

    def files(self) -> list[FileStatus]:
        """What is known of each file."""
        return self._shipping.reporter.files() if self._shipping else []

    async def start(self) -> None:
        """Begin to ship.

        Raises OSError where positions cannot be kept,
        :class:`~qbus.service.lock.DirectoryInUse` where another agent keeps them, and
        :class:`~qbus.errors.ConfigError`.
        """
        self._positions = Positions(self._data_dir, self._clock)
        try:
            self._shipping = self._new(self.config)
        except BaseException:
            self._positions.close()
            raise
        self._syncing = asyncio.create_task(self._sync())

    async def apply(self, config: AgentConfig) -> None:
        """Go on as ``config`` says, with what was read delivered before if that is possible soon.

        Raises :class:`~qbus.errors.ConfigError` for what this machine cannot do; then all stays.
        """
        async with self._changing:
            if self._shipping is None or config == self.config:
                self.config = config
                return
            await self._end(self._shipping)
            try:
                self._shipping = self._new(config)
            except BaseException:
                self._shipping = self._new(self.config)
                raise
            self.config = config

    async def wait(self) -> None:
        """Return when the agent was stopped. Raises what made it unable to go on."""
        while not self._stopped.is_set():
            shipping = self._shipping
            if shipping is None:
                return
            stopped = asyncio.ensure_future(self._stopped.wait())
            events: set[asyncio.Future[Any]] = {
                stopped,
                shipping.following,
                shipping.shipper.failure,
            }
            try:
                await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopped.cancel()
            if shipping is self._shipping and not self._changing.locked():
                shipping.check()
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """Read no more, deliver what was read within the configured time, and let go."""
        async with self._changing:
            shipping, self._shipping = self._shipping, None
            if shipping is not None:
                await self._end(shipping)
            if self._syncing is not None:
                self._syncing.cancel()
                await asyncio.gather(self._syncing, return_exceptions=True)
            if self._positions is not None:
                self._positions.close()
                self._positions = None
            self._stopped.set()

    def _new(self, config: AgentConfig) -> "_Shipping":
        assert self._positions is not None
        return _Shipping(config, self._positions, self._clock)

    async def _end(self, shipping: "_Shipping") -> None:
        timeout = shipping.config.delivery.drain_timeout_ms / 1000
        if not await shipping.end(timeout):
            log.warning("not all that was read was delivered in %s s: it will be again", timeout)
        self._records += shipping.shipper.records
        self._bytes += shipping.shipper.bytes
        if self._shipping is shipping:
            self._shipping = None

    async def _sync(self) -> None:
        """Bring positions to stable storage, a while after they are written."""
        assert self._positions is not None
        while True:
            await asyncio.sleep(_SYNC_INTERVAL)
            with contextlib.suppress(OSError):  # whoever writes next says so
                if self._positions.write() or self._positions.is_unsynced:
                    await asyncio.to_thread(self._positions.sync)


class _Shipping:
    """One configuration at work."""

    def __init__(self, config: AgentConfig, positions: Positions, clock: Clock) -> None:
        self.config = config
        host = config.host or socket.gethostname()
        sources = [SourceReader(one, config.tailing, positions, host) for one in config.sources]
        self.tailer = Tailer(
            sources,
            config.tailing,
            positions,
            clock,
            self._ready,
            linger=config.delivery.linger_ms / 1000,
        )
        self.shipper = Shipper(config, positions, clock, self.tailer.take, host=host)
        self.reporter = Reporter(self.tailer.registry, clock)
        self.following = asyncio.create_task(self.tailer.run())

    def _ready(self, file: TailedFile) -> None:
        self.shipper.ready(file)

    def check(self) -> None:
        """Raise what keeps it from going on."""
        for work in (self.following, self.shipper.failure):
            if work.done() and not work.cancelled():
                work.result()

    async def end(self, timeout: float) -> bool:
        """Deliver what was read, if that takes no longer; whether it was delivered."""
        is_drained = await self.shipper.drain(timeout)
        self.following.cancel()
        await asyncio.gather(self.following, return_exceptions=True)
        await self.shipper.close()
        return is_drained
