"""Groups change hands: when brokers come and go, and when the session with the store ends.

A group belongs to one of the brokers that live (:mod:`.ownership`), but two may take it for theirs
at the same time: one has not heard yet of who came or went, or was stopped for longer than its
session lasts, and does not know it. What keeps the two apart is the store, not what they believe:

- Every write of a group, its offsets too, checks the group's fence, which is its coordinator's, and
  loading a group replaces that before anything else is read (:mod:`.loader`). So there is one
  broker at a time that can write, whoever loaded last. All that was acknowledged before is seen by
  the loader; whatever its predecessor tries later fails, is answered NOT_COORDINATOR, and has it
  let go.
- Commits, new generations and assignments are answered when they are stored. So no two brokers
  accept commits of a group, or make different things of one generation.
- Committed offsets are handed out after the store confirmed the fence, in the same transactions
  as commits. So nobody starts again from where a group was before a takeover.
- What is answered from memory alone is true of the generation that it names, which nobody can
  change: who asks again for the assignment of that generation gets the one that was stored. A
  heartbeat may be told that a generation goes on which is over, until this broker hears of the
  takeover; the member learns of it with its next commit at the latest.

While the connection to the store is suspended nothing can be stored or confirmed: everything is
refused with COORDINATOR_NOT_AVAILABLE except heartbeats. Those are answered for STORE_TIMEOUT_S,
which is shorter than any member's session, so an election in the ensemble costs no membership.
Another broker takes over when the session has ended, and starts all members' sessions anew; so the
members that found it out late are still in time. After STORE_TIMEOUT_S all groups are let go.

A takeover is no rebalance: members keep their generation and their assignment. Groups are loaded at
once, before anybody asks for them, so that members that died together with their coordinator are
missed.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from qbus.clock import Clock
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import MetadataStore, SessionState

from ..metadata.image import BrokersChanged, Event
from .ownership import Ownership
from .registry import GroupRegistry
from .timers import STORE_TIMEOUT_S, Timer, Timers

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0


class CoordinatorFailover:
    """Lets go of groups that are not this broker's any more, and loads those that are now."""

    def __init__(
        self,
        registry: GroupRegistry,
        ownership: Ownership,
        store: MetadataStore,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._registry = registry
        self._ownership = ownership
        self._store = store
        self._clock = clock
        self._timers = timers
        self._candidates = frozenset[int]()
        self._is_running = False
        self._timer: Timer | None = None  # until groups are let go, or loading is tried again
        self._loading: asyncio.Task[None] | None = None
        self._is_due = False
        store.on_state(self._on_state)

    def start(self) -> None:
        """Begin to load all groups that are this broker's; those that are asked for come first."""
        self._is_running = True
        self._candidates = self._ownership.candidates
        self._load()

    def stop(self) -> None:
        """Take nothing over any more."""
        self._is_running = False
        self._stop_timer()
        if self._loading is not None:
            self._loading.cancel()

    def follow(self, events: Sequence[Event]) -> None:
        """Brokers may have come or gone."""
        candidates = self._ownership.candidates
        if candidates == self._candidates or not any(isinstance(e, BrokersChanged) for e in events):
            return
        self._candidates = candidates
        for metadata in self._registry:
            if not self._ownership.is_ours(metadata.group_id):
                self._registry.unload(metadata, ErrorCode.NOT_COORDINATOR)
        self._load()

    def _on_state(self, state: SessionState) -> None:
        self._stop_timer()
        if state is SessionState.CONNECTED:
            self._load()
        elif state is SessionState.LOST:
            self._unload_all(ErrorCode.NOT_COORDINATOR)
        elif self._is_running:
            self._call_in(STORE_TIMEOUT_S, self._time_out)

    def _time_out(self) -> None:
        self._unload_all(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _unload_all(self, error: ErrorCode) -> None:
        for metadata in self._registry:
            self._registry.unload(metadata, error)

    def _load(self) -> None:
        """Look for groups to load, once more if that is under way."""
        self._is_due = self._is_running
        if self._is_due and (self._loading is None or self._loading.done()):
            self._loading = asyncio.create_task(self._load_while_due(), name="take over groups")

    async def _load_while_due(self) -> None:
        while self._is_due:
            self._is_due = False
            try:
                await self._registry.load_all()
            except ApiError as error:
                _log.warning("cannot take groups over: %s", error)
                if self._store.state is SessionState.CONNECTED:
                    self._call_in(_RETRY_SECONDS, self._load)

    def _call_in(self, seconds: float, call: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self._timers.call_at(self._clock.monotonic() + seconds, call)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
