"""`qbus agent status` and `qbus agent files`: once, or again and again."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import click

from qbus.agent.control import AGENTS, status_path
from qbus.cli.agent.tables import file_tables, status_table
from qbus.cli.daemon_store import administration, decode_status, read_statuses
from qbus.cli.failures import Failure
from qbus.cli.output import Document, emit
from qbus.cli.running import watching
from qbus.metadata import MetadataStore
from qbus.names import unescape


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
        emit(_without_files(statuses), status_table, as_json=as_json)
    elif data_dir is not None:

        async def read_local_again() -> list[Document]:
            return _without_files(await _local(data_dir))

        await watching(read_local_again, status_table, as_json=as_json)
    else:
        async with _session(zookeeper) as store:

            async def read_again() -> list[Document]:
                return _without_files(await _connected(store, names))

            await watching(read_again, status_table, as_json=as_json)


async def show_files(
    names: Sequence[str], zookeeper: str | None, data_dir: Path | None, *, as_json: bool
) -> None:
    """Print the files of each agent."""
    documents = [
        {
            "name": status["name"],
            "running": status["running"],
            "files": status["files"],
            "files_left_out": status["files_left_out"],
        }
        for status in await _once(names, zookeeper, data_dir)
    ]
    emit(documents, file_tables, as_json=as_json)


async def _once(
    names: Sequence[str], zookeeper: str | None, data_dir: Path | None
) -> list[Document]:
    if data_dir is not None:
        return await _local(data_dir)
    async with _session(zookeeper) as store:
        return await _connected(store, names)


def _session(zookeeper: str | None) -> AbstractAsyncContextManager[MetadataStore]:
    if zookeeper is None:
        raise click.UsageError(
            "Name --zookeeper for the agents that are connected, or --data-dir for one here."
        )
    return administration(zookeeper)


async def _connected(store: MetadataStore, names: Sequence[str]) -> list[Document]:
    """The statuses of connected agents; Failure for a name that none of them has."""
    wanted = names or [unescape(node) for node in await store.children(AGENTS)]
    statuses = await read_statuses(store, {name: status_path(name) for name in wanted})
    for name in names:
        if name not in statuses:
            raise Failure(f"no agent {name} is connected to ZooKeeper.")
    return [{**status, "running": True} for status in statuses.values()]


async def _local(data_dir: Path) -> list[Document]:
    return [await asyncio.to_thread(_read_local, data_dir)]


def _read_local(data_dir: Path) -> Document:
    """The status that the agent with this directory wrote; Failure if none did.

    ``running`` in it says whether that agent still runs.
    """
    from qbus.agent.status import LOCK_FILE, STATUS_FILE
    from qbus.service.lock import is_locked

    try:
        status = decode_status((data_dir / STATUS_FILE).read_bytes(), str(data_dir))
    except FileNotFoundError as error:
        raise Failure(f"no agent has run with {data_dir}.") from error
    return {**status, "running": is_locked(data_dir / LOCK_FILE)}


def _without_files(statuses: list[Document]) -> list[Document]:
    """The statuses without their files, of which there may be thousands."""
    return [
        {name: value for name, value in status.items() if name != "files"} for status in statuses
    ]
