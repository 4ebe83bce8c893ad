"""`qbus delay`: the records that topics hold back until they are due."""

import os
from contextlib import asynccontextmanager
from functools import partial as bound
from typing import TYPE_CHECKING, Any, Final

import click

from qbus.cli.completing import topics
from qbus.cli.failures import Failure
from qbus.cli.lazy import OrderedGroup
from qbus.cli.options import client_command
from qbus.cli.output import Document, emit, table
from qbus.cli.parameters import IntRange, delay_text, due
from qbus.cli.targets import Target
from qbus.cli.topic.tables import held_back
from qbus.cli.units import format_moment, format_seconds, format_size

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rich.console import RenderableType

    from qbus.clients import Admin, Producer
    from qbus.clients.admin.types import DelayedRecord, DelayedRecords
    from qbus.clients.types import TopicPartition

_TIMEOUT_MS: Final = 30_000  # a person waits for the command
_place = (
    click.argument("topic", metavar="TOPIC", shell_complete=topics),
    click.argument("partition", metavar="PARTITION", type=IntRange(0)),
    click.argument("offset", metavar="OFFSET", type=IntRange(0)),
)


@click.group("delay", cls=OrderedGroup)
def delay() -> None:
    """Show, cancel and reschedule the delayed records of topics."""


def _with_place(command: Any) -> Any:
    """Give a command the arguments that name a record."""
    for argument in reversed(_place):
        command = argument(command)
    return command


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
@click.option("--watch", is_flag=True, help="Refresh every second until Ctrl-C.")
@client_command
async def list_(
    *, topic: str, partition: int | None, limit: int, watch: bool, target: Target, as_json: bool
) -> None:
    """Count what is held back of TOPIC, and show what is due next."""
    from qbus.cli.running import watching
    from qbus.cli.session import administration

    async with administration(target) as admin:
        read = bound(_read, admin, topic, partition, limit)
        if watch:
            await watching(read, _tables, as_json=as_json)
        document = await read()
    emit(document, _tables, as_json=as_json)


async def _read(admin: "Admin", topic: str, partition: int | None, limit: int) -> Document:
    described = await admin.describe_topic(topic)
    wanted = [
        (topic, one.index)
        for one in described.partitions
        if partition is None or one.index == partition
    ]
    if not wanted:
        raise click.BadParameter(f"{topic} has no partition {partition}.")
    return _document(topic, await admin.describe_delayed(wanted, limit=limit), limit)


@delay.command()
@_with_place
@client_command
async def show(*, topic: str, partition: int, offset: int, target: Target, as_json: bool) -> None:
    """Show the delayed record of TOPIC whose producer was told PARTITION and OFFSET."""
    from qbus.cli.session import administration

    async with administration(target) as admin:
        record = await admin.read_delayed(topic, partition, offset)
    if record is None:
        raise _not_delayed(topic, partition, offset)
    emit({"topic": topic, **_whole(partition, record)}, _sheet, as_json=as_json)


@delay.command()
@click.argument("topic", metavar="TOPIC", shell_complete=topics)
@click.argument("partition", metavar="[PARTITION", type=IntRange(0), required=False)
@click.argument("offset", metavar="OFFSET]", type=IntRange(0), required=False)
@click.option("--key", metavar="K", help="All records with this key, in place of one.")
@client_command
async def cancel(
    *,
    topic: str,
    partition: int | None,
    offset: int | None,
    key: str | None,
    target: Target,
    as_json: bool,
) -> None:
    """Do not deliver a delayed record of TOPIC, or all that have a key.

    PARTITION and OFFSET are those that its producer was told, and 'qbus delay list' shows.
    """
    place: Document = {"topic": topic}
    async with _producer(target) as producer:
        if key is not None and partition is None:
            place["key"] = key
            if not await producer.cancel_key(topic, os.fsencode(key)):
                raise Failure(f"the partition of key {key} in {topic} holds none of it back")
        elif key is None and partition is not None and offset is not None:
            place |= {"partition": partition, "offset": offset}
            if not await producer.cancel(topic, partition, offset):
                raise _not_delayed(topic, partition, offset)
        else:
            raise click.UsageError("PARTITION and OFFSET, or --key: one of them.")
    what = f"key {key}" if key is not None else f"offset {offset} of {topic}-{partition}"
    emit({**place, "cancelled": True}, lambda _: f"Cancelled {what}.", as_json=as_json)


@delay.command()
@_with_place
@click.option(
    "--delay", "later", type=delay_text, metavar="15m", help="Deliver it so long after now."
)
@click.option(
    "--deliver-at",
    type=due,
    metavar="TIME",
    help="Deliver it then: ms since 1970, or a time such as 2026-03-01T12:00.",
)
@client_command
async def reschedule(
    *,
    topic: str,
    partition: int,
    offset: int,
    later: str | None,
    deliver_at: int | None,
    target: Target,
    as_json: bool,
) -> None:
    """Deliver a delayed record of TOPIC at another time.

    PARTITION and OFFSET are those that its producer was told, and 'qbus delay list' shows.
    """
    if (later is None) == (deliver_at is None):
        raise click.UsageError("--delay or --deliver-at: one of them.")
    async with _producer(target) as producer:
        moved = await producer.reschedule(
            topic, partition, offset, deliver_at=deliver_at, delay=later
        )
    if not moved:
        raise _not_delayed(topic, partition, offset)
    document = {"topic": topic, "partition": partition, "offset": offset, "rescheduled": True}
    said = f"Rescheduled offset {offset} of {topic}-{partition}."
    emit(document, lambda _: said, as_json=as_json)


def _not_delayed(topic: str, partition: int, offset: int) -> Failure:
    return Failure(f"offset {offset} of {topic}-{partition} is no delayed record (any more)")


@asynccontextmanager
async def _producer(target: Target) -> "AsyncIterator[Producer]":
    """A producer that gives orders about records."""
    from qbus.cli.session import REQUEST_TIMEOUT_MS, ensure_reachable
    from qbus.clients import Producer

    await ensure_reachable(target)
    async with Producer(
        target.bootstrap,
        **target.options,
        linger_ms=0,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        delivery_timeout_ms=_TIMEOUT_MS,
        client_id="qbus-delay",
    ) as producer:
        yield producer


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


def _whole(partition: int, record: "DelayedRecord") -> dict[str, Any]:
    return {
        **_record(partition, record),
        "ttl": record.ttl,
        "value": None if record.value is None else record.value.decode(errors="replace"),
        "headers": [
            [name, None if value is None else value.decode(errors="replace")]
            for name, value in record.headers
        ],
    }


def _sheet(document: Document) -> "RenderableType":
    """A line for each part of a record."""
    ttl = document["ttl"]
    lines = [
        ("due", format_moment(document["due"])),
        ("sent", format_moment(document["taken"])),
        *([] if ttl is None else [("dropped", f"{format_seconds(ttl / 1000)} after that")]),
        ("key", "-" if document["key"] is None else document["key"]),
        *((f"header {name}", value or "") for name, value in document["headers"]),
        ("value", "-" if document["value"] is None else document["value"]),
    ]
    return "\n".join(f"{name:<8} {text}" for name, text in lines)


def _order(record: dict[str, Any]) -> tuple[int, int, int]:
    return record["due"], record["partition"], record["offset"]


def _tables(document: Document) -> "RenderableType":
    from rich.console import Group

    headline = f"{document['topic']}: {held_back(document['pending'], document['next_due'])}"
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
