"""A mirror as a process: start, mirror, follow its configuration, drain, stop."""

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from qbus.clock import Clock, SystemClock
from qbus.config.address import Address
from qbus.metadata.zookeeper import ZooKeeperAddress
from qbus.service import prometheus
from qbus.service.control import CentralControl, Configured, Origin
from qbus.service.control.central import first_answer, store_opener
from qbus.service.control.file import follow_file
from qbus.service.control.process import end_tasks, stop_signals

from .config import MirrorConfig, parse
from .metrics import MirrorMetrics
from .mirror import Mirror
from .nodes import config_path, status_path
from .status.reporter import Reporter

_log = logging.getLogger(__name__)

_ZOOKEEPER_PATIENCE_S = 5.0
_LOOK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a mirror is started.

    Its configuration is ``text``, or in ``file``, or below ``zookeeper`` under ``link``; it is told
    from others that run the same link by ``process``.
    """

    process: str
    text: bytes | None = None
    file: Path | None = None
    zookeeper: ZooKeeperAddress | None = None
    link: str = ""
    session_timeout_s: float = 10.0
    metrics: Address | None = None


def run(options: RunOptions) -> int:
    """Mirror until SIGTERM or SIGINT; a second signal ends it at once. The exit code.

    Raises:
        ConfigError: what it is told at its start is not allowed.
        OSError: an address cannot be listened on.
    """
    return asyncio.run(Daemon(options, SystemClock()).serve())


class Daemon:
    """One process of a mirror."""

    def __init__(self, options: RunOptions, clock: Clock) -> None:
        self._options = options
        self._mirror = Mirror()
        self._configured: Configured[MirrorConfig] = Configured(self._read, self._mirror.apply)
        self._metrics = MirrorMetrics(self._mirror.status, self._configured)
        self._reporter = Reporter(
            options.process, self._configured.document, self._mirror.look, clock
        )

    async def serve(self) -> int:
        """Start, mirror until a signal, drain."""
        stop = stop_signals()
        async with AsyncExitStack() as cleanup:
            if self._options.metrics is not None:
                cleanup.callback(prometheus.serve(self._metrics, *self._options.metrics))
            cleanup.push_async_callback(self._mirror.stop)
            tasks = [asyncio.create_task(self._look())]
            cleanup.push_async_callback(end_tasks, tasks)
            await self._start(tasks)
            _log.info("mirror %s runs", self._options.process)
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
            await end_tasks([stopping])
            _log.info("stopping: waiting for what is under way")
            await self._mirror.stop()
        _log.info("stopped")
        return 0

    async def _start(self, tasks: list[asyncio.Task[None]]) -> None:
        """Put the first configuration into force; adds what goes on from there to ``tasks``."""
        options = self._options
        if options.zookeeper is not None:
            control = CentralControl(
                store_opener(options.zookeeper, options.session_timeout_s),
                [config_path(options.link)],
                self._configured,
                status_path(options.link, options.process),
                self._reporter.report,
            )
            tasks.append(asyncio.create_task(control.run()))
            await first_answer(control, _ZOOKEEPER_PATIENCE_S)
        elif options.file is not None:
            await follow_file(options.file, self._configured)
        else:
            assert options.text is not None
            await self._configured.take_first(options.text, Origin("command line"))

    def _read(self, text: bytes) -> MirrorConfig:
        address = self._options.zookeeper
        return parse(text, target_bootstrap=None if address is None else f"zk://{address}")

    async def _look(self) -> None:
        """Keep what the metrics are made from fresh."""
        while True:
            self._mirror.look()
            await asyncio.sleep(_LOOK_S)
