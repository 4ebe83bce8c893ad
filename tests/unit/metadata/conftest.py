"""Stores to hold to the contract. Each kind opens sessions with one and the same storage."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import pytest

from qbus.metadata import EmbeddedStore, MetadataStore


class Backend(Protocol):
    """Storage, and sessions with it. The session before has to be closed first."""

    async def open(self) -> MetadataStore:
        """Begin a session."""

    async def close(self) -> None:
        """End whatever sessions are left."""


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


@pytest.fixture(params=["embedded"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    backends = {"embedded": EmbeddedBackend}
    backend = backends[request.param](tmp_path / "metadata.db")
    yield backend
    await backend.close()


@pytest.fixture
async def store(backend: Backend) -> MetadataStore:
    return await backend.open()
