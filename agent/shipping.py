"""What ships, by the configuration in force: the files, and the spools."""

import asyncio
import logging
from pathlib import Path

from qbus.clock import Clock

from .agent import Agent
from .config import AgentConfig
from .spool import SpoolSender, SpoolShipper
from .spool.quarantine import Quarantine
from .status import AgentStatus, SpoolStatus

_log = logging.getLogger(__name__)

_SPOOL_PAUSE_S = 10.0


class Shipping:
    """Does nothing until the first configuration is applied."""

    def __init__(self, data_dir: Path, clock: Clock) -> None:
        self._data_dir = data_dir
        self._clock = clock
        self._config: AgentConfig | None = None
        self._agent: Agent | None = None
        self._spools = Spools(Quarantine(data_dir))
        self._begun = asyncio.Event()
        self._status = AgentStatus()

    async def apply(self, config: AgentConfig) -> None:
        """Put a configuration into force; raises QbusError and OSError when that fails."""
        if self._agent is None:
            agent = Agent(config, self._data_dir, self._clock)
            await agent.start()
            self._agent = agent
            self._begun.set()
        else:
            await self._agent.apply(config)
        await self._spools.apply(config)
        self._config = config

    def look(self) -> AgentStatus:
        """How it goes, looked at now: that takes a while where there are many files."""
        agent = self._agent
        spools = self._spools.status()
        if agent is None:
            self._status = AgentStatus(spools=spools)
        else:
            self._status = AgentStatus(
                files=tuple(agent.files()),
                spools=spools,
                records=agent.records,
                bytes=agent.bytes,
                memory_bytes=agent.memory_bytes,
                error=agent.error,
            )
        return self._status

    def status(self) -> AgentStatus:
        """How it went at the last look; from any thread."""
        return self._status

    async def wait(self) -> None:
        """Return never; raises what keeps the shipping of files from going on."""
        await self._begun.wait()
        assert self._agent is not None
        await self._agent.wait()
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Finish what is under way, within ``drain_timeout_ms``."""
        if self._config is None:
            return
        drain_s = self._config.delivery.drain_timeout_ms / 1000
        agent, self._agent = self._agent, None
        stopping = [self._spools.stop(drain_s)]
        if agent is not None:
            stopping.append(agent.stop())
        for failure in await asyncio.gather(*stopping, return_exceptions=True):
            if isinstance(failure, BaseException):
                _log.error("stopping: %s", failure, exc_info=failure)


class Spools:
    """The spools that are emptied, and the one sender they share."""

    def __init__(self, aside: Quarantine) -> None:
        self._aside = aside
        self._config: AgentConfig | None = None
        self._sender: SpoolSender | None = None
        self._shippers: list[tuple[SpoolShipper, asyncio.Task[None]]] = []

    async def apply(self, config: AgentConfig) -> None:
        """Begin anew if anything that matters here is another."""
        if self._config is not None and _of_spools(config) == _of_spools(self._config):
            return
        sender = SpoolSender(config.bootstrap, config.delivery) if config.spools else None
        await self.stop(_SPOOL_PAUSE_S)
        self._config, self._sender = config, sender
        if sender is None:
            return
        poll_s = config.tailing.poll_interval_ms / 1000
        for spool in config.spools:
            shipper = SpoolShipper(Path(spool.directory), sender, self._aside, poll_s)
            self._shippers.append((shipper, asyncio.create_task(shipper.run())))

    def status(self) -> tuple[SpoolStatus, ...]:
        """How it goes with each."""
        return tuple(shipper.status for shipper, _ in self._shippers)

    async def stop(self, timeout_s: float) -> None:
        """Finish the batches under way, if that takes no longer than ``timeout_s`` seconds."""
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
    return config.bootstrap, config.spools, config.delivery, config.tailing.poll_interval_ms
