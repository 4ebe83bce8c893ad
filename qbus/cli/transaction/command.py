"""`qbus transaction`: list, describe, abort, find-hanging."""

from typing import TYPE_CHECKING

import click

from qbus.cli.completing import topics as topic_names
from qbus.cli.completing import transactional_ids
from qbus.cli.lazy import OrderedGroup
from qbus.cli.options import client_command
from qbus.cli.output import emit
from qbus.cli.parameters import IntRange, duration
from qbus.cli.targets import Target

if TYPE_CHECKING:
    from qbus.cli.output import Document

_LONGEST = "15m"
"""The brokers' default of transaction.max.timeout.ms."""


@click.group(cls=OrderedGroup)
def transaction() -> None:
    """List, describe and abort transactions, and find those that hang."""


@transaction.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    help="Only ids in this state, such as Ongoing; may be repeated.",
)
@click.option(
    "--producer-id",
    "producer_ids",
    type=IntRange(0),
    multiple=True,
    metavar="N",
    help="Only the id with this producer id; may be repeated.",
)
@click.option(
    "--longer-than",
    type=duration,
    metavar="DURATION",
    help="Only ids whose transaction has been open for longer, such as 30s.",
)
@click.option(
    "--matching", "pattern", metavar="REGEX", help="Only ids that match as a whole (RE2's syntax)."
)
@client_command
async def list_transactions(
    *,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than: int | None,
    pattern: str | None,
    target: Target,
    as_json: bool,
) -> None:
    """List the transactional ids."""
    from qbus.cli.session import administration
    from qbus.cli.transaction.tables import listing, transaction_list

    async with administration(target) as admin:
        found = await admin.list_transactions(
            states=states,
            producer_ids=producer_ids,
            min_duration_ms=longer_than,
            pattern=pattern,
        )
    emit([listing(one) for one in found], transaction_list, as_json=as_json)


@transaction.command()
@click.argument("names", metavar="ID...", nargs=-1, required=True, shell_complete=transactional_ids)
@client_command
async def describe(*, names: tuple[str, ...], target: Target, as_json: bool) -> None:
    """Show transactional ids: state, producer, time-out, age and partitions."""
    from qbus.cli.session import administration
    from qbus.cli.transaction.tables import description, transaction_descriptions

    async with administration(target) as admin:
        documents = [description(await admin.describe_transaction(name)) for name in names]
    emit(documents, transaction_descriptions, as_json=as_json)


@transaction.command()
@click.argument("names", metavar="[ID]...", nargs=-1, shell_complete=transactional_ids)
@click.option(
    "--topic", shell_complete=topic_names, metavar="TOPIC", help="Where a transaction hangs."
)
@click.option("--partition", type=IntRange(0), metavar="N", help="The partition of that topic.")
@click.option(
    "--start-offset",
    type=IntRange(0),
    metavar="OFFSET",
    help="The first offset of the hanging transaction, as find-hanging shows it.",
)
@client_command
async def abort(
    *,
    names: tuple[str, ...],
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    target: Target,
    as_json: bool,
) -> None:
    """Abort the open transaction of each ID, and shut out its producer.

    With --topic, --partition and --start-offset in place of an ID: end one that hangs in that
    partition, which no coordinator will end.
    """
    from qbus.cli.session import administration
    from qbus.cli.transaction.hanging import abort_at
    from qbus.cli.transaction.tables import aborted, hanging

    place = (topic, partition, start_offset)
    if bool(names) == any(part is not None for part in place):
        raise click.UsageError("Name either an ID, or --topic, --partition and --start-offset.")
    documents: list[Document]
    async with administration(target) as admin:
        if names:
            await admin.fence_producers(names)
            documents = [{"transactional_id": name, "aborted": True} for name in names]
        elif topic is None or partition is None or start_offset is None:
            raise click.UsageError("--topic, --partition and --start-offset belong together.")
        else:
            found = await abort_at(admin, topic, partition, start_offset)
            documents = [{**hanging(found), "aborted": True}]
    emit(documents, aborted, as_json=as_json)


@transaction.command("find-hanging")
@click.argument("topics", metavar="[TOPIC]...", nargs=-1, shell_complete=topic_names)
@click.option(
    "--longer-than",
    type=duration,
    default=_LONGEST,
    show_default=True,
    metavar="DURATION",
    help="The longest time-out that a producer may have: transaction.max.timeout.ms.",
)
@client_command
async def find_hanging(
    *, topics: tuple[str, ...], longer_than: int, target: Target, as_json: bool
) -> None:
    """Find transactions that partitions hold open and that nobody will end.

    Consumers of committed records wait for them. Without a TOPIC: in all topics.
    """
    from qbus.cli.session import administration
    from qbus.cli.transaction.hanging import partitions_of
    from qbus.cli.transaction.tables import hanging, hanging_list

    async with administration(target) as admin:
        found = await admin.find_hanging_transactions(
            await partitions_of(admin, topics), max_timeout_ms=longer_than
        )
    emit([hanging(one) for one in found], hanging_list, as_json=as_json)
