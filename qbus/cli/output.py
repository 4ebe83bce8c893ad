"""What commands print: one JSON document for machines, rich tables for people.

A command builds a plain document first. `--json` prints that and nothing else on stdout; a person
gets what a `Present` function makes of the same document.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table


class Remark(str):
    """A sentence that says there is nothing to show: printed on stderr, so stdout stays empty."""

    __slots__ = ()


Document = dict[str, Any]
"""The result of a command, as JSON holds it."""

#: Wider than any table, so that piped output is neither wrapped nor cut.
_UNBOUNDED = 10_000


def emit(
    document: Any, present: "Callable[[Any], RenderableType | None]", *, as_json: bool
) -> None:
    """Print ``document`` as JSON, or as what ``present`` makes of it."""
    if as_json:
        click.echo(json_line(document))
        return
    renderable = present(document)
    if isinstance(renderable, Remark):
        note(renderable)
    elif isinstance(renderable, str):  # unwrapped, so that it can be copied from a terminal
        click.echo(renderable)
    elif renderable is not None:
        _print(renderable)


def _print(renderable: "RenderableType") -> None:
    """Print tables; without the blanks behind each line where they are piped."""
    console = stdout_console()
    if console.is_terminal:
        console.print(renderable)
        return
    with console.capture() as captured:
        console.print(renderable)
    click.echo("\n".join(line.rstrip(" ") for line in captured.get().split("\n")), nl=False)


def json_line(document: Any) -> bytes:
    """Return one line of JSON in UTF-8."""
    text = json.dumps(document, ensure_ascii=False, separators=(", ", ": "))
    return text.encode("utf-8", "replace")


def stdout_console() -> "Console":
    """Return a console on stdout that never cuts piped output."""
    return _console(stderr=False)


def stderr_console() -> "Console":
    """Return a console on stderr, for progress and remarks."""
    return _console(stderr=True)


def note(text: str) -> None:
    """Print a remark on stderr."""
    click.echo(text, err=True)


def table(
    *columns: str,
    rows: Iterable[Iterable[object]],
    title: str | None = None,
    whole: Sequence[str] = (),
) -> "Table":
    """Return a table; a column whose name starts with ``#`` holds numbers, aligned right.

    Where a terminal is too narrow, long texts are folded; numbers and the columns ``whole``
    never are.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    is_terminal = sys.stdout.isatty()
    result = Table(
        box=box.SIMPLE_HEAD if is_terminal else None,
        padding=(0, 1, 0, 0) if is_terminal else (0, 1),  # the box adds one between columns
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        pad_edge=False,
        show_edge=False,
    )
    for column in columns:
        is_number = column.startswith("#")
        result.add_column(
            column.removeprefix("#"),
            justify="right" if is_number else "left",
            overflow="fold",
            no_wrap=is_number or column in whole,
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
    # Names of groups may hold anything: no text is read as markup.
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


#: Fewer bytes are done before anybody could read a bar.
_WORTH_A_BAR = 4_000_000


@contextmanager
def bytes_bar(
    description: str, total: int | None, *, always: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show a progress bar; the yielded function advances it by a number of bytes.

    There is no bar if stderr is not a terminal, ``total`` is unknown or, without ``always``, small.
    """
    worthwhile = total is not None and (always or total >= _WORTH_A_BAR)
    if not worthwhile or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich import progress

    from qbus.cli.output import stderr_console

    with progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
        console=stderr_console(),
    ) as bar:
        task = bar.add_task(description, total=total)
        yield lambda count: bar.advance(task, count)
