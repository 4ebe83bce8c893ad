"""`qbus trace`: what became of a record, as its partition's log says."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from qbus.cli.completing import topics
from qbus.cli.failures import Failure
from qbus.cli.options import client_command
from qbus.cli.output import Document, emit, table
from qbus.cli.parameters import IntRange
from qbus.cli.targets import Target
from qbus.cli.units import counted, format_moment, format_size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from qbus.clients import Admin
    from qbus.clients.queue.history import TraceEvent
    from qbus.clients.types import TopicPartition


@click.command()
@click.argument("topic", metavar="TOPIC|JOBID", shell_complete=topics)
@click.argument("partition", metavar="[PARTITION", type=IntRange(0), required=False)
@click.argument("offset", metavar="OFFSET]", type=IntRange(0), required=False)
@client_command
async def trace(
    *, topic: str, partition: int | None, offset: int | None, target: Target, as_json: bool
) -> None:
    """Show what became of a record of TOPIC, or of the job JOBID, step by step.

    PARTITION and OFFSET are those that its producer was told. Reads the partition's log from there
    to its end: when the record was appended, delayed, delivered, given back, why, and by which
    share groups it was acknowledged. That it was given out is not written down.
    """
    from qbus.cli.session import administration
    from qbus.clients.types import TopicPartition

    async with administration(target) as admin:
        job_id = None
        if partition is None:
            job_id = topic
            place, offset = await _place_of(admin, topic)
        elif offset is None:
            raise click.UsageError("TOPIC, PARTITION and OFFSET, or the id of a job.")
        else:
            place = TopicPartition(topic, partition)
        events = await _read(admin, place, offset)
    document = {
        "topic": place.topic,
        "partition": place.partition,
        "offset": offset,
        "job_id": job_id,
        "events": [_document(event) for event in events],
    }
    emit(document, _sheet, as_json=as_json)


async def _place_of(admin: "Admin", text: str) -> "tuple[TopicPartition, int]":
    """Where the job with an id is. Raises Failure."""
    from qbus.clients.types import TopicPartition
    from qbus.jobs import parse_id

    parsed = parse_id(text)
    if parsed is None:
        raise click.UsageError(f"{text} is no job's id: name TOPIC, PARTITION and OFFSET.")
    for found in await admin.list_topics():
        if parsed.is_in(found.topic_id.bytes):
            return TopicPartition(found.name, parsed.partition), parsed.offset
    raise Failure(f"there is no queue that has job {text}")


async def _read(admin: "Admin", place: "TopicPartition", offset: int) -> "list[TraceEvent]":
    """What the log says of a record. Raises Failure if the log does not have it."""
    from qbus.clients.batches.reading import read_batches
    from qbus.clients.queue.history import RecordTrace
    from qbus.clients.types import LATEST
    from qbus.errors import ApiError, ErrorCode

    end = (await admin.list_offsets({place: LATEST}))[place].offset
    record = RecordTrace(offset)
    events: list[TraceEvent] = []
    try:
        async for header, batch in read_batches(admin._cluster, place, offset, end, hidden=True):
            events += record.see(header, batch)
    except ApiError as error:
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
    if not any(event.what in {"appended", "delayed"} for event in events):
        raise Failure(f"there is no record at offset {offset} of {place.topic}-{place.partition}")
    return events


def _document(event: "TraceEvent") -> dict[str, Any]:
    return {
        "time": event.at,
        "offset": event.offset,
        "event": event.what,
        "group": event.group,
        **{name: _plain(value) for name, value in event.details.items()},
    }


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _sheet(document: Document) -> "RenderableType":
    from rich.console import Group

    place = f"{document['topic']}-{document['partition']} at offset {document['offset']}"
    rows = (
        (format_moment(event["time"]), event["offset"], event["group"], _sentence(event))
        for event in document["events"]
    )
    return Group(place, "", table("time", "#offset", "group", "what", rows=rows, whole=("time",)))


def _sentence(event: dict[str, Any]) -> str:
    say = _SENTENCES.get(event["event"])
    return str(event["event"]) if say is None else say(event)


def _appended(event: dict[str, Any]) -> str:
    key = "" if event["key"] is None else f", key {event['key']}"
    return f"appended, {format_size(event['size'])}{key}"


def _delayed(event: dict[str, Any]) -> str:
    due = f"; due {format_moment(event['due'])}" if "due" in event else ""
    return f"{_appended(event).replace('appended', 'taken in')}{due}"


def _moved(event: dict[str, Any]) -> str:
    return f"{event['event']}; due {format_moment(event['due'])}"


def _returned(event: dict[str, Any]) -> str:
    times = counted(event["deliveries"], "time")
    text = f"given back: {event['why']}; given out {times} so far"
    if event["not_before"] is not None:
        text += f"; not before {format_moment(event['not_before'])}"
    return text


_SENTENCES: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    "appended": _appended,
    "delayed": _delayed,
    "rescheduled": _moved,
    "carried": _moved,
    "returned": _returned,
    "acknowledged": lambda _: "done",
    "archived": lambda _: "given up: nobody gets it any more",
    "begun": lambda event: f"the group begins at offset {event['start']}",
    "forgotten": lambda _: "the group was deleted",
    "result": lambda event: f"result: {event['result']}",
}
