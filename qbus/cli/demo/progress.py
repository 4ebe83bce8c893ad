"""Progress of the demo on stderr: bars on a terminal, lines elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from qbus.cli.output import note, stderr_console

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


class Progress(Protocol):
    """Receives the progress of the demo."""

    def begin(self, step: str, total: int | None = None) -> None:
        """Begin ``step``, which has ``total`` units."""

    def advance(self, count: int) -> None:
        """Add ``count`` finished units."""


@contextmanager
def shown() -> Iterator[Progress]:
    """Show progress on stderr."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    from rich import progress

    columns = (
        progress.TextColumn("{task.description:20}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeElapsedColumn(),
    )
    with progress.Progress(*columns, console=stderr_console()) as bars:
        result = Bars(bars)
        yield result
        result.finish()


class Lines:
    """A line for each step."""

    def begin(self, step: str, total: int | None = None) -> None:  # noqa: ARG002 - the protocol
        """Print the step."""
        note(f"{step} ...")

    def advance(self, count: int) -> None:
        """Print nothing."""


class Bars:
    """A bar for each step."""

    def __init__(self, bars: "RichProgress") -> None:
        self._bars = bars
        self._task: TaskID | None = None

    def begin(self, step: str, total: int | None = None) -> None:
        """Fill the last bar, and start a new one."""
        self.finish()
        self._task = self._bars.add_task(step, total=total)

    def advance(self, count: int) -> None:
        """Advance the bar."""
        if self._task is not None:
            self._bars.advance(self._task, count)

    def finish(self) -> None:
        """Fill the last bar."""
        if self._task is not None:
            total = self._bars.tasks[self._task].total or 1
            self._bars.update(self._task, total=total, completed=total)
            self._bars.stop_task(self._task)
