"""A mirror as a process: the daemon that copies topics between clusters."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbus.clock import Clock, SystemClock
from qbus.metadata import MetadataStore
from qbus.service import event_loop
from qbus.service.control import CentralControl
from qbus.service.daemon import Daemon, DaemonOptions
from qbus.service.status import StatusReporter

from .control import config_path, configured_mirror, status_path
from .metrics import MirrorMetrics
from .mirror import Mirror
from .status import link_document

_ZOOKEEPER_PATIENCE_S = 5.0
_OBSERVE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(DaemonOptions):
    """How a mirror is started; ZooKeeper has its configuration under ``link``.

    ``process`` tells it from others that run the same link. ``command_config``: a file of
    properties that says how to connect to the target where the configuration does not.
    """

    process: str
    link: str = ""
    command_config: Path | None = None


def run(options: RunOptions) -> int:
    """Mirror until SIGTERM or SIGINT; a second signal ends it at once. Return the exit code.

    Raises:
        ConfigError: the first configuration is not allowed.
        OSError: an address cannot be listened on.
    """
    return event_loop.run(_serve(options, SystemClock()))


async def _serve(options: RunOptions, clock: Clock) -> int:
    mirror = Mirror()
    configured = configured_mirror(mirror.apply, options.zookeeper, options.command_config)

    def work(max_bytes: int) -> dict[str, Any]:
        links = mirror.refresh()
        share = max_bytes // max(len(links), 1)
        return {"links": [link_document(link, share) for link in links]}

    reporter = StatusReporter({"process": options.process}, configured.document, work, clock)

    def central(open_store: Callable[[], MetadataStore]) -> CentralControl:
        return CentralControl(
            open_store,
            [config_path(options.link)],
            configured,
            status_path(options.link, options.process),
            reporter.report,
        )

    async def observe() -> None:
        """Keep the numbers that the metrics are made from fresh."""
        while True:
            mirror.refresh()
            await asyncio.sleep(_OBSERVE_S)

    daemon = Daemon(
        f"mirror {options.process}",
        options,
        mirror,
        configured,
        metrics=MirrorMetrics(mirror.status, configured),
        background=[observe],
        central=central,
        patience_s=_ZOOKEEPER_PATIENCE_S,
    )
    return await daemon.serve()
