"""A daemon as a process: start, take a configuration, work until a signal, drain, stop."""

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from qbus.metadata import MetadataStore
from qbus.metadata.zookeeper import ZooKeeperAddress
from qbus.service import prometheus
from qbus.service.control import CentralControl, Configured, Origin
from qbus.service.control.central import store_opener
from qbus.service.control.file import follow_file
from qbus.service.metrics_page import MetricsPage

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonOptions:
    """Where a daemon gets its configuration, and where it serves its metrics.

    The configuration is ``text``, or in ``file``, or in ``zookeeper``.
    """

    text: bytes | None = None
    file: Path | None = None
    zookeeper: ZooKeeperAddress | None = None
    session_timeout_s: float = 10.0
    metrics: MetricsPage | None = None


class Work(Protocol):
    """What a daemon does. Its configurations are applied by a :class:`Configured`."""

    async def stop(self) -> None:
        """Finish what is in flight within its drain timeout, and stop; twice does no harm."""


class Daemon:
    """One process.

    name: how log lines call it. background: loops that run beside the work; the daemon fails with
    the first of them that fails. central: makes the line to ZooKeeper, given what opens sessions.
    patience_s: how long the start waits for ZooKeeper's answer.
    """

    def __init__(
        self,
        name: str,
        options: DaemonOptions,
        work: Work,
        configured: Configured[Any],
        *,
        metrics: prometheus.Collector,
        background: Sequence[Callable[[], Coroutine[Any, Any, None]]],
        central: Callable[[Callable[[], MetadataStore]], CentralControl],
        patience_s: float,
    ) -> None:
        self._name = name
        self._options = options
        self._work = work
        self._configured = configured
        self._metrics = metrics
        self._background = background
        self._central = central
        self._patience_s = patience_s

    async def serve(self) -> int:
        """Work until SIGTERM or SIGINT; return the exit code.

        Raises:
            ConfigError: the first configuration is not allowed.
            OSError: the work cannot begin, or the address for metrics cannot be listened on.
        """
        started = perf_counter()
        stop = stop_signals()
        async with AsyncExitStack() as cleanup:
            if self._options.metrics is not None:
                address, security = self._options.metrics
                cleanup.callback(prometheus.serve(self._metrics, *address, security=security))
            cleanup.push_async_callback(self._work.stop)
            tasks = [asyncio.create_task(loop()) for loop in self._background]
            cleanup.push_async_callback(end_tasks, tasks)
            await self._configure(tasks, stop)
            _log.info("%s is running, %.3f s after its start", self._name, perf_counter() - started)
            await _until(stop, tasks)
            _log.info("stopping: finishing what is in flight")
            await self._work.stop()
        _log.info("stopped")
        return 0

    async def _configure(self, tasks: list[asyncio.Task[None]], stop: asyncio.Event) -> None:
        """Put the first configuration into force; what goes on from there is added to ``tasks``."""
        options = self._options
        if options.zookeeper is not None:
            opener = store_opener(options.zookeeper, options.session_timeout_s)
            control = self._central(opener)
            tasks.append(asyncio.create_task(control.run()))
            starting = asyncio.create_task(control.start(self._patience_s))
            try:
                await _until(stop, [*tasks, starting])
            finally:
                await end_tasks([starting])
        elif options.file is not None:
            await follow_file(options.file, self._configured)
        else:
            assert options.text is not None
            await self._configured.accept_first(options.text, Origin("command line"))


def stop_signals() -> asyncio.Event:
    """An event that the first SIGTERM or SIGINT sets; the second one has its usual effect."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def on_signal() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return stop


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their ends."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


async def _until(stop: asyncio.Event, tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Return when ``stop`` is set or one of ``tasks`` has ended; raise its error if it failed."""
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks([stopping])
    for task in tasks:
        if task.done():
            task.result()
