"""`qbus reassign`: generate, execute, verify, cancel, list."""

import re
from typing import IO, TYPE_CHECKING

import click

from qbus.cli.lazy import OrderedGroup
from qbus.cli.options import client_command
from qbus.cli.output import emit
from qbus.cli.parameters import IntRange
from qbus.cli.targets import Target

if TYPE_CHECKING:
    from qbus.cli.reassign.plans import Plan

_FILE = click.argument("file", metavar="[FILE]", type=click.File(encoding="utf-8"), required=False)


def _broker_ids(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+(,\d+)*", text, re.ASCII):
        raise click.BadParameter(f"{text!r} is not of the form 1,2,3.")
    return tuple(map(int, text.split(",")))


def _move(text: str) -> tuple[str, int, tuple[int, ...]]:
    found = re.fullmatch(r"(.+):(\d+)=([\d,]+)", text, re.ASCII)
    if found is None:
        raise click.BadParameter(f"{text!r} is not of the form TOPIC:PARTITION=1,2,3.")
    return found[1], int(found[2]), _broker_ids(found[3])


_move_option = click.option(
    "--move",
    "moves",
    type=_move,
    multiple=True,
    metavar="TOPIC:PARTITION=IDS",
    help="In place of FILE: a partition and its brokers; may be repeated.",
)


@click.group(cls=OrderedGroup)
def reassign() -> None:
    """Move partitions to other brokers.

    FILE is a plan in the JSON of Kafka's tool, as 'generate' prints it; - is stdin.
    """


@reassign.command()
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@click.option("--brokers", type=_broker_ids, metavar="IDS", help="Brokers to use. Default: all.")
@click.option("--ignore-racks", is_flag=True, help="Do not spread replicas over racks.")
@client_command
async def generate(
    *,
    topics: tuple[str, ...],
    brokers: tuple[int, ...] | None,
    ignore_racks: bool,
    target: Target,
    as_json: bool,
) -> None:
    """Print a plan that spreads each TOPIC over brokers, with few moves.

    Without a TOPIC: all topics.
    """
    import json

    from qbus.cli.reassign import actions
    from qbus.cli.session import administration

    async with administration(target) as admin:
        document = await actions.generate(admin, topics, brokers or (), racks=not ignore_racks)
    emit(document, lambda plan: json.dumps(plan, indent=1), as_json=as_json)


@reassign.command()
@_FILE
@_move_option
@click.option(
    "--throttle",
    type=IntRange(1),
    metavar="BYTES",
    help="Limit for each broker, in bytes per second.",
)
@client_command
async def execute(
    *,
    file: IO[str] | None,
    moves: tuple[tuple[str, int, tuple[int, ...]], ...],
    throttle: int | None,
    target: Target,
    as_json: bool,
) -> None:
    """Start to move partitions, and print the plan that moves them back."""
    from qbus.cli.reassign import actions, tables
    from qbus.cli.session import administration

    plan = _plan(file, moves)
    async with administration(target) as admin:
        document = await actions.execute(admin, plan, throttle)
    emit(document, tables.begun, as_json=as_json)


@reassign.command()
@_FILE
@_move_option
@click.option("--keep-throttle", is_flag=True, help="Keep the throttle when all moves are done.")
@client_command
async def verify(
    *,
    file: IO[str] | None,
    moves: tuple[tuple[str, int, tuple[int, ...]], ...],
    keep_throttle: bool,
    target: Target,
    as_json: bool,
) -> None:
    """Show the progress of a plan; remove its throttle once all moves have ended.

    Exit codes: 0 all partitions are where the plan has them, 3 some still move or are elsewhere.
    """
    from qbus.cli.failures import FINDINGS
    from qbus.cli.reassign import actions, tables
    from qbus.cli.session import administration

    plan = _plan(file, moves)
    async with administration(target) as admin:
        document = await actions.verify(admin, plan, keep_throttle=keep_throttle)
    emit(document, tables.progress, as_json=as_json)
    if any(found["state"] != "done" for found in document["partitions"]):
        raise click.exceptions.Exit(FINDINGS)


@reassign.command()
@_FILE
@_move_option
@click.option("--all", "everything", is_flag=True, help="All partitions that move.")
@client_command
async def cancel(
    *,
    file: IO[str] | None,
    moves: tuple[tuple[str, int, tuple[int, ...]], ...],
    everything: bool,
    target: Target,
    as_json: bool,
) -> None:
    """Cancel moves, so that partitions stay where they were, and remove the throttle."""
    from qbus.cli.reassign import actions, tables
    from qbus.cli.session import administration

    plan = None if everything else _plan(file, moves)
    async with administration(target) as admin:
        documents = await actions.cancel(admin, plan)
    emit(documents, tables.cancelled, as_json=as_json)


@reassign.command("list")
@client_command
async def list_moves(*, target: Target, as_json: bool) -> None:
    """List the partitions that move."""
    from qbus.cli.reassign import actions, tables
    from qbus.cli.session import administration

    async with administration(target) as admin:
        documents = actions.moves(await admin.list_reassignments())
    emit(documents, tables.moves, as_json=as_json)


def _plan(file: IO[str] | None, moves: tuple[tuple[str, int, tuple[int, ...]], ...]) -> "Plan":
    from qbus.cli.reassign.plans import parse_plan, plan_of

    if (file is None) is (not moves):
        raise click.UsageError("Name either FILE or --move.")
    return plan_of(moves) if file is None else parse_plan(file.read(), file.name)
