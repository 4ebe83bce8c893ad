"""`qbus elect-leaders`."""

import re
from typing import TYPE_CHECKING, Any

import click

from qbus.cli.options import client_command
from qbus.cli.output import Remark, emit, note, table
from qbus.cli.targets import Target

if TYPE_CHECKING:
    from rich.console import RenderableType

    from qbus.clients import Admin
    from qbus.clients.types import TopicPartition


@click.command("elect-leaders")
@click.argument("names", metavar="[TOPIC[:PARTITION]]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All partitions of all topics.")
@click.option(
    "--unclean",
    is_flag=True,
    help="Elect any live replica for partitions without a leader; records may be lost.",
)
@client_command
async def elect_leaders(
    *, names: tuple[str, ...], everything: bool, unclean: bool, target: Target, as_json: bool
) -> None:
    """Elect the preferred replica of each partition, the first in its list, as its leader."""
    from qbus.cli.session import administration

    if everything is bool(names):
        raise click.UsageError("Name either topics or --all.")
    if unclean:
        note("unclean: records that only offline replicas have are lost")
    async with administration(target) as admin:
        wanted = None if everything else await _places(admin, names)
        elected = await admin.elect_leaders(wanted, unclean=unclean)
    documents = [
        {"topic": place.topic, "partition": place.partition, "elected": is_new}
        for place, is_new in sorted(elected.items())
    ]
    emit(documents, _elections, as_json=as_json)


async def _places(admin: "Admin", names: tuple[str, ...]) -> "list[TopicPartition]":
    """The named partitions, each once; a topic without a partition stands for all of them."""
    from qbus.clients.types import TopicPartition

    places: dict[TopicPartition, None] = {}
    for name in names:
        single = re.fullmatch(r"(.+):(\d+)", name, re.ASCII)
        if single is not None:
            places[TopicPartition(single[1], int(single[2]))] = None
            continue
        topic = await admin.describe_topic(name)
        places |= dict.fromkeys(
            TopicPartition(name, partition.index) for partition in topic.partitions
        )
    return list(places)


def _elections(documents: list[dict[str, Any]]) -> "RenderableType":
    changed = [document for document in documents if document["elected"]]
    if not changed:
        return Remark("No partition needed a new leader.")
    rows = ((document["topic"], document["partition"]) for document in changed)
    return table("topic with a new leader", "#partition", rows=rows)
