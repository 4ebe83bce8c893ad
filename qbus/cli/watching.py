"""Showing something again and again: in place on a terminal, else one after the other."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NoReturn

from qbus.cli.output import json_line, stdout_console

if TYPE_CHECKING:
    from rich.console import RenderableType

_INTERVAL_S = 1.0


def is_watched(watch: bool | None, *, as_json: bool) -> bool:
    """Whether to go on showing: as was asked, else on a terminal."""
    return sys.stdout.isatty() and not as_json if watch is None else watch


async def watching(
    read: Callable[[], Awaitable[Any]],
    present: "Callable[[Any], RenderableType]",
    *,
    as_json: bool,
) -> NoReturn:
    """Show the document that ``read`` returns every second: as JSON, or as ``present`` has it."""
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
