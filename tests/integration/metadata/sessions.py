"""Sessions with a ZooKeeper under faults."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from qbus.metadata import SessionState
from qbus.metadata.zookeeper import ZooKeeperAddress
from qbus.metadata.zookeeper.store import ZooKeeperStore
from tests.support.waiting import eventually

CONNECTED, SUSPENDED, LOST = SessionState

chroot = "/"


class Watched(ZooKeeperStore):
    """A store that records its states."""

    def __init__(self, address: str, **options: Any) -> None:
        super().__init__(ZooKeeperAddress.parse(address), **options)
        self.states: list[SessionState] = []
        self.on_state(self.states.append)

    async def enters(self, *states: SessionState, timeout: float = 30.0) -> None:
        await eventually(lambda: self.state in states, timeout)

    @asynccontextmanager
    async def passing(self, state: SessionState, timeout: float = 30.0) -> AsyncIterator[None]:
        """Wait, after the body, until the store has been in ``state`` since before it.

        A store that finds another server leaves the state before anybody looks.
        """
        before = len(self.states)
        yield
        await eventually(lambda: state in self.states[before:], timeout)


@asynccontextmanager
async def session(servers: str, timeout: float = 4.0, **options: Any) -> AsyncIterator[Watched]:
    """A session below the test's own chroot."""
    async with Watched(f"{servers}{chroot}", session_timeout_s=timeout, **options) as store:
        yield store


async def expire(store: ZooKeeperStore) -> None:
    """End the session of ``store`` on the server, as after a long silence."""

    def end() -> None:
        ours = store._session._client
        other = KazooClient(store._session.address.hosts, client_id=ours.client_id)
        other.start()
        other.stop()
        other.close()

    await asyncio.to_thread(end)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@contextmanager
def kazoo_client(address: str) -> Iterator[KazooClient]:
    """A client of ZooKeeper that nobody here wrote; ``address`` may have a chroot."""
    client = KazooClient(address)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()
