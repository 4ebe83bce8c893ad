"""`qbus consume`."""

import click

from qbus.cli.completing import groups
from qbus.cli.completing import topics as topic_names
from qbus.cli.options import client_command
from qbus.cli.parameters import IntRange, Position, group_name, position, separator
from qbus.cli.targets import Target


@click.command()
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=topic_names)
@click.option(
    "--group",
    type=group_name,
    metavar="G",
    shell_complete=groups,
    help="Read as a member of the consumer group G, and commit offsets.",
)
@click.option(
    "--from",
    "start",
    type=position,
    metavar="POSITION",
    help="earliest, latest, an offset, a time such as 2026-03-01T12:00 or @1767225600000, or 15m"
    " (ago). In a group, only for partitions without a committed offset. Default: earliest.",
)
@click.option(
    "--partition",
    "partitions",
    type=IntRange(0),
    metavar="N",
    multiple=True,
    help="Only this partition; may be repeated.",
)
@click.option(
    "--until",
    type=position,
    metavar="POSITION",
    help="Stop each partition before this offset or time, or at its latest record by now; a time"
    " to come is waited for.",
)
@click.option("--count", type=IntRange(1), metavar="N", help="Stop after N records.")
@click.option(
    "--exit-at-end",
    is_flag=True,
    help="Stop after the records that were there at the start: --until latest.",
)
@click.option(
    "--committed",
    is_flag=True,
    help="Only records outside of transactions and of committed ones; open ones are waited for.",
)
@click.option(
    "--skip-corrupt",
    is_flag=True,
    help="Skip batches that cannot be read, and say so on stderr, instead of stopping there.",
)
@click.option(
    "--format", "form", type=click.Choice(["raw", "json"]), default="raw", show_default=True
)
@click.option(
    "-f",
    "template",
    metavar="FORMAT",
    help=r"Print each record as FORMAT says, such as '%t %p %o %k %s\n': topic, partition, offset,"
    " %T time in ms, key, %h headers, value (%s), %K and %S sizes of key and value.",
)
@click.option(
    "--key-separator", type=separator, metavar="S", help="With raw: print each key and S first."
)
@client_command
async def consume(
    *,
    topics: tuple[str, ...],
    group: str | None,
    start: Position | None,
    partitions: tuple[int, ...],
    until: Position | None,
    count: int | None,
    exit_at_end: bool,
    committed: bool,
    skip_corrupt: bool,
    form: str,
    template: str | None,
    key_separator: bytes | None,
    target: Target,
    as_json: bool,
) -> None:
    """Print the records of each TOPIC as they arrive, until Ctrl-C.

    A TOPIC that begins with ^ is a pattern: '^web' takes all topics whose names begin with web,
    also those that are created meanwhile.

    raw: each value and a newline, byte for byte. json: one object per line, with key, headers,
    partition, offset and timestamp (milliseconds); bytes that are not UTF-8 are base64.
    """
    from qbus.cli.consume import record_format
    from qbus.cli.consume.reading import Reading
    from qbus.cli.consume.selection import Selection
    from qbus.cli.consume.stdout import StdoutWriter
    from qbus.cli.session import ensure_reachable

    if template is not None:
        if form == "json" or as_json or key_separator is not None:
            raise click.UsageError("-f says everything: leave out --format and --key-separator.")
        try:
            formatted: record_format.Format = record_format.template(template)
        except ValueError as error:
            raise click.UsageError(f"-f: {error}.") from error
    elif form == "json" or as_json:
        if key_separator is not None:
            raise click.UsageError("--key-separator is for raw output: JSON has the keys.")
        formatted = record_format.json_objects
    elif key_separator is not None:
        formatted = record_format.raw_with_keys(key_separator)
    else:
        formatted = record_format.raw_values
    selection = Selection.parse(topics, partitions)
    if exit_at_end and until is not None:
        raise click.UsageError("Name either --until or --exit-at-end.")
    if until is not None and until.kind == "earliest":
        raise click.UsageError("--until earliest would read nothing.")
    stop = Position("latest") if exit_at_end else until
    await ensure_reachable(target)
    async with (
        StdoutWriter() as writer,
        Reading(
            target,
            selection,
            group,
            start,
            until=stop,
            skip_corrupt=skip_corrupt,
            committed=committed,
        ) as reading,
    ):
        await reading.open()
        async for batch in reading.batches(count=count):
            await writer.write(formatted(batch))
