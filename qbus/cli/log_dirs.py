"""`qbus log-dirs`: the data directories of brokers, and replicas that move between them."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from qbus.cli.completing import topics
from qbus.cli.lazy import OrderedGroup
from qbus.cli.options import client_command
from qbus.cli.output import Document, emit, table
from qbus.cli.targets import Target
from qbus.cli.units import counted, format_size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from qbus.clients.types import LogDir, ReplicaSize


def _replica(text: str) -> tuple[str, int]:
    found = re.fullmatch(r"(.+):(\d+)", text, re.ASCII)
    if found is None:
        raise click.BadParameter(f"{text!r} is not of the form TOPIC:PARTITION.")
    return found[1], int(found[2])


_broker = click.option("--broker", type=int, metavar="ID", help="One broker. Default: all.")


@click.group("log-dirs", cls=OrderedGroup)
def log_dirs() -> None:
    """Show brokers' data directories; move replicas between those of a broker."""


@log_dirs.command("list")
@_broker
@client_command
async def list_(*, broker: int | None, target: Target, as_json: bool) -> None:
    """Show the data directories, their space, and what is being moved."""
    from qbus.cli.session import administration

    async with administration(target) as admin:
        found = await admin.describe_log_dirs(None if broker is None else [broker])
    emit([_document(directory) for directory in found], _tables, as_json=as_json)


@log_dirs.command()
@click.argument(
    "replicas",
    metavar="TOPIC:PARTITION...",
    type=_replica,
    nargs=-1,
    required=True,
    shell_complete=topics,
)
@click.option("--to", "path", required=True, metavar="DIR", help="A data directory of the broker.")
@click.option("--broker", type=int, required=True, metavar="ID", help="The broker.")
@client_command
async def move(
    *, replicas: tuple[tuple[str, int], ...], path: str, broker: int, target: Target, as_json: bool
) -> None:
    """Move replicas of a broker to another data directory of it, while they are used.

    'qbus log-dirs list' shows the progress. Naming the directory where a replica is ends its move
    to another one. replica.alter.log.dirs.io.max.bytes.per.second of the broker limits the speed.
    """
    from qbus.cli.session import administration

    async with administration(target) as admin:
        await admin.alter_replica_log_dirs(broker, dict.fromkeys(replicas, path))
    document = {"broker": broker, "path": path, "replicas": [f"{t}-{p}" for t, p in replicas]}
    emit(document, _begun, as_json=as_json)


def _begun(document: Document) -> str:
    count = counted(len(document["replicas"]), "replica")
    return f"{count} of broker {document['broker']} will be in {document['path']}."


def _document(directory: "LogDir") -> Document:
    return {
        "broker": directory.node_id,
        "path": directory.path,
        "online": directory.is_online,
        "problem": directory.problem or None,
        "total_bytes": directory.total_bytes,
        "usable_bytes": directory.usable_bytes,
        "replicas": [_replica_document(one) for one in directory.replicas if not one.is_future],
        "arriving": [_replica_document(one) for one in directory.replicas if one.is_future],
    }


def _replica_document(replica: "ReplicaSize") -> Document:
    return {
        "topic": replica.topic,
        "partition": replica.partition,
        "bytes": replica.size,
        "lag": replica.lag,
    }


def _tables(documents: list[Document]) -> "RenderableType":
    from rich.console import Group

    directories = table(
        *("broker", "path", "state", "#replicas", "#bytes", "#free"),
        rows=(
            (
                one["broker"],
                one["path"],
                _state(one),
                len(one["replicas"]),
                format_size(sum(replica["bytes"] for replica in one["replicas"])),
                format_size(one["usable_bytes"]) if one["usable_bytes"] >= 0 else "-",
            )
            for one in documents
        ),
    )
    problems = [
        f"Broker {one['broker']}: {one['path']}: {one['problem']}"
        for one in documents
        if one["problem"]
    ]
    arriving = [*_arriving(documents)]
    if not arriving:
        return Group(directories, *problems)
    moves = table("moving", "broker", "to", "#copied", "#records left", rows=arriving)
    return Group(directories, *problems, "", moves)


def _state(directory: Document) -> str:
    if not directory["online"]:
        return "offline"
    return "full" if directory["problem"] else "online"


def _arriving(documents: list[Document]) -> Iterable[tuple[Any, ...]]:
    for one in documents:
        for replica in one["arriving"]:
            name = f"{replica['topic']}-{replica['partition']}"
            copied = format_size(replica["bytes"])
            yield name, one["broker"], one["path"], copied, f"{replica['lag']:,}"
