"""`qbus mirror status`: once, or again and again."""

import json
from contextlib import AsyncExitStack
from typing import Any

import click

from qbus.cli.central import administration
from qbus.cli.failures import Failure, describe
from qbus.cli.mirror.options import Selected
from qbus.cli.mirror.start import configuration
from qbus.cli.mirror.tables import status_tables
from qbus.cli.output import emit
from qbus.cli.session import ensure_reachable
from qbus.cli.watching import watching
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
"""What only processes that copy know."""

Document = dict[str, Any]


async def show_status(stated: Selected, *, watch: bool, as_json: bool) -> None:
    """Print how far the target is; on a terminal, with ``watch``, in place."""
    config = await configuration(stated)
    async with AsyncExitStack() as cleanup:
        store = None
        if stated.link is not None:
            store = await cleanup.enter_async_context(administration(stated.zookeeper))
        lookouts = [_Lookout(link, cleanup) for link in links(config)]

        async def read() -> Document:
            return {
                "links": [await lookout.look() for lookout in lookouts],
                "processes": await _processes(store, stated.link or ""),
            }

        if watch:
            await watching(read, status_tables, as_json=as_json)
        else:
            document = await read()
            emit(document, status_tables, as_json=as_json)
            if any(link["error"] is not None for link in document["links"]):
                raise click.exceptions.Exit(1)


class _Lookout:
    """Looks at one link; one that cannot be looked at has an error, and the others go on."""

    def __init__(self, config: LinkConfig, cleanup: AsyncExitStack) -> None:
        self._config = config
        self._cleanup = cleanup
        self._survey: LagProbe | None = None

    async def look(self) -> Document:
        config = self._config
        try:
            if self._survey is None:
                for bootstrap in (config.source_bootstrap, config.target_bootstrap):
                    await ensure_reachable(bootstrap)
                source, target = await self._cleanup.enter_async_context(clusters(config))
                self._survey = LagProbe(config, source, target, SystemClock())
            status = await self._survey.look()
        except (QbusError, Failure) as error:
            status = LinkStatus(
                name=config.name, source=config.source, target=config.target, error=describe(error)
            )
        document = link_document(status, _UNBOUNDED)
        document["partitions"].sort(key=lambda one: (one["topic"], one["partition"]))
        for name in _OF_PROCESSES:
            document["totals"].pop(name)
        return {name: document[name] for name in document if name != "groups"}


async def _processes(store: MetadataStore | None, link: str) -> list[Document]:
    """What the processes that run a link tell of themselves."""
    if store is None:
        return []
    names = [unescape(node) for node in await store.children(processes_path(link))]
    nodes = await store.get_many([status_path(link, name) for name in names])
    found = ((name, nodes.get(status_path(link, name))) for name in names)
    return [_decode(name, node.data) for name, node in found if node is not None]


def _decode(name: str, data: bytes) -> Document:
    try:
        document: Document = json.loads(data)
    except ValueError as error:
        raise Failure(f"the status of {name} cannot be read: {error}") from error
    return document
