"""`qbus mirror groups`: copies committed offsets to the target, on request."""

import asyncio
from collections.abc import Sequence

from qbus.cli.failures import Failure
from qbus.cli.mirror.config import configuration, sides
from qbus.cli.mirror.options import Selected
from qbus.cli.mirror.tables import carried_table
from qbus.cli.output import Document, emit
from qbus.cli.session import ensure_reachable
from qbus.clients.mirror.checks import takes_mirrors
from qbus.clients.mirror.config import LinkConfig, links
from qbus.clients.mirror.groups import OffsetSync
from qbus.clients.mirror.session import clusters


async def carry_groups(
    stated: Selected, groups: Sequence[str], *, once: bool, backwards: bool, as_json: bool
) -> None:
    """Copy the offsets of each link, and print the result of each group."""
    config = await configuration(stated)
    while True:
        carried = [
            found
            for link in links(config)
            for found in await _carry(link, groups, backwards=backwards)
        ]
        emit(carried, carried_table, as_json=as_json)
        if once:
            return
        await asyncio.sleep(config.groups.interval_ms / 1000)


async def _carry(config: LinkConfig, groups: Sequence[str], *, backwards: bool) -> list[Document]:
    for side in sides(config):
        await ensure_reachable(side)
    async with clusters(config) as (source, target):
        if not await takes_mirrors(target, config.source):
            raise Failure(
                f"{config.name}: the target is not Qbus. Its records have other offsets, so that"
                " committed offsets cannot be copied."
            )
        offset_sync = OffsetSync(config, source, target)
        carried = await offset_sync.sync(groups or None, backwards=backwards)
    return [
        {
            "link": config.name,
            "group": group.group,
            "skipped": group.skipped,
            "offsets": [
                {"topic": topic, "partition": partition, "offset": offset}
                for (topic, partition), offset in sorted(group.offsets.items())
            ],
        }
        for group in carried
    ]
