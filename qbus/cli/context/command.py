"""`qbus context`: use, list, delete."""

from typing import Any

import click

from qbus.cli.contexts import Context, Contexts
from qbus.cli.failures import Failure
from qbus.cli.lazy import OrderedGroup
from qbus.cli.options import json_option
from qbus.cli.output import Document, emit, table
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
@json_option
def use(*, name: str, bootstrap: str | None, as_json: bool) -> None:
    """Make NAME the context of the commands that follow."""
    contexts = Contexts.load()
    if bootstrap is not None:
        contexts.all[name] = Context(bootstrap)
    elif name not in contexts.all:
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
    }


def _used(document: Document) -> str:
    return f"Commands talk to {document['name']} ({document['bootstrap']}) from now on."


def _listed(documents: list[Document]) -> Any:
    if not documents:
        return "No contexts yet: make one with 'qbus context use NAME --bootstrap HOST:PORT'."
    return table(
        "",
        "context",
        "bootstrap",
        "brokers",
        rows=(
            ("*" if d["current"] else "", d["name"], d["bootstrap"], d["brokers"])
            for d in documents
        ),
    )
