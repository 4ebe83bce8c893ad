"""The agent as a process: start, ship, follow its configuration, drain, stop."""

import asyncio
import logging
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from qbus.clock import Clock, SystemClock
from qbus.config.address import Address
from qbus.metadata.zookeeper import ZooKeeperAddress
from qbus.service import prometheus
from qbus.service.control import Origin
from qbus.service.control.central import store_opener
from qbus.service.control.file import follow_file
from qbus.service.control.process import end_tasks, stop_signals

from .control import LastGood, central_control, configured_agent, start_with
from .exclusive import Exclusive
from .metrics import AgentMetrics
from .shipping import Shipping
from .status.reporter import Reporter

_log = logging.getLogger(__name__)

_LOCK = "lock"
_ZOOKEEPER_PATIENCE_S = 2.0
_REPORT_S = 1.0
_REPORT_SHARE = 50  # a report is written after so many times as long as the last one took


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How an agent is started.

    Its configuration is ``text``, or in ``file``, or below ``zookeeper`` under the agent's ``name``
    and that of its ``group``.
    """

    data_dir: Path
    name: str
    group: str | None = None
    text: bytes | None = None
    file: Path | None = None
    zookeeper: ZooKeeperAddress | None = None
    session_timeout_s: float = 10.0
    metrics: Address | None = None


def run(options: RunOptions) -> int:
    """Run an agent until SIGTERM or SIGINT; a second signal ends it at once. The exit code.

    Raises:
        ConfigError: what it is told at its start is not allowed.
        DirectoryInUse: another agent has the data directory.
        OSError: the data directory cannot be used, or an address not be listened on.
    """
    return asyncio.run(Daemon(options, SystemClock()).serve())


class Daemon:
    """One agent."""

    def __init__(self, options: RunOptions, clock: Clock) -> None:
        self._options = options
        self._shipping = Shipping(options.data_dir, clock)
        defaults = {} if options.zookeeper is None else {"bootstrap": f"zk://{options.zookeeper}"}
        self._configured = configured_agent(self._shipping.apply, defaults)
        self._metrics = AgentMetrics(self._shipping.status, self._configured)
        self._reporter = Reporter(
            options.name,
            options.group,
            socket.gethostname(),
            self._configured.document,
            self._shipping.status,
            clock,
        )

    async def serve(self) -> int:
        """Start, ship until a signal, drain."""
        started = perf_counter()
        stop = stop_signals()
        async with AsyncExitStack() as cleanup:
            self._lock(cleanup)
            if self._options.metrics is not None:
                cleanup.callback(prometheus.serve(self._metrics, *self._options.metrics))
            cleanup.push_async_callback(self._shipping.stop)  # wherever it fails before
            tasks = await self._start(cleanup, stop)
            _log.info(
                "agent %s runs, %.3f s after its start",
                self._options.name,
                perf_counter() - started,
            )
            stopping = asyncio.create_task(stop.wait())
            failed = asyncio.create_task(self._shipping.wait())
            await asyncio.wait([stopping, failed, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in (failed, *tasks):
                if task.done():
                    task.result()
            await end_tasks([stopping, failed])
            _log.info("stopping: waiting for what is under way")
            await self._shipping.stop()
        _log.info("stopped")
        return 0

    def _lock(self, cleanup: AsyncExitStack) -> None:
        directory = self._options.data_dir
        directory.mkdir(parents=True, exist_ok=True)
        lock = Exclusive(directory / _LOCK)
        lock.acquire()
        cleanup.callback(lock.release)

    async def _start(
        self, cleanup: AsyncExitStack, stop: asyncio.Event
    ) -> list[asyncio.Task[None]]:
        """Put the first configuration into force; the tasks that go on from there."""
        tasks = [asyncio.create_task(self._report())]
        cleanup.push_async_callback(end_tasks, tasks)
        if self._options.zookeeper is not None:
            tasks.append(await self._begin_central(self._options.zookeeper, stop))
        elif self._options.file is not None:
            await follow_file(self._options.file, self._configured)
        else:
            assert self._options.text is not None
            await self._configured.take_first(self._options.text, Origin("command line"))
        return tasks

    async def _begin_central(
        self, address: ZooKeeperAddress, stop: asyncio.Event
    ) -> asyncio.Task[None]:
        options = self._options
        last_good = LastGood(options.data_dir)
        control = central_control(
            store_opener(address, options.session_timeout_s),
            options.name,
            options.group,
            self._configured,
            last_good,
            self._reporter.report,
        )
        task = asyncio.create_task(control.run())
        starting = asyncio.create_task(
            start_with(self._configured, control, last_good, _ZOOKEEPER_PATIENCE_S)
        )
        waiting = asyncio.create_task(stop.wait())
        await asyncio.wait([starting, waiting, task], return_when=asyncio.FIRST_COMPLETED)
        await end_tasks([waiting])
        if starting.done():
            starting.result()
        else:
            await end_tasks([starting])
        return task

    async def _report(self) -> None:
        """Keep the status file of the data directory fresh, in proportion to what that costs."""
        while True:
            begun = perf_counter()
            self._shipping.look()
            self._write_report()
            await asyncio.sleep(max(_REPORT_S, _REPORT_SHARE * (perf_counter() - begun)))

    def _write_report(self) -> None:
        try:
            self._reporter.write(self._options.data_dir)
        except OSError as error:
            _log.warning("the status cannot be written: %s", error)
