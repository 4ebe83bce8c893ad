"""`qbus agent status` and `qbus agent files`: once, or again and again."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .agent_control import Status, administration, read_local, read_statuses
from .agent_tables import file_tables, status_table
from .output import emit, json_line, stdout_console

_INTERVAL_S = 1.0


async def show_status(
    names: Sequence[str],
    zookeeper: str | None,
    data_dir: Path | None,
    *,
    watch: bool,
    as_json: bool,
) -> None:
    """Print the statuses; on a terminal, with ``watch``, in place."""
    if not watch:
        statuses = await _once(names, zookeeper, data_dir)
        emit([_brief(status) for status in statuses], status_table, as_json=as_json)
    elif data_dir is not None:
        await _watch(lambda: _local(data_dir), as_json=as_json)
    else:
        async with administration(zookeeper) as store:
            await _watch(lambda: read_statuses(store, names), as_json=as_json)


async def show_files(
    names: Sequence[str], zookeeper: str | None, data_dir: Path | None, *, as_json: bool
) -> None:
    """Print the files of each agent."""
    statuses = await _once(names, zookeeper, data_dir)
    documents = [
        {
            "name": status["name"],
            "files": status["files"],
            "files_left_out": status["files_left_out"],
        }
        for status in statuses
    ]
    emit(documents, file_tables, as_json=as_json)


async def _once(names: Sequence[str], zookeeper: str | None, data_dir: Path | None) -> list[Status]:
    if data_dir is not None:
        return await _local(data_dir)
    async with administration(zookeeper) as store:
        return await read_statuses(store, names)


async def _local(data_dir: Path) -> list[Status]:
    return [await asyncio.to_thread(read_local, data_dir)]


async def _watch(read: Callable[[], Any], *, as_json: bool) -> None:
    """Show what ``read`` returns, every second."""
    if as_json or not sys.stdout.isatty():
        while True:
            statuses = [_brief(status) for status in await read()]
            if as_json:
                sys.stdout.buffer.write(json_line(statuses) + b"\n")
                sys.stdout.flush()
            else:
                stdout_console().print(status_table(statuses))
            await asyncio.sleep(_INTERVAL_S)
    from rich.live import Live

    console = stdout_console()
    with Live(console=console, screen=False, auto_refresh=False) as live:
        while True:
            live.update(status_table([_brief(status) for status in await read()]), refresh=True)
            await asyncio.sleep(_INTERVAL_S)


def _brief(status: Status) -> Status:
    """All but the files, of which there may be thousands."""
    return {name: value for name, value in status.items() if name != "files"}
