"""`qbus agent status` and `qbus agent files`: once, or again and again."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from qbus.cli.agent_control import Status, read_local, read_statuses
from qbus.cli.agent_tables import file_tables, status_table
from qbus.cli.central import administration
from qbus.cli.output import emit
from qbus.cli.watching import watching


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
        emit(_brief(statuses), status_table, as_json=as_json)
    elif data_dir is not None:

        async def read_local_again() -> list[Status]:
            return _brief(await _local(data_dir))

        await watching(read_local_again, status_table, as_json=as_json)
    else:
        async with administration(zookeeper) as store:

            async def read_again() -> list[Status]:
                return _brief(await read_statuses(store, names))

            await watching(read_again, status_table, as_json=as_json)


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


def _brief(statuses: list[Status]) -> list[Status]:
    """All but the files, of which there may be thousands."""
    return [
        {name: value for name, value in status.items() if name != "files"} for status in statuses
    ]
