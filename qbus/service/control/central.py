"""Central control: the configuration comes from ZooKeeper, and the status goes there.

A lost session is replaced by a new one; meanwhile the daemon does what it did.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from qbus.metadata import MetadataStore, SessionState, StoreError
from qbus.metadata.zookeeper import ZooKeeperAddress
from qbus.service.backoff import Backoff
from qbus.service.control.configured import Configured, Origin
from qbus.service.control.file import LastGood
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
        last_good: LastGood | None = None,
    ) -> None:
        """``open_store`` makes stores that are not started yet.

        config_paths: nodes that may hold the configuration; the first that does counts.
        status_path, status: where the status is published, and what makes it. Its ``instance`` is
        unique to this process.
        last_good: keeps each configuration that came into force, for a start without ZooKeeper.
        """
        self._open_store = open_store
        self._config_paths = config_paths
        self._configured = configured
        self._status_path = status_path
        self._status = status
        self._last_good = last_good
        self._answered = asyncio.Event()
        self.is_connected = False

    async def start(self, patience_s: float) -> None:
        """Return with a configuration in force, if any: ZooKeeper's, else the last good one.

        ZooKeeper may take ``patience_s`` seconds to answer; what it says later comes into force
        then. Raises OSError where the last good one cannot be read.
        """
        try:
            async with asyncio.timeout(patience_s):
                await self._answered.wait()
        except TimeoutError:
            _log.warning("ZooKeeper has not answered for %g s", patience_s)
        if self._configured.config is None and self._last_good is not None:
            await self._apply_last_good(self._last_good)

    async def run(self) -> None:
        """Follow the configuration and publish the status, over any number of sessions."""
        backoff = Backoff(_PAUSE_S, _LONGEST_PAUSE_S, jitter=0)
        while True:
            store = self._open_store()
            try:
                await store.start()
                backoff.succeeded()
                await self._serve(store)
            except StoreError as error:
                _log.warning("no central control: %s; trying again", error)
            finally:
                self.is_connected = False
                await store.close()
            await asyncio.sleep(backoff.failed())

    async def _serve(self, store: MetadataStore) -> None:
        """Use one session until it is lost."""
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
                await self._read(store, changed)
            except StoreError as error:
                if store.state is SessionState.LOST:
                    return
                _log.warning("the configuration cannot be read: %s", error)
                await asyncio.sleep(_PAUSE_S)
            else:
                self._answered.set()
                await changed.wait()

    async def _read(self, store: MetadataStore, changed: asyncio.Event) -> None:
        """Put the first configuration that there is into force."""
        found = [(path, await store.get(path, changed.set)) for path in self._config_paths]
        for path, node in found:
            if node is not None and node.data:
                if await self._configured.accept(node.data, Origin(path, node.version)):
                    self._keep(node.data)
                return
        self._configured.missing(f"there is no configuration at {' or '.join(self._config_paths)}")

    def _keep(self, text: bytes) -> None:
        if self._last_good is not None:
            try:
                self._last_good.save(text)
            except OSError as error:
                _log.warning("%s cannot be written: %s", self._last_good.path, error)

    async def _apply_last_good(self, last_good: LastGood) -> None:
        text = last_good.load()
        if text is None:
            _log.warning("there is no configuration yet, and nothing to do")
            return
        refused, reason = self._configured.refused, self._configured.reason
        if await self._configured.accept(text, Origin(str(last_good.path))):
            self._configured.refused, self._configured.reason = refused, reason


def store_opener(address: ZooKeeperAddress, timeout_s: float) -> Callable[[], MetadataStore]:
    """Return what opens ZooKeeper sessions; ConfigError where its library is not installed."""
    from qbus.metadata.zookeeper.store import ZooKeeperStore  # noqa: PLC0415 - kazoo is optional

    return lambda: ZooKeeperStore(address, session_timeout_s=timeout_s)
