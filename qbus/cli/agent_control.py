"""What agents have in ZooKeeper, for the command."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click

from qbus.agent.config import AgentConfig, parse
from qbus.agent.control.nodes import AGENTS, config_path, status_path
from qbus.errors import ConfigError
from qbus.metadata import (
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    Set,
    StoreUnusable,
    VersionConflict,
)
from qbus.metadata.zookeeper import ZooKeeperAddress
from qbus.names import unescape

from .failures import Failure

_TIMEOUT_S = 5.0
_ANY_VERSION = -1

Status = dict[str, Any]


@asynccontextmanager
async def administration(zookeeper: str | None) -> AsyncIterator[MetadataStore]:
    """A session with the ZooKeeper of the agents; Failure where there is none."""
    if zookeeper is None:
        raise click.UsageError("Missing option '--zookeeper'.")
    from qbus.metadata.zookeeper.store import ZooKeeperStore

    address = ZooKeeperAddress.parse(zookeeper)
    try:
        async with ZooKeeperStore(address, connection_timeout_s=_TIMEOUT_S) as store:
            yield store
    except StoreUnusable as error:
        raise Failure(f"{error}; name another with --zookeeper HOST:PORT.") from error


def check(text: bytes, origin: str, *, is_central: bool) -> AgentConfig:
    """The configuration in ``text``; Failure, beginning with ``origin``, for what is none."""
    defaults = {"bootstrap": "zk://of-the-agent"} if is_central else {}
    try:
        return parse(text, **defaults)
    except ConfigError as error:
        raise Failure(f"{origin}: {error}") from error


async def read_config(store: MetadataStore, name: str) -> dict[str, Any]:
    """The configuration of ``name``; Failure if it has none."""
    node = await store.get(config_path(name))
    if node is None or not node.data:
        raise Failure(f"{name} has no configuration.")
    return {"name": name, "version": node.version, "text": node.data.decode(errors="replace")}


async def write_config(
    store: MetadataStore, name: str, text: bytes, if_version: int | None
) -> dict[str, Any]:
    """Set it, or create it; Failure when it is not at ``if_version`` (-1: not there)."""
    path = config_path(name)
    try:
        if if_version == -1 or await store.get(path) is None:
            if if_version is not None and if_version >= 0:
                raise Failure(f"{name} has no configuration, so none of version {if_version}.")
            await store.transaction([Create(path, text)])
            return {"name": name, "version": 0}
        expected = _ANY_VERSION if if_version is None else if_version
        (version,) = await store.transaction([Set(path, text, expected)])
    except (VersionConflict, NodeExists, NoNode) as error:
        raise Failure(f"the configuration of {name} was changed by somebody else.") from error
    return {"name": name, "version": version}


async def delete_config(store: MetadataStore, name: str) -> None:
    """Remove it; Failure if there is none."""
    try:
        await store.transaction([Delete(config_path(name))])
    except NoNode as error:
        raise Failure(f"{name} has no configuration.") from error


async def read_statuses(store: MetadataStore, names: Sequence[str]) -> list[Status]:
    """The statuses of agents that run; Failure for a name that none of them has."""
    wanted = names or [unescape(node) for node in await store.children(AGENTS)]
    nodes = await store.get_many([status_path(name) for name in wanted])
    found = []
    for name in wanted:
        node = nodes.get(status_path(name))
        if node is not None:
            found.append(_decode(node.data, name))
        elif names:
            raise Failure(f"no agent {name} is connected to ZooKeeper.")
    return found


def read_local(data_dir: Path) -> Status:
    """The status that the agent with this directory wrote; Failure if none did.

    Its ``running`` says whether that agent lives.
    """
    from qbus.agent.exclusive import DirectoryInUse, Exclusive
    from qbus.agent.status.reporter import FILE

    try:
        status = _decode((data_dir / FILE).read_bytes(), str(data_dir))
    except FileNotFoundError as error:
        raise Failure(f"no agent has run with {data_dir}.") from error
    lock = Exclusive(data_dir / "lock")
    try:
        lock.acquire()
    except DirectoryInUse:
        return {**status, "running": True}
    lock.release()
    return {**status, "running": False}


def _decode(data: bytes, name: str) -> Status:
    try:
        status: Status = json.loads(data)
    except ValueError as error:
        raise Failure(f"the status of {name} cannot be read: {error}") from error
    return {**status, "running": True}
