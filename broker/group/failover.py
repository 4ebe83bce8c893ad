"""Failover of groups to another coordinator, when brokers come and go or a session ends.

A group belongs to one live broker (:mod:`.ownership`), but two brokers may both believe that they
coordinate it: one has not yet heard of a change, or was paused for longer than its session without
noticing. The store keeps the two apart, not their beliefs:

- Every write of a group, including its offsets, checks the group's fence, which names one
  coordinator. Loading a group replaces the fence before it reads anything else (:mod:`.loader`). So
  only the broker that loaded the group last can write it. The loader sees everything that was
  acknowledged before. A later write of the predecessor fails, is answered NOT_COORDINATOR, and
  makes the predecessor unload the group.
- Commits, new generations and assignments are answered when they are stored. So two brokers never
  both accept commits of a group, and never disagree about a generation.
- Committed offsets are returned after the store confirmed the fence, in the same transactions as
  commits. So no member resumes from offsets that are older than a failover. Where offsets are in
  the log, a fence says nothing of who leads the log's partition: a group without a node has none,
  and a leader that was deposed may have made the node, or loaded the group last. There the store
  confirms who leads (:mod:`.leadership`), unless no other replica could: once for a group that has
  a node, as whoever is elected later takes the fence, and for others each time; also each time
  while transactions bring offsets, as whoever leads ends those without the fence.
- An answer from memory alone is true for the generation that it names, which cannot change: a
  repeated SyncGroup gets the assignment that was stored. Until this broker hears of the failover, a
  heartbeat may confirm a generation that is over; the member learns of it with its next commit at
  the latest.

While the connection to the store is suspended, nothing can be stored or confirmed, so all requests
but heartbeats are refused with COORDINATOR_NOT_AVAILABLE. Heartbeats are answered for
STORE_TIMEOUT_S, which is shorter than any member's session, so an election in the ensemble costs no
membership. Then all groups are unloaded. Another broker takes over when the session has ended, and
restarts all members' sessions, so members that notice late are still in time.

A failover is no rebalance: members keep their generation and assignment. The new coordinator loads
groups at once, before any request, so that the sessions of members that died with the former
coordinator expire.
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
    """Unloads groups that no longer belong to this broker, and loads those that now do."""

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
        self._timer: Timer | None = None  # until groups are unloaded, or loading is retried
        self._loading: asyncio.Task[None] | None = None
        self._is_due = False
        store.on_state(self._on_state)

    def start(self) -> None:
        """Begin to load all groups of this broker; requested groups come first."""
        self._is_running = True
        self._candidates = self._ownership.candidates
        self.load()

    def stop(self) -> None:
        """Stop loading groups."""
        self._is_running = False
        self._stop_timer()
        if self._loading is not None:
            self._loading.cancel()

    def follow(self, events: Sequence[Event]) -> None:
        """Handle brokers that came or went."""
        candidates = self._ownership.candidates
        if candidates == self._candidates or not any(isinstance(e, BrokersChanged) for e in events):
            return
        self._candidates = candidates
        for metadata in self._registry:
            if not self._ownership.is_ours(metadata.group_id):
                self._registry.unload(metadata, ErrorCode.NOT_COORDINATOR)
        self.load()

    def _on_state(self, state: SessionState) -> None:
        self._stop_timer()
        if state is SessionState.CONNECTED:
            self.load()
        elif state is SessionState.LOST:
            self._unload_all(ErrorCode.NOT_COORDINATOR)
        elif self._is_running:
            self._call_in(STORE_TIMEOUT_S, self._time_out)

    def _time_out(self) -> None:
        self._unload_all(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def unload_where(self, is_affected: Callable[[str], bool]) -> None:
        """Unload the groups with such ids: they belong to another broker, or are kept elsewhere."""
        for metadata in self._registry:
            if is_affected(metadata.group_id):
                self._registry.unload(metadata, ErrorCode.NOT_COORDINATOR)

    def _unload_all(self, error: ErrorCode) -> None:
        for metadata in self._registry:
            self._registry.unload(metadata, error)

    def load(self) -> None:
        """Load this broker's groups; if that is under way, do it once more afterwards."""
        self._is_due = self._is_running
        if self._is_due and (self._loading is None or self._loading.done()):
            self._loading = asyncio.create_task(self._load_while_due(), name="load groups")

    async def _load_while_due(self) -> None:
        while self._is_due:
            self._is_due = False
            try:
                await self._registry.load_all()
            except ApiError as error:
                _log.warning("cannot load groups, retrying: %s", error)
                if self._store.state is SessionState.CONNECTED:
                    self._call_in(_RETRY_SECONDS, self.load)

    def _call_in(self, seconds: float, call: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self._timers.call_at(self._clock.monotonic() + seconds, call)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
