"""The agent as a process: the daemon that ships files and spools."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from qbus.clock import Clock, SystemClock
from qbus.metadata import MetadataStore
from qbus.service import event_loop
from qbus.service.control import CentralControl, LastGood
from qbus.service.daemon import Daemon, DaemonOptions
from qbus.service.files import replace_file
from qbus.service.lock import DirectoryLock
from qbus.service.status import StatusReporter

from .agent import Agent
from .control import config_path, configured_agent, status_path
from .metrics import AgentMetrics
from .status import LOCK_FILE, STATUS_FILE, WholeReport, document

_log = logging.getLogger(__name__)

_ZOOKEEPER_PATIENCE_S = 2.0
_REPORT_S = 1.0
_REPORT_SHARE = 50  # a report is written after so many times as long as the last one took
_LOCAL_BYTES = 16 * 1024 * 1024
"""The longest list of files, in bytes of JSON, in the data directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(DaemonOptions):
    """How an agent is started; ZooKeeper has its configuration under ``name``, then ``group``.

    command_config: a file of properties that says how to connect where the configuration does not.
    """

    data_dir: Path
    name: str
    group: str | None = None
    command_config: Path | None = None


def run(options: RunOptions) -> int:
    """Run an agent until SIGTERM or SIGINT; a second signal ends it at once. Return the exit code.

    Raises:
        ConfigError: the first configuration is not allowed.
        DirectoryInUse: another agent uses the data directory.
        OSError: the data directory cannot be used, or an address cannot be listened on.
    """
    options.data_dir.mkdir(parents=True, exist_ok=True)
    with DirectoryLock(options.data_dir / LOCK_FILE, "another agent"):
        return event_loop.run(_serve(options, SystemClock()))


async def _serve(options: RunOptions, clock: Clock) -> int:
    agent = Agent(options.data_dir, clock)
    defaults: dict[str, Any] = {}
    if options.zookeeper is not None:
        defaults["bootstrap"] = f"zk://{options.zookeeper}"
    if options.command_config is not None:
        defaults["security"] = {"file": str(options.command_config.resolve())}
    configured = configured_agent(agent.apply, defaults)
    reporter = StatusReporter(
        {"name": options.name, "group": options.group},
        configured.document,
        lambda max_bytes: document(agent.status(), max_bytes),
        clock,
    )

    def central(open_store: Callable[[], MetadataStore]) -> CentralControl:
        names = [name for name in (options.name, options.group) if name is not None]
        return CentralControl(
            open_store,
            [config_path(name) for name in names],
            configured,
            status_path(options.name),
            reporter.report,
            last_good=LastGood(options.data_dir),
        )

    async def report() -> None:
        """Keep the status file fresh, the less often the longer it takes."""
        file, whole = options.data_dir / STATUS_FILE, WholeReport(_LOCAL_BYTES)
        is_written = True
        while True:
            begun = perf_counter()
            status = await agent.refresh()
            try:
                content = await whole.encode(reporter.report(0), status)
                await asyncio.to_thread(replace_file, file, content, durable=False)
            except OSError as error:
                if is_written:
                    _log.warning("the status cannot be written: %s: %s", file, error.strerror)
                is_written = False
            else:
                if not is_written:
                    _log.info("the status can be written again: %s", file)
                is_written = True
            await asyncio.sleep(max(_REPORT_S, _REPORT_SHARE * (perf_counter() - begun)))

    daemon = Daemon(
        f"agent {options.name}",
        options,
        agent,
        configured,
        metrics=AgentMetrics(agent.status, configured),
        background=[report, agent.wait],
        central=central,
        patience_s=_ZOOKEEPER_PATIENCE_S,
    )
    return await daemon.serve()
