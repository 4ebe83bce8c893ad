"""`qbus group`: list, describe, reset-offsets, delete."""

from typing import TYPE_CHECKING

import click

from qbus.cli.completing import groups
from qbus.cli.completing import topics as topic_names
from qbus.cli.lazy import OrderedGroup
from qbus.cli.options import client_command
from qbus.cli.output import emit
from qbus.cli.parameters import Position, position
from qbus.cli.targets import Target

if TYPE_CHECKING:
    from qbus.cli.output import Document


@click.group(cls=OrderedGroup)
def group() -> None:
    """List, describe, reset and delete consumer groups."""


@group.command("list")
@client_command
async def list_groups(*, target: Target, as_json: bool) -> None:
    """List the groups."""
    from qbus.cli.documents import group_summary
    from qbus.cli.group.tables import group_list
    from qbus.cli.session import administration

    async with administration(target) as admin:
        groups = await admin.list_groups()
    emit([group_summary(found) for found in groups], group_list, as_json=as_json)


@group.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=groups)
@click.option("--watch", is_flag=True, help="Refresh every second until Ctrl-C.")
@client_command
async def describe(*, names: tuple[str, ...], watch: bool, target: Target, as_json: bool) -> None:
    """Show groups: members, committed offsets and lag.

    Without a NAME: every group.
    """
    from qbus.cli.failures import Failure
    from qbus.cli.group.describing import describe_groups, incomplete
    from qbus.cli.group.tables import group_descriptions
    from qbus.cli.running import watching
    from qbus.cli.session import administration

    async with administration(target) as admin:
        if watch:
            await watching(
                lambda: describe_groups(admin, names), group_descriptions, as_json=as_json
            )
        documents = await describe_groups(admin, names)
    emit(documents, group_descriptions, as_json=as_json)
    if reason := incomplete(documents):
        raise Failure(f"not everything is known: {reason}")


@group.command("reset-offsets")
@click.argument("name", shell_complete=groups)
@click.option(
    "--topic",
    "topics",
    shell_complete=topic_names,
    multiple=True,
    metavar="TOPIC[:P,...]",
    help="A topic, or some of its partitions; may be repeated. Default: all committed ones.",
)
@click.option(
    "--to",
    type=position,
    metavar="POSITION",
    help="earliest, latest, an offset, a time such as 2026-03-01T12:00, or 15m (ago).",
)
@click.option("--shift-by", type=int, metavar="N", help="Move by N records; back if N is negative.")
@click.option("--dry-run", is_flag=True, help="Only show the changes.")
@client_command
async def reset_offsets(
    *,
    name: str,
    topics: tuple[str, ...],
    to: Position | None,
    shift_by: int | None,
    dry_run: bool,
    target: Target,
    as_json: bool,
) -> None:
    """Change the committed offsets of the group NAME.

    The group must have no members. Offsets are kept within the bounds of the log.
    """
    from qbus.cli.group.reset import apply_reset, plan_reset
    from qbus.cli.group.tables import reset
    from qbus.cli.session import administration

    if (to is None) == (shift_by is None):
        raise click.UsageError("Name either --to or --shift-by.")
    async with administration(target) as admin:
        changes = await plan_reset(admin, name, topics, to, shift_by)
        if not dry_run:
            await apply_reset(admin, name, changes)
    document = {"group": name, "applied": not dry_run, "changes": changes}
    emit(document, reset, as_json=as_json)


@group.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=groups)
@client_command
async def delete(*, names: tuple[str, ...], target: Target, as_json: bool) -> None:
    """Delete groups with their offsets.

    A group that has members cannot be deleted.
    """
    from qbus.cli.session import administration

    async with administration(target) as admin:
        for name in names:
            await admin.delete_group(name)
    emit([{"group": name, "deleted": True} for name in names], _deleted, as_json=as_json)


def _deleted(documents: "list[Document]") -> str:
    return "\n".join(f"Deleted group {document['group']}." for document in documents)
