"""Central control: the configuration comes from ZooKeeper, the status goes there.

A session is begun, and begun anew whenever it is lost; meanwhile the agent does what it did.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from qbus.metadata import MetadataStore, SessionState, StoreError
from qbus.metadata.zookeeper import ZooKeeperAddress

from .configured import Configured, Origin
from .last_good import LastGood
from .nodes import config_path
from .publisher import Publisher

_log = logging.getLogger(__name__)

_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0


class CentralControl:
    """One agent's line to ZooKeeper. Run it as a task; it ends when cancelled."""

    def __init__(
        self,
        open_store: Callable[[], MetadataStore],
        name: str,
        group: str | None,
        configured: Configured,
        last_good: LastGood,
        status: Callable[[], dict[str, Any]],
    ) -> None:
        """``open_store`` makes stores that were not started yet; ``status``: what is published."""
        self._open_store = open_store
        self._name = name
        self._nodes = [config_path(one) for one in (name, group) if one is not None]
        self._configured = configured
        self.last_good = last_good
        self._status = status
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
                Publisher(store, self._name, self._status).run(),
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
        """Take the first configuration that there is: the agent's own goes before its group's."""
        found = [(path, await store.get(path, changed.set)) for path in self._nodes]
        for path, node in found:
            if node is not None and node.data:
                if await self._configured.take(node.data, Origin(path, node.version)):
                    self._keep(node.data)
                return
        self._configured.miss(f"there is no configuration at {' or '.join(self._nodes)}")

    def _keep(self, text: bytes) -> None:
        try:
            self.last_good.save(text)
        except OSError as error:
            _log.warning("%s cannot be written: %s", self.last_good.path, error)


def store_opener(address: ZooKeeperAddress, timeout_s: float) -> Callable[[], MetadataStore]:
    """Makes sessions with a ZooKeeper; raises ConfigError where its library is not installed."""
    from qbus.metadata.zookeeper.store import ZooKeeperStore  # noqa: PLC0415 - kazoo is optional

    return lambda: ZooKeeperStore(address, session_timeout_s=timeout_s)


async def start_with(configured: Configured, control: CentralControl, patience_s: float) -> None:
    """Return with a configuration in force if there is any: ZooKeeper's, else the one kept.

    ZooKeeper may take ``patience_s`` seconds to answer; what it says later comes into force then.
    Raises OSError.
    """
    try:
        async with asyncio.timeout(patience_s):
            await control.answered.wait()
    except TimeoutError:
        _log.warning("ZooKeeper has not answered for %g s", patience_s)
    if configured.config is None:
        await _take_kept(configured, control.last_good)


async def _take_kept(configured: Configured, last_good: LastGood) -> None:
    text = last_good.load()
    if text is None:
        _log.warning("there is no configuration yet, and nothing to do")
        return
    refused, reason = configured.refused, configured.reason
    if await configured.take(text, Origin(str(last_good.path))):
        configured.refused, configured.reason = refused, reason
