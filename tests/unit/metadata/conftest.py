"""The stores under the contract; each kind opens sessions with the same storage."""

import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pytest

from qbus.metadata import EmbeddedStore, MetadataStore
from qbus.metadata.served import ServedStore
from qbus.metadata.serving import StoreServer
from qbus.metadata.zookeeper import ZooKeeperAddress


class Backend(Protocol):
    """Storage and its sessions, one at a time."""

    async def open(self) -> MetadataStore:
        """Begin a session."""

    async def close(self) -> None:
        """End all sessions."""


class EmbeddedBackend:
    """A file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sessions: list[EmbeddedStore] = []

    async def open(self) -> MetadataStore:
        store = EmbeddedStore(self._path)
        await store.start()
        self._sessions.append(store)
        return store

    async def close(self) -> None:
        for store in self._sessions:
            await store.close()


class ServedBackend:
    """A file, which one store serves to sessions over streams."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sessions: list[ServedStore] = []
        self._server: StoreServer | None = None
        self._store: EmbeddedStore | None = None

    async def open(self) -> MetadataStore:
        if self._server is None:
            self._store = EmbeddedStore(self._path)
            await self._store.start()
            self._server = StoreServer(self._store)
        ours, theirs = socket.socketpair()
        self._server.serve(theirs)
        store = ServedStore(ours)
        await store.start()
        self._sessions.append(store)
        return store

    async def close(self) -> None:
        for session in self._sessions:
            await session.close()
        if self._server is not None and self._store is not None:
            await self._server.close()
            await self._store.close()


class ZooKeeperBackend:
    """A chroot of its own."""

    def __init__(self, servers: str) -> None:
        self._address = ZooKeeperAddress.parse(f"{servers}/{uuid4()}/store")
        self._sessions: list[MetadataStore] = []

    async def open(self) -> MetadataStore:
        from qbus.metadata.zookeeper.store import ZooKeeperStore

        store = ZooKeeperStore(self._address)
        await store.start()
        self._sessions.append(store)
        return store

    async def close(self) -> None:
        for store in self._sessions:
            await store.close()


@pytest.fixture(
    params=["embedded", "served", pytest.param("zookeeper", marks=pytest.mark.integration)],
)
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    backend: Backend
    if request.param == "embedded":
        backend = EmbeddedBackend(tmp_path / "metadata.db")
    elif request.param == "served":
        backend = ServedBackend(tmp_path / "metadata.db")
    else:
        backend = ZooKeeperBackend(request.getfixturevalue("zookeeper").bootstrap)
    yield backend
    await backend.close()


@pytest.fixture
async def store(backend: Backend) -> MetadataStore:
    return await backend.open()
