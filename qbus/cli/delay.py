"""`qbus delay`: the records that topics hold back until they are due."""

import time
from typing import TYPE_CHECKING, Any

import click

from qbus.cli.completing import topics
from qbus.cli.lazy import OrderedGroup
from qbus.cli.options import client_command
from qbus.cli.output import Document, emit, table
from qbus.cli.units import counted, format_moment, format_seconds, format_size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from qbus.clients.admin.types import DelayedRecord, DelayedRecords
    from qbus.clients.types import TopicPartition


@click.group("delay", cls=OrderedGroup)
def delay() -> None:
    """Show the delayed records of topics."""


@delay.command("list")
@click.argument("topic", metavar="TOPIC", shell_complete=topics)
@click.option("--partition", type=click.IntRange(0), metavar="N", help="One. Default: all.")
@click.option(
    "--limit",
    type=click.IntRange(0, 1000),
    default=20,
    show_default=True,
    metavar="N",
    help="How many records to show.",
)
@client_command
async def list_(
    *, topic: str, partition: int | None, limit: int, bootstrap: str, as_json: bool
) -> None:
    """Count what is held back of TOPIC, and show what is due next."""
    from qbus.cli.session import administration

    async with administration(bootstrap) as admin:
        described = await admin.describe_topic(topic)
        wanted = [
            (topic, one.index)
            for one in described.partitions
            if partition is None or one.index == partition
        ]
        if not wanted:
            raise click.BadParameter(f"{topic} has no partition {partition}.")
        found = await admin.describe_delayed(wanted, limit=limit)
    emit(_document(topic, found, limit), _tables, as_json=as_json)


def _document(topic: str, found: "dict[TopicPartition, DelayedRecords]", limit: int) -> Document:
    partitions = [
        {"partition": place.partition, "pending": known.pending, "next_due": known.next_due}
        for place, known in sorted(found.items())
    ]
    records = sorted(
        (
            _record(place.partition, record)
            for place, known in found.items()
            for record in known.records
        ),
        key=_order,
    )
    return {
        "topic": topic,
        "pending": sum(known.pending for known in found.values()),
        "next_due": min(
            (known.next_due for known in found.values() if known.next_due is not None),
            default=None,
        ),
        "partitions": partitions,
        "records": records[:limit],
    }


def _record(partition: int, record: "DelayedRecord") -> dict[str, Any]:
    return {
        "partition": partition,
        "offset": record.original_offset,
        "due": record.due,
        "taken": record.taken,
        "key": None if record.key is None else record.key.decode(errors="replace"),
        "size": record.size,
    }


def _order(record: dict[str, Any]) -> tuple[int, int, int]:
    return record["due"], record["partition"], record["offset"]


def _tables(document: Document) -> "RenderableType":
    from rich.console import Group

    topic, pending, next_due = document["topic"], document["pending"], document["next_due"]
    if not pending:
        return f"Topic {topic} holds nothing back."
    ahead_s = next_due / 1000 - time.time()
    when = f"in {format_seconds(ahead_s)}" if ahead_s >= 0 else "now"
    count = counted(pending, "record")
    headline = f"Topic {topic} holds {count} back. The next is due {when}."
    if not document["records"]:
        return headline
    rows = (
        (
            record["partition"],
            record["offset"],
            format_moment(record["due"]),
            format_moment(record["taken"]),
            record["key"],
            format_size(record["size"]),
        )
        for record in document["records"]
    )
    columns = ("#partition", "#offset", "due", "sent", "key", "#size")
    return Group(headline, "", table(*columns, rows=rows, whole=("due", "sent")))
