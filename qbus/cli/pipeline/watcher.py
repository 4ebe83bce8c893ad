"""Shows a running pipeline: progress on stderr, results on stdout."""

import json
import sys
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from qbus.cli.output import note, stderr_console, stdout_console, table
from qbus.clients.pipelines.run import Tally
from qbus.clients.pipelines.submitted import Lines, summary

if TYPE_CHECKING:
    from rich.live import Live


class Terminal:
    """A :class:`~qbus.clients.pipelines.run.Watcher`; on a terminal it updates in place."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._lock = threading.Lock()
        self._live: Live | None = None
        self._lines = Lines()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.live import Live

            self._live = Live(console=stderr_console(), transient=True, auto_refresh=False)
            self._live.start()
            self.show("Starting Spark ...")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def show(self, text: str) -> None:
        """Replace the text that is shown."""
        if self._live is not None:
            with self._lock:
                self._live.update(text, refresh=True)

    def progress(self, tallies: Sequence[Tally]) -> None:
        """Show the progress of each query."""
        if self._live is None:
            self._lines.progress(tallies)
        else:
            self.show("\n".join(map(summary, tallies)))

    def working(self, text: str) -> None:
        """Show what Spark is working on."""
        if self._live is None:
            self._lines.working(text)
        else:
            self.show(text)

    def rows(self, rows: Sequence[dict[str, Any]]) -> None:
        """Print results, as a table or as JSON objects."""
        with self._lock:
            if self._live is not None:
                self._live.stop()
            self._print(rows)
            if self._live is not None:
                self._live.start(refresh=True)

    def _print(self, rows: Sequence[dict[str, Any]]) -> None:
        if self._as_json:
            for row in rows:
                click.echo(json.dumps(row, default=_text, ensure_ascii=False))
            return
        columns = [f"#{key}" if _is_number(rows, key) else key for key in rows[0]]
        cells = ([_text(value) for value in row.values()] for row in rows)
        stdout_console().print(table(*columns, rows=cells))

    def note(self, text: str) -> None:
        """Print a line on stderr."""
        if self._live is None:
            note(text)
        else:
            with self._lock:
                self._live.console.print(text)


def _is_number(rows: Sequence[dict[str, Any]], key: str) -> bool:
    return any(isinstance(row[key], int | float) for row in rows)


def _text(value: object) -> object:
    if isinstance(value, float):
        return f"{value:,.6g}"
    return value if value is None or isinstance(value, list | bool) else str(value)
