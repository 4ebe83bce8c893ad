"""Configurations and statuses of daemons in ZooKeeper, for the commands."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import click

from qbus.cli.failures import Failure
from qbus.cli.output import Document
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

_TIMEOUT_S = 5.0
_ANY_VERSION = -1


@asynccontextmanager
async def administration(zookeeper: str | None) -> AsyncIterator[MetadataStore]:
    """A session with the daemons' ZooKeeper; Failure if it cannot be reached."""
    if zookeeper is None:
        raise click.UsageError("Missing option '--zookeeper'.")
    from qbus.metadata.zookeeper.store import ZooKeeperStore

    address = ZooKeeperAddress.parse(zookeeper)
    try:
        async with ZooKeeperStore(address, connection_timeout_s=_TIMEOUT_S) as store:
            yield store
    except StoreUnusable as error:
        raise Failure(f"{error}; name another with --zookeeper HOST:PORT.") from error


async def read_config(store: MetadataStore, path: str, name: str) -> Document:
    """The configuration of ``name``; Failure if it has none."""
    node = await store.get(path)
    if node is None or not node.data:
        raise Failure(f"{name} has no configuration.")
    return {"name": name, "version": node.version, "text": node.data.decode(errors="replace")}


async def write_config(
    store: MetadataStore, path: str, name: str, text: bytes, if_version: int | None
) -> Document:
    """Store a configuration; Failure if the stored version is not ``if_version`` (-1: none)."""
    try:
        if if_version == -1 or await store.get(path) is None:
            if if_version is not None and if_version >= 0:
                raise Failure(f"{name} has no configuration, and no version {if_version}.")
            await store.transaction([Create(path, text)])
            return {"name": name, "version": 0}
        expected = _ANY_VERSION if if_version is None else if_version
        (version,) = await store.transaction([Set(path, text, expected)])
    except (VersionConflict, NodeExists, NoNode) as error:
        raise Failure(f"the configuration of {name} was changed by somebody else.") from error
    return {"name": name, "version": version}


async def delete_config(store: MetadataStore, path: str, name: str) -> None:
    """Remove a configuration; Failure if there is none."""
    try:
        await store.transaction([Delete(path)])
    except NoNode as error:
        raise Failure(f"{name} has no configuration.") from error


async def read_statuses(store: MetadataStore, paths: Mapping[str, str]) -> dict[str, Document]:
    """The statuses of daemons, by name; those that are not connected are left out.

    paths: the znode of each name.
    """
    nodes = await store.get_many([*paths.values()])
    found = ((name, nodes.get(path)) for name, path in paths.items())
    return {name: decode_status(node.data, name) for name, node in found if node is not None}


def decode_status(data: bytes, name: str) -> Document:
    """A status that the daemon ``name`` wrote; Failure for one that is not JSON."""
    try:
        status: Document = json.loads(data)
    except ValueError as error:
        raise Failure(f"the status of {name} cannot be read: {error}") from error
    return status
