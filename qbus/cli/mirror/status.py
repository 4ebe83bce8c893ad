"""`qbus mirror status`: once, or again and again."""

from contextlib import AsyncExitStack

import click

from qbus.cli.daemon_store import administration, read_statuses
from qbus.cli.failures import NOTHING_CHECKED, Failure, describe
from qbus.cli.mirror.config import configuration, sides
from qbus.cli.mirror.options import Selected
from qbus.cli.mirror.tables import status_tables
from qbus.cli.output import Document, emit, note
from qbus.cli.running import watching
from qbus.cli.session import ensure_reachable
from qbus.clients.mirror.config import LinkConfig, links
from qbus.clients.mirror.control import processes_path, status_path
from qbus.clients.mirror.lag_probe import LagProbe
from qbus.clients.mirror.session import clusters
from qbus.clients.mirror.status import LinkStatus, link_document
from qbus.clock import SystemClock
from qbus.errors import QbusError
from qbus.metadata import MetadataStore
from qbus.names import unescape

_UNBOUNDED = 1 << 40
_OF_PROCESSES = ("records", "bytes", "duplicates")
"""Totals that only the processes that copy know."""


async def show_status(stated: Selected, *, watch: bool, as_json: bool) -> None:
    """Print the lag of the target; on a terminal, with ``watch``, in place."""
    config = await configuration(stated)
    async with AsyncExitStack() as cleanup:
        store = None
        if stated.link is not None:
            store = await cleanup.enter_async_context(administration(stated.zookeeper))
        probes = [_LinkProbe(link, cleanup) for link in links(config)]

        async def read() -> Document:
            return {
                "links": [await probe.document() for probe in probes],
                "processes": await _processes(store, stated.link or ""),
            }

        if watch:
            await watching(read, status_tables, as_json=as_json)
        else:
            document = await read()
            emit(document, status_tables, as_json=as_json)
            if any(link["error"] is not None for link in document["links"]):
                raise click.exceptions.Exit(1)
            if not any(link["partitions"] for link in document["links"]):
                note("Nothing is mirrored: no topic of a source is chosen, or none exists.")
                raise click.exceptions.Exit(NOTHING_CHECKED)


class _LinkProbe:
    """Measures the lag of one link; where that fails, the link's document has an error."""

    def __init__(self, config: LinkConfig, cleanup: AsyncExitStack) -> None:
        self._config = config
        self._cleanup = cleanup
        self._lag: LagProbe | None = None

    async def document(self) -> Document:
        config = self._config
        try:
            if self._lag is None:
                for side in sides(config):
                    await ensure_reachable(side)
                source, target = await self._cleanup.enter_async_context(clusters(config))
                self._lag = LagProbe(config, source, target, SystemClock())
            status = await self._lag.measure()
        except (QbusError, Failure) as error:
            status = LinkStatus(
                name=config.name, source=config.source, target=config.target, error=describe(error)
            )
        document = link_document(status, _UNBOUNDED)
        document["partitions"].sort(key=lambda at: (at["topic"], at["partition"]))
        for name in _OF_PROCESSES:
            document["totals"].pop(name)
        return {name: document[name] for name in document if name != "groups"}


async def _processes(store: MetadataStore | None, link: str) -> list[Document]:
    """What the processes that run a link say about themselves."""
    if store is None:
        return []
    names = [unescape(node) for node in await store.children(processes_path(link))]
    return [
        *(await read_statuses(store, {name: status_path(link, name) for name in names})).values()
    ]
