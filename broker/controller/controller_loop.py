"""What the active controller does on its own: elections, reassignments, rebalancing, pruning.

Every broker runs this loop and stands for controller when there is none. Each change in the cluster
wakes the loop, which examines the affected topics and writes what is due. Event callbacks never
block.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress

from qbus.config import BrokerConfig
from qbus.errors import ApiError
from qbus.metadata import MetadataStore, NodeError, Op, StoreError
from qbus.metadata.feed import decide, prune
from qbus.metadata.znodes import ChangeNode

from ..metadata.cache import MetadataCache
from ..metadata.image import (
    BrokerConfigChanged,
    BrokersChanged,
    ClientQuotasChanged,
    Event,
    GroupConfigChanged,
    Topic,
    TopicDeleted,
    UserConfigChanged,
)
from .controller_election import ControllerElection
from .elections import StateChange, current_view, due_elections, preferred_elections
from .reassignments import complete, writes
from .state_writer import StateWriter

_log = logging.getLogger(__name__)

_PRUNE_S = 1.0
_RETRY_S = 1.0


class ControllerLoop:
    """Stands for controller, and elects leaders while this broker is the controller."""

    def __init__(
        self,
        store: MetadataStore,
        metadata: MetadataCache,
        election: ControllerElection,
        config: BrokerConfig,
        *,
        retry_s: float = _RETRY_S,
    ) -> None:
        """``retry_s``: seconds to wait after the store failed."""
        self.elections = self.pruned = 0
        self._store = store
        self._metadata = metadata
        self._election = election
        self._config = config
        self._retry_s = retry_s
        self._writer = StateWriter(store, metadata)
        self._wake = asyncio.Event()
        self._everything = True
        self._touched: set[str] = set()
        self._was_active = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Stand for controller, decide what is due, and continue in the background.

        Raises:
            StoreUnavailable: the store cannot be used.
        """
        self._metadata.subscribe(self._notice, is_first=True)  # elections wait for no disk here
        await self.decide_due()
        self._tasks = [
            asyncio.create_task(self._keep_deciding()),
            asyncio.create_task(self._prune()),
        ]
        if self._config.auto_leader_rebalance_enable:
            self._tasks.append(asyncio.create_task(self._rebalance()))

    async def stop(self) -> None:
        """Stop deciding."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task

    async def decide_due(self) -> None:
        """Stand for controller, and as the controller write what is due.

        Raises:
            StoreUnavailable: the store cannot be used.
        """
        if not await self._election.stand():
            self._was_active = False
            return
        if not self._was_active:
            _log.info("this broker is now the controller")
            self._everything = self._was_active = True
        touched = self._next_touched()
        try:
            self.elections += await self._writer.write_due(lambda: self._due(touched), self._guards)
            await self._complete_moves(self._topics(touched))
        except BaseException:
            self._everything = True
            raise

    def _next_touched(self) -> set[str] | None:
        """Take the names of the topics to examine; None means all."""
        touched = None if self._everything else self._touched
        self._everything, self._touched = False, set()
        return touched

    def _due(self, touched: set[str] | None) -> list[StateChange]:
        if not self._election.is_held:
            return []
        return due_elections(self._topics(touched), current_view(self._metadata))

    async def _complete_moves(self, topics: Iterable[Topic]) -> None:
        """Complete reassignments whose target replicas are all in sync (KIP-455)."""
        view = current_view(self._metadata)
        for topic in list(topics):
            if not self._election.is_held:
                return
            rules = view.rules(topic)
            ends = {
                index: move
                for index, partition in enumerate(topic.partitions)
                if partition.is_moving and (move := complete(partition, view, rules)) is not None
            }
            if ends:
                change = ChangeNode(topics=(topic.name,))
                try:
                    await decide(self._store, self._guards(), writes(topic, ends), change)
                except NodeError:  # another write came first: examine the topic again
                    self._touched.add(topic.name)
                    self._wake.set()
                    await self._metadata.catch_up()

    async def _rebalance(self) -> None:
        """Elect preferred leaders at intervals."""
        while True:
            await asyncio.sleep(self._config.leader_imbalance_check_interval_seconds)
            try:
                await self.rebalance()
            except (StoreError, ApiError) as error:
                _log.info("rebalancing of leaders failed, retrying at the next interval: %s", error)

    async def rebalance(self) -> None:
        """Elect preferred leaders where too many do not lead, if this broker is the controller.

        Raises:
            StoreUnavailable: the store cannot be used.
        """
        share = self._config.leader_imbalance_per_broker_percentage

        def due_now() -> list[StateChange]:
            if not self._election.is_held:
                return []
            return preferred_elections(
                self._metadata.topics.values(), current_view(self._metadata), share
            )

        self.elections += await self._writer.write_due(due_now, self._guards)

    def _topics(self, touched: set[str] | None) -> Iterable[Topic]:
        known = self._metadata.topics
        if touched is None:
            return known.values()
        return [known[name] for name in touched if name in known]

    def _guards(self) -> list[Op]:
        return [self._metadata.fence()]

    def _notice(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case BrokersChanged() | BrokerConfigChanged():
                    self._everything = True
                case (
                    TopicDeleted()
                    | GroupConfigChanged()
                    | UserConfigChanged()
                    | ClientQuotasChanged()
                ):
                    continue
                case _:
                    self._touched.add(event.topic.name)
            self._wake.set()

    async def _keep_deciding(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.decide_due()
            except (StoreError, ApiError) as error:
                _log.warning(
                    "the controller cannot write to the metadata store, retrying: %s", error
                )
            except Exception:  # noqa: BLE001 - the cluster needs a controller
                _log.exception("the controller failed, retrying")
            else:
                if self._metadata.cluster.controller is not None:
                    continue
            await asyncio.sleep(self._retry_s)
            self._wake.set()

    async def _prune(self) -> None:
        """Prune the feed at intervals."""
        while True:
            await asyncio.sleep(_PRUNE_S)
            if self._election.is_held:
                try:
                    self.pruned += await prune(self._store)
                except StoreError as error:
                    _log.info("pruning the feed of changes failed, retrying: %s", error)
