"""`qbus context`: use, list, delete."""

from pathlib import Path
from typing import Any

import click

from qbus.cli.contexts import Context, Contexts
from qbus.cli.failures import Failure
from qbus.cli.lazy import COMMAND_CONFIG, OrderedGroup
from qbus.cli.options import json_option
from qbus.cli.output import Document, Remark, emit, table
from qbus.cli.parameters import bootstrap as bootstrap_type


def _names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    try:
        names = Contexts.load().all
    except Failure:  # it would spoil the line that is being typed
        return []
    return [name for name in sorted(names) if name.startswith(incomplete)]


@click.group(cls=OrderedGroup)
def context() -> None:
    """Name clusters, and choose the one that commands talk to.

    A context remembers the other brokers of its cluster: a command finds it while any of them
    runs.
    """


@context.command()
@click.argument("name", shell_complete=_names)
@click.option(
    "--bootstrap",
    type=bootstrap_type,
    metavar="HOST:PORT,...",
    help="Brokers of the cluster; or zk://HOST:PORT,.../CHROOT. Makes the context, or changes it.",
)
@click.option(
    COMMAND_CONFIG,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Properties that say how to connect, and where without --bootstrap. The context remembers"
    " the file's name, and nothing of what is in it.",
)
@json_option
def use(*, name: str, bootstrap: str | None, command_config: Path | None, as_json: bool) -> None:
    """Make NAME the context of the commands that follow."""
    contexts = Contexts.load()
    known = contexts.all.get(name)
    file = None if known is None else known.command_config
    if command_config is not None:
        from qbus.cli.command_config import read_command_config

        stated = read_command_config(command_config).bootstrap
        file = str(command_config.resolve())
        if bootstrap is None:
            bootstrap = stated or (None if known is None else known.bootstrap)
        if bootstrap is None:
            raise Failure(
                f"{command_config} has no bootstrap.servers: name the brokers with"
                " --bootstrap HOST:PORT"
            )
    if bootstrap is not None:
        contexts.all[name] = Context(bootstrap, command_config=file)
    elif known is None:
        raise Failure(
            f"there is no context {name} yet: make it with"
            f" 'qbus context use {name} --bootstrap HOST:PORT'"
        )
    contexts.current = name
    contexts.save()
    emit(_document(contexts, name), _used, as_json=as_json)


@context.command("list")
@json_option
def list_contexts(*, as_json: bool) -> None:
    """List the contexts."""
    contexts = Contexts.load()
    emit([_document(contexts, name) for name in sorted(contexts.all)], _listed, as_json=as_json)


@context.command()
@click.argument("name", shell_complete=_names)
@json_option
def delete(*, name: str, as_json: bool) -> None:
    """Forget the context NAME; the cluster is not touched."""
    contexts = Contexts.load()
    contexts.need(name)
    document = _document(contexts, name)
    del contexts.all[name]
    if contexts.current == name:
        contexts.current = None
    contexts.save()
    emit(document, lambda d: f"Forgot context {d['name']}.", as_json=as_json)


def _document(contexts: Contexts, name: str) -> Document:
    found = contexts.all[name]
    return {
        "name": name,
        "current": name == contexts.current,
        "bootstrap": found.bootstrap,
        "brokers": list(found.brokers),
        "command_config": found.command_config,
    }


def _used(document: Document) -> str:
    return f"Commands talk to {document['name']} ({document['bootstrap']}) from now on."


def _listed(documents: list[Document]) -> Any:
    if not documents:
        return Remark(
            "No contexts yet: make one with 'qbus context use NAME --bootstrap HOST:PORT'."
        )
    return table(
        "",
        "context",
        "bootstrap",
        "brokers",
        "command config",
        rows=(
            ("*" if d["current"] else "", d["name"], d["bootstrap"], d["brokers"])
            + (d["command_config"],)
            for d in documents
        ),
    )
