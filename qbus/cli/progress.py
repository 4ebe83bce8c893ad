"""Progress on stderr, for people only."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Less than this is done before a bar could be read.
_WORTH_A_BAR = 4_000_000


@contextmanager
def bytes_bar(
    description: str, total: int | None, *, always: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show a bar that the yielded function moves on by so many bytes.

    There is none where stderr is no terminal, where ``total`` is unknown, or, unless ``always``,
    where there is little to do.
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
