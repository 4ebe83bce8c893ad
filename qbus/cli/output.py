"""What commands print: one JSON document for machines, rich tables for people.

A command builds a plain document first. `--json` prints that and nothing else on stdout; a person
gets what a `Present` function makes of the same document.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

#: Wider than any table: what is piped into another program is neither wrapped nor cut.
_UNBOUNDED = 10_000


def emit(
    document: Any, present: "Callable[[Any], RenderableType | None]", *, as_json: bool
) -> None:
    """Print ``document`` as JSON, or as what ``present`` makes of it."""
    if as_json:
        click.echo(json_line(document))
        return
    renderable = present(document)
    if isinstance(renderable, str):  # as it is: what is copied from a terminal has to be whole
        click.echo(renderable)
    elif renderable is not None:
        stdout_console().print(renderable)


def json_line(document: Any) -> bytes:
    """Return one line of JSON in UTF-8."""
    text = json.dumps(document, ensure_ascii=False, separators=(", ", ": "))
    return text.encode("utf-8", "replace")


def stdout_console() -> "Console":
    """Return a console on stdout that never cuts what is piped."""
    return _console(stderr=False)


def stderr_console() -> "Console":
    """Return a console on stderr: progress, and remarks that are not the result."""
    return _console(stderr=True)


def note(text: str) -> None:
    """Say something on stderr that is not the result."""
    click.echo(text, err=True)


def table(*columns: str, rows: Iterable[Iterable[object]], title: str | None = None) -> "Table":
    """Return a table; a column whose name starts with ``#`` holds numbers, aligned right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    result = Table(
        box=box.SIMPLE_HEAD if sys.stdout.isatty() else None,
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        pad_edge=False,
        show_edge=False,
    )
    for column in columns:
        result.add_column(
            column.removeprefix("#"),
            justify="right" if column.startswith("#") else "left",
            overflow="fold",
        )
    for row in rows:
        result.add_row(*(Text(_cell(value)) for value in row))
    return result


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value) or "-"
    return str(value)


def _console(*, stderr: bool) -> "Console":
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _UNBOUNDED
    # Names of groups may hold anything: nothing of what is printed is markup.
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)
