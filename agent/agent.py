"""The agent: it ships files and spools by the configuration in force."""

import asyncio
import logging
from pathlib import Path

from qbus.clock import Clock

from .config import AgentConfig
from .file_shipper import FileShipper
from .quarantine import Quarantine
from .spool import SpoolSender, SpoolShipper
from .status import AgentStatus, SpoolStatus, in_slices

_log = logging.getLogger(__name__)

_SPOOL_PAUSE_S = 10.0


class Agent:
    """Ships files and spools, from the first configuration on."""

    def __init__(self, data_dir: Path, clock: Clock) -> None:
        self._data_dir = data_dir
        self._clock = clock
        self._config: AgentConfig | None = None
        self._files: FileShipper | None = None
        self._spools = SpoolShippers(Quarantine(data_dir))
        self._started = asyncio.Event()
        self._status = AgentStatus()

    async def apply(self, config: AgentConfig) -> None:
        """Put a configuration into force; raises QbusError and OSError if that fails."""
        if self._files is None:
            files = FileShipper(config, self._data_dir, self._clock)
            await files.start()
            self._files = files
            self._started.set()
        else:
            await self._files.apply(config)
        await self._spools.apply(config)
        self._config = config

    async def refresh(self) -> AgentStatus:
        """Return the status as of now, and keep it; lines are shipped meanwhile."""
        files = self._files
        spools = self._spools.status()
        if files is None:
            self._status = AgentStatus(spools=spools)
        else:
            self._status = AgentStatus(
                files=tuple(await in_slices(files.files())),
                spools=spools,
                records=files.records,
                bytes=files.bytes,
                refused=files.refused,
                truncations=files.truncations,
                memory_bytes=files.memory_bytes,
                error=files.error,
            )
        return self._status

    def status(self) -> AgentStatus:
        """Return the status of the last :meth:`refresh`; from any thread."""
        return self._status

    async def wait(self) -> None:
        """Never return; raise the error that ends the shipping of files."""
        await self._started.wait()
        assert self._files is not None
        await self._files.wait()
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Deliver what is in flight within ``drain_timeout_ms``, and stop."""
        if self._config is None:
            return
        drain_s = self._config.delivery.drain_timeout_ms / 1000
        files, self._files = self._files, None
        stopping = [self._spools.stop(drain_s)]
        if files is not None:
            stopping.append(files.stop())
        for failure in await asyncio.gather(*stopping, return_exceptions=True):
            if isinstance(failure, BaseException):
                _log.error("stopping: %s", failure, exc_info=failure)


class SpoolShippers:
    """The shippers of all spools, and the one sender they share."""

    def __init__(self, quarantine: Quarantine) -> None:
        self._quarantine = quarantine
        self._config: AgentConfig | None = None
        self._sender: SpoolSender | None = None
        self._shippers: list[tuple[SpoolShipper, asyncio.Task[None]]] = []

    async def apply(self, config: AgentConfig) -> None:
        """Restart the shippers if their part of the configuration changed."""
        if self._config is not None and _of_spools(config) == _of_spools(self._config):
            return
        sender = None
        if config.spools:
            security = config.security.security()
            sender = SpoolSender(config.bootstrap, config.delivery, security)
        await self.stop(_SPOOL_PAUSE_S)
        self._config, self._sender = config, sender
        if sender is None:
            return
        poll_s = config.tailing.poll_interval_ms / 1000
        for spool in config.spools:
            shipper = SpoolShipper(Path(spool.directory), sender, self._quarantine, poll_s)
            self._shippers.append((shipper, asyncio.create_task(shipper.run())))

    def status(self) -> tuple[SpoolStatus, ...]:
        """Return the status of each spool."""
        return tuple(shipper.status for shipper, _ in self._shippers)

    async def stop(self, timeout_s: float) -> None:
        """Deliver the batches in flight within ``timeout_s`` seconds, and stop."""
        tasks = [task for _, task in self._shippers]
        for shipper, _ in self._shippers:
            shipper.stop()
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._shippers.clear()
        if self._sender is not None:
            await self._sender.close()
            self._sender = None


def _of_spools(config: AgentConfig) -> tuple[object, ...]:
    tailing = config.tailing
    return (
        config.bootstrap,
        config.security,
        config.spools,
        config.delivery,
        tailing.poll_interval_ms,
    )
