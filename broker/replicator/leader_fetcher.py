"""Fetches partitions from one leader.

Each partition is first reconciled with the leader, then fetched. Records are appended as soon as
they arrive. A durable partition is fetched again only when they are flushed, since the offset in a
fetch request acknowledges everything before it. A partition that fails is delayed on its own.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from functools import partial

from qbus.clock import Clock
from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.fetch import PartitionData

from ..peers.client import PeerClient
from ..peers.connection import PeerError
from .delay_queue import DelayQueue
from .fetch_loop import FetchLoop, FetchSettings
from .log_reconciliation import LogReconciliation
from .metrics import FetchMetrics
from .partition_fetch_state import DivergedError, PartitionFetchState, Phase
from .repair import RebuildGuard
from .session import Key
from .throttle import Throttle

_log = logging.getLogger(__name__)

_WARN_AFTER_FAILURES = 4
"""Failures in a row; fewer are usual when a leader changes: brokers learn of it one by one."""
_REBUILD_RETRY_S = 0.5


class LeaderFetcher:
    """Fetches any number of partitions from one leader, until it is closed."""

    def __init__(
        self,
        leader_id: int,
        peers: PeerClient,
        settings: FetchSettings,
        throttle: Throttle,
        rebuild_guard: RebuildGuard,
        metrics: FetchMetrics,
        clock: Clock,
    ) -> None:
        self._leader_id = leader_id
        self._peers = peers
        self._throttle = throttle
        self._rebuild_guard = rebuild_guard
        self._clock = clock
        self._metrics = metrics
        self._partitions: dict[Key, PartitionFetchState] = {}
        self._loop = FetchLoop(leader_id, peers, settings, metrics, self._handle)
        self._reconciliation = LogReconciliation(
            settings.node_id, settings.timeout_s, self._reconciled, self._fail
        )
        self._unreconciled: list[PartitionFetchState] = []
        self._delayed: DelayQueue[PartitionFetchState] = DelayQueue(self._resume)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._spawn(self._loop.run())

    def __iter__(self) -> Iterator[PartitionFetchState]:
        return iter(list(self._partitions.values()))

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, state: PartitionFetchState) -> None:
        """Fetch a partition, too."""
        self._partitions[state.key] = state
        state.replica.on_stable = partial(self._flushed, state)
        self._reconcile(state)

    def remove(self, state: PartitionFetchState) -> None:
        """Stop fetching a partition."""
        state.phase = Phase.REMOVED
        if self._partitions.get(state.key) is state:
            del self._partitions[state.key]
            self._loop.remove(state.key)

    async def close(self) -> None:
        """Stop fetching; return when nothing is under way."""
        self._is_closed = True
        for state in self:
            self.remove(state)
        self._delayed.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Fetching

    def _fetch(self, state: PartitionFetchState) -> None:
        """Fetch what follows the log's end, once all before it is stable."""
        if not state.is_stable:
            state.phase = Phase.FLUSHING
            self._loop.pause_for_flush(state.key)
            state.replica.flush()
        elif state.lag and self._is_throttled(state) and (wait := self._throttle.wait()):
            self._delay(state, wait)
        else:
            state.phase = Phase.FETCHING
            self._loop.add(state.key, state.next_request(self._clock.monotonic()))

    def _flushed(self, state: PartitionFetchState) -> None:
        if state.phase is Phase.FLUSHING and state.is_stable and state.is_current:
            self._fetch(state)

    def _handle(self, key: Key, data: PartitionData) -> None:
        state = self._partitions[key]
        if not state.is_current:
            self._loop.remove(key)
            return
        try:
            size = state.handle(data)
        except DivergedError as diverged:
            _log.info("%s: %s", state, diverged)
            state.is_reconciled = False
            self._delay(state, state.backoff.failed())
        except ApiError as error:
            self._fail(state, error.code)
        except Exception:  # noqa: BLE001 - other partitions must not suffer
            _log.exception("%s: unexpected error while handling fetched data", state)
            self._fail(state, ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            self._metrics.bytes += size
            if size and state.lag and self._is_throttled(state):
                self._throttle.spend(size)
            if size or state.is_log_start_news:
                self._fetch(state)

    def _is_throttled(self, state: PartitionFetchState) -> bool:
        return self._throttle.applies(state.replica.topic, state.replica.index)

    # Delays

    def _fail(self, state: PartitionFetchState, code: ErrorCode) -> None:
        self._metrics.failures += 1
        self._metrics.corrupt += code is ErrorCode.CORRUPT_MESSAGE
        state.is_failing = True
        pause = state.backoff.failed()
        if state.backoff.failures == _WARN_AFTER_FAILURES:
            _log.warning("%s: cannot fetch from broker %d: %s", state, self._leader_id, code.name)
        self._delay(state, pause)

    def _delay(self, state: PartitionFetchState, seconds: float) -> None:
        state.phase = Phase.DELAYED
        self._loop.remove(state.key)
        self._delayed.add(state, seconds)

    def _resume(self, state: PartitionFetchState) -> None:
        if state.phase is not Phase.DELAYED or not state.is_current:
            return
        if state.is_reconciled and not state.is_corrupt:
            self._fetch(state)
        else:
            self._reconcile(state)

    # Reconciliation

    def _reconcile(self, state: PartitionFetchState) -> None:
        state.phase = Phase.RECONCILING
        self._loop.remove(state.key)
        self._unreconciled.append(state)
        self._reconcile_soon()

    def _reconciled(self, state: PartitionFetchState) -> None:
        state.is_reconciled = True
        self._fetch(state)

    def _reconcile_soon(self) -> None:
        if self._unreconciled and not self._is_closed:
            asyncio.get_running_loop().call_soon(self._reconcile_all)

    def _reconcile_all(self) -> None:
        """Reconcile together all partitions that were added in this turn of the event loop."""
        unreconciled, self._unreconciled = self._unreconciled, []
        for state in unreconciled:
            if not _is_waiting(state):
                continue
            if state.replica.is_truncating:  # its log still has records that are about to go
                self._delay(state, 0.0)
            elif state.is_corrupt and not self._rebuild_guard.may_rebuild(state):
                state.is_failing = True
                self._delay(state, _REBUILD_RETRY_S)
            elif not state.needs_leader:
                self._reconciled(state)
        waiting = [state for state in unreconciled if _is_waiting(state)]
        if waiting and not self._is_closed:
            self._spawn(self._reconcile_with_leader(waiting))

    async def _reconcile_with_leader(self, waiting: list[PartitionFetchState]) -> None:
        """Use a separate connection: the leader may hold a fetch request on its own."""
        try:
            async with self._peers.connect(self._leader_id) as connection:
                await self._reconciliation.run(connection, waiting)
        except PeerError as error:
            _log.debug("cannot reconcile logs with broker %d: %s", self._leader_id, error)
        except Exception:  # noqa: BLE001 - it is retried
            _log.exception(
                "unexpected error while reconciling logs with broker %d", self._leader_id
            )
        for state in waiting:
            if _is_waiting(state):
                self._delay(state, state.backoff.failed())

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("fetching from broker %d failed", self._leader_id, exc_info=error)


def _is_waiting(state: PartitionFetchState) -> bool:
    return state.phase is Phase.RECONCILING and state.is_current
