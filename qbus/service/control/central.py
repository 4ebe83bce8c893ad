"""Central control: the configuration comes from ZooKeeper, the status goes there.

A session is begun, and begun anew whenever it is lost; meanwhile the daemon does what it did.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from qbus.metadata import MetadataStore, SessionState, StoreError
from qbus.metadata.zookeeper import ZooKeeperAddress
from qbus.service.control.configured import Configured, Origin
from qbus.service.control.publisher import Publisher

_log = logging.getLogger(__name__)

_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0


class CentralControl:
    """A daemon's line to ZooKeeper. Run it as a task; it ends when cancelled."""

    def __init__(
        self,
        open_store: Callable[[], MetadataStore],
        config_paths: Sequence[str],
        configured: Configured[Any],
        status_path: str,
        status: Callable[[], dict[str, Any]],
        *,
        keep: Callable[[bytes], None] | None = None,
    ) -> None:
        """``open_store`` makes stores that were not started yet.

        config_paths: nodes that may hold the configuration; the first that does counts.
        status_path, status: where what is published; its ``instance`` is this daemon's alone.
        keep: is given each configuration that came into force.
        """
        self._open_store = open_store
        self._config_paths = config_paths
        self._configured = configured
        self._status_path = status_path
        self._status = status
        self._keep = keep
        self.answered = asyncio.Event()
        """Set once ZooKeeper has said what there is, and that was taken or refused."""
        self.is_connected = False

    async def run(self) -> None:
        """Follow the configuration and publish the status, over any number of sessions."""
        pause = _PAUSE_S
        while True:
            store = self._open_store()
            try:
                await store.start()
                pause = _PAUSE_S
                await self._serve(store)
            except StoreError as error:
                _log.warning("no central control: %s; it is tried again", error)
            finally:
                self.is_connected = False
                await store.close()
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    async def _serve(self, store: MetadataStore) -> None:
        """Work with one session until it is lost."""
        lost = asyncio.Event()

        def on_state(state: SessionState) -> None:
            self.is_connected = state is SessionState.CONNECTED
            if state is SessionState.LOST:
                lost.set()

        store.on_state(on_state)
        on_state(store.state)
        tasks = [
            asyncio.create_task(work)
            for work in (
                self._follow(store),
                Publisher(store, self._status_path, self._status).run(),
                lost.wait(),
            )
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, store: MetadataStore) -> None:
        while True:
            changed = asyncio.Event()
            try:
                await self._look(store, changed)
            except StoreError as error:
                if store.state is SessionState.LOST:
                    return
                _log.warning("the configuration cannot be read: %s", error)
                await asyncio.sleep(_PAUSE_S)
            else:
                self.answered.set()
                await changed.wait()

    async def _look(self, store: MetadataStore, changed: asyncio.Event) -> None:
        """Take the first configuration that there is."""
        found = [(path, await store.get(path, changed.set)) for path in self._config_paths]
        for path, node in found:
            if node is not None and node.data:
                origin = Origin(path, node.version)
                if await self._configured.take(node.data, origin) and self._keep is not None:
                    self._keep(node.data)
                return
        self._configured.miss(f"there is no configuration at {' or '.join(self._config_paths)}")


def store_opener(address: ZooKeeperAddress, timeout_s: float) -> Callable[[], MetadataStore]:
    """Makes sessions with a ZooKeeper; raises ConfigError where its library is not installed."""
    from qbus.metadata.zookeeper.store import ZooKeeperStore  # noqa: PLC0415 - kazoo is optional

    return lambda: ZooKeeperStore(address, session_timeout_s=timeout_s)


async def first_answer(control: CentralControl, patience_s: float) -> bool:
    """Whether ZooKeeper has answered within ``patience_s`` seconds."""
    try:
        async with asyncio.timeout(patience_s):
            await control.answered.wait()
    except TimeoutError:
        _log.warning("ZooKeeper has not answered for %g s", patience_s)
        return False
    return True
