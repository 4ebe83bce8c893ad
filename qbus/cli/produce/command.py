"""`qbus produce`."""

import asyncio
import os
from typing import TYPE_CHECKING

import click

from qbus.cli.completing import topics
from qbus.cli.options import client_command
from qbus.cli.output import emit, note
from qbus.cli.parameters import IntRange, delay_text, due, header, moment, separator
from qbus.cli.targets import Target

if TYPE_CHECKING:
    from qbus.cli.output import Document
    from qbus.clients.producer.options import Acks

_ACKS: "dict[str, Acks]" = {"all": "all", "1": 1, "0": 0}

#: With fewer records, connecting takes most of the time.
_WORTH_A_RATE = 10_000

#: How long sending a record is retried; a person waits for the command.
_DELIVERY_TIMEOUT_MS = 30_000
_LAST_S = 5.0
"""How long acknowledgements are waited for after a signal."""


@click.command()
@click.argument("topic", shell_complete=topics)
@click.argument(
    "file",
    type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True),
    default="-",
)
@click.option(
    "--key-separator",
    type=separator,
    metavar="S",
    help="Text before the first S of a line is the key; a line without S has none.",
)
@click.option("--key", metavar="K", help="The key of records whose line has none.")
@click.option(
    "--header",
    "headers",
    type=header,
    multiple=True,
    metavar="NAME=VALUE",
    help="A header of every record; may be repeated.",
)
@click.option(
    "--timestamp",
    type=moment,
    metavar="TIME",
    help="The time of the records: ms since 1970, a time such as 2026-03-01T12:00, or 15m (ago)."
    " Default: now.",
)
@click.option(
    "--delay",
    type=delay_text,
    metavar="15m",
    help="Deliver the records so long after they were sent: 1500ms, 90s, 15m, 36h, 30d.",
)
@click.option(
    "--deliver-at",
    type=due,
    metavar="TIME",
    help="Deliver the records then: ms since 1970, or a time such as 2026-03-01T12:00.",
)
@click.option(
    "--ttl",
    type=delay_text,
    metavar="1h",
    help="Drop records that could not be delivered so long after they were due.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["raw", "json"]),
    default="raw",
    show_default=True,
    help="json: each line is an object, as 'consume --format json' prints them.",
)
@click.option(
    "--partition", type=IntRange(0), metavar="N", help="Send all records to this partition."
)
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
)
@click.option(
    "--acks",
    type=click.Choice(tuple(_ACKS)),
    default="all",
    show_default=True,
    help="Who must have a record before it is sent: all in-sync replicas, the leader, nobody.",
)
@client_command
async def produce(
    *,
    topic: str,
    file: str,
    key_separator: bytes | None,
    key: str | None,
    headers: tuple[tuple[str, bytes], ...],
    timestamp: int | None,
    delay: str | None,
    deliver_at: int | None,
    ttl: str | None,
    form: str,
    partition: int | None,
    compression: str,
    acks: str,
    target: Target,
    as_json: bool,
) -> None:
    """Send the lines of FILE, or of stdin, to TOPIC: one record per line, byte for byte.

    Ctrl-C and SIGTERM end the input: what was read is delivered and counted, within 5 seconds.
    """
    from qbus.cli.output import bytes_bar
    from qbus.cli.produce import line_format
    from qbus.cli.produce.line_producer import LineProducer
    from qbus.cli.produce.lines import opened, read_lines
    from qbus.cli.session import REQUEST_TIMEOUT_MS, ensure_reachable
    from qbus.cli.units import counted
    from qbus.clients import Producer
    from qbus.names import check_topic_name

    check_topic_name(topic)
    delays = _delay_headers(delay, deliver_at, ttl)
    if form == "json" and key_separator is not None:
        raise click.UsageError("--key-separator is for raw lines: JSON has the keys.")
    parse = line_format.with_constants(
        line_format.JsonLines() if form == "json" else line_format.raw(key_separator),
        key=None if key is None else os.fsencode(key),
        headers=(*headers, *delays),
        timestamp=timestamp,
    )
    await ensure_reachable(target)
    if delays:
        await _check_delays(target, topic)
    with opened(file) as source:
        if source.is_terminal:
            note("Each line is a record; Ctrl-D ends the input.")
        async with Producer(
            target.bootstrap,
            **target.options,
            acks=_ACKS[acks],
            compression=compression,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=_DELIVERY_TIMEOUT_MS,
            client_id="qbus-produce",
        ) as producer:
            if await _is_new(target, topic):
                count = len(await producer.partitions(topic))
                note(f"Created topic {topic} with {counted(count, 'partition')}.")
            sending = LineProducer(producer, topic, parse, partition)
            try:
                with bytes_bar("Producing", source.size) as advance:
                    async for lines in read_lines(source.descriptor):
                        advance(await sending.send(lines))
            except asyncio.CancelledError:  # Ctrl-C, SIGTERM
                ended = await sending.finish_within(_LAST_S)
                note(_given_up(sending.unacknowledged) if ended is None else _summary(ended))
                raise
            document = await sending.finish()
    emit(document, _summary, as_json=as_json)


def _given_up(count: int) -> str:
    from qbus.cli.units import counted

    return (
        f"qbus: stopped: {counted(count, 'record')} sent without an acknowledgement"
        f" within {_LAST_S:g} s, so each may be stored or not"
    )


def _delay_headers(
    delay: str | None, deliver_at: int | None, ttl: str | None
) -> list[tuple[str, bytes]]:
    """The headers that have records held back."""
    from qbus.delay import DELAY, DELIVER_AT, TTL

    if delay is not None and deliver_at is not None:
        raise click.UsageError("--delay and --deliver-at exclude each other.")
    if ttl is not None and delay is None and deliver_at is None:
        raise click.UsageError("--ttl is for records with --delay or --deliver-at.")
    when = None if deliver_at is None else str(deliver_at)
    stated = ((DELAY, delay), (DELIVER_AT, when), (TTL, ttl))
    return [(name, text.encode()) for name, text in stated if text is not None]


async def _check_delays(target: Target, topic: str) -> None:
    """Raise Failure if the topic would deliver at once what is to be delayed."""
    from qbus.cli.failures import Failure
    from qbus.cli.session import administration
    from qbus.clients.types import ConfigKind

    async with administration(target) as admin:
        settings = await admin.describe_config(ConfigKind.TOPIC, topic)
    known = {entry.name: entry.value for entry in settings}
    if known.get("qbus.delay.enable") != "true":
        raise Failure(
            f"topic {topic} holds nothing back: 'qbus topic config {topic}"
            " --set qbus.delay.enable=true' changes that"
        )


async def _is_new(target: Target, topic: str) -> bool:
    from qbus.cli.session import admin_of
    from qbus.errors import ApiError, ErrorCode

    async with admin_of(target) as admin:
        try:
            await admin.describe_topic(topic)
        except ApiError as error:
            return error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return False


def _summary(document: "Document") -> str:
    from qbus.cli.units import counted, format_size

    count, size, seconds = document["records"], document["bytes"], document["seconds"]
    text = (
        f"Produced {counted(count, 'record')} ({format_size(size)})"
        f" to {document['topic']} in {seconds:.2f} s"
    )
    if count < _WORTH_A_RATE:
        return f"{text}."
    return f"{text}: {count / seconds:,.0f} records/s, {format_size(size / seconds)}/s."
