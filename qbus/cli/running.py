"""Running a command's coroutine: to its end, or again and again."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, NoReturn

import click

from qbus.cli.failures import TERMINATED
from qbus.cli.output import json_line, stdout_console

if TYPE_CHECKING:
    from rich.console import RenderableType


def run_to_end(command: Coroutine[Any, Any, None]) -> None:
    """Run ``command``; Ctrl-C and SIGTERM both cancel it, so that it can clean up."""
    try:
        asyncio.run(_cancelled_by_sigterm(command))
    except asyncio.CancelledError:
        raise click.exceptions.Exit(TERMINATED) from None


async def _cancelled_by_sigterm(command: Coroutine[Any, Any, None]) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await command


_INTERVAL_S = 1.0


def is_watched(watch: bool | None, *, as_json: bool) -> bool:
    """Whether to refresh: as asked for; by default on a terminal."""
    return sys.stdout.isatty() and not as_json if watch is None else watch


async def watching(
    read: Callable[[], Awaitable[Any]],
    present: "Callable[[Any], RenderableType]",
    *,
    as_json: bool,
) -> NoReturn:
    """Show the document that ``read`` returns every second, as JSON or through ``present``."""
    if as_json or not sys.stdout.isatty():
        while True:
            document = await read()
            if as_json:
                sys.stdout.buffer.write(json_line(document) + b"\n")
                sys.stdout.flush()
            else:
                stdout_console().print(present(document))
            await asyncio.sleep(_INTERVAL_S)
    from rich.live import Live

    with Live(console=stdout_console(), screen=False, auto_refresh=False) as live:
        while True:
            live.update(present(await read()), refresh=True)
            await asyncio.sleep(_INTERVAL_S)
