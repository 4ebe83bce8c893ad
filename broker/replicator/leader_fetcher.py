"""What the partitions that follow one leader go through, until they follow another.

Each is settled with the leader, then asked for. What an answer brings is appended at once; a
durable partition is asked for again only when that is stable, for asking is acknowledging. What
fails rests alone: the others go on.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from functools import partial

from qbus.clock import Clock
from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.fetch import PartitionData

from .counts import Counts
from .delay_queue import DelayQueue
from .fetch_loop import FetchLoop
from .log_reconciliation import LogReconciliation
from .partition_fetch_state import PartitionFetchState, Phase
from .peer_connection import PeerFailed
from .peers import Peers
from .refetching import Refetching
from .session import Key
from .settings import FetchSettings
from .taking import PartedError, take
from .throttle import Throttle

_log = logging.getLogger(__name__)

_WORTH_A_WORD = 4
"""Failures in a row; fewer are usual where leaders change: not all brokers hear of it at once."""
_LOOK_AGAIN_S = 0.5  # at a replica that must not begin anew yet


class LeaderFetcher:
    """Follows one leader with as many partitions as there are, until it is closed."""

    def __init__(
        self,
        leader_id: int,
        peers: Peers,
        settings: FetchSettings,
        throttle: Throttle,
        refetching: Refetching,
        counts: Counts,
        clock: Clock,
    ) -> None:
        self._leader_id = leader_id
        self._peers = peers
        self._throttle = throttle
        self._refetching = refetching
        self._clock = clock
        self._counts = counts
        self._partitions: dict[Key, PartitionFetchState] = {}
        self._loop = FetchLoop(leader_id, peers, settings, counts, self._take)
        self._settling = LogReconciliation(
            settings.node_id, settings.timeout_s, self._settled, self._failed
        )
        self._unsettled: list[PartitionFetchState] = []
        self._resting: DelayQueue[PartitionFetchState] = DelayQueue(self._rested)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_started = False

    def __iter__(self) -> Iterator[PartitionFetchState]:
        return iter(list(self._partitions.values()))

    def __len__(self) -> int:
        return len(self._partitions)

    def start(self) -> None:
        """Begin to copy."""
        self._is_started = True
        self._spawn(self._loop.run())
        self._settle_soon()

    def follow(self, one: PartitionFetchState) -> None:
        """Copy a partition, too."""
        self._partitions[one.key] = one
        one.replica.on_stable = partial(self._stable, one)
        self._unsettle(one)

    def forget(self, one: PartitionFetchState) -> None:
        """Copy a partition no more."""
        one.phase = Phase.GONE
        if self._partitions.get(one.key) is one:
            del self._partitions[one.key]
            self._loop.drop(one.key)

    async def close(self) -> None:
        """Copy nothing any more; returns when nothing is under way."""
        self._is_started = False
        for one in self:
            self.forget(one)
        self._resting.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Fetching

    def _go_on(self, one: PartitionFetchState) -> None:
        """Ask for what follows, as soon as all before is stable."""
        if not one.is_stable:
            one.phase = Phase.FLUSHING
            self._loop.hold(one.key)
            one.replica.flush()
        elif one.lag and self._is_throttled(one) and (wait := self._throttle.wait()):
            self._rest(one, wait)
        else:
            one.phase = Phase.FETCHING
            self._loop.ask(one.key, one.aim(self._clock.monotonic()))

    def _stable(self, one: PartitionFetchState) -> None:
        if one.phase is Phase.FLUSHING and one.is_stable and one.is_current:
            self._go_on(one)

    def _take(self, key: Key, data: PartitionData) -> None:
        one = self._partitions[key]
        if not one.is_current:
            self._loop.drop(key)
            return
        try:
            size = take(one, data)
        except PartedError as parted:
            _log.info("%s: %s", one, parted)
            one.is_settled = False
            self._rest(one, one.backoff.failed())
        except ApiError as error:
            self._failed(one, error.code)
        except Exception:  # noqa: BLE001 - one partition's trouble is no other's
            _log.exception("%s cannot be copied", one)
            self._failed(one, ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            self._counts.bytes += size
            if size and one.lag and self._is_throttled(one):
                self._throttle.spend(size)
            if size or one.has_moved:
                self._go_on(one)

    def _is_throttled(self, one: PartitionFetchState) -> bool:
        return self._throttle.applies(one.replica.topic, one.replica.index)

    # Failing

    def _failed(self, one: PartitionFetchState, code: ErrorCode) -> None:
        self._counts.failures += 1
        self._counts.corrupt += code is ErrorCode.CORRUPT_MESSAGE
        one.is_failing = True
        pause = one.backoff.failed()
        if one.backoff.failures == _WORTH_A_WORD:
            _log.warning("%s cannot be copied from broker %d: %s", one, self._leader_id, code.name)
        self._rest(one, pause)

    def _rest(self, one: PartitionFetchState, seconds: float) -> None:
        one.phase = Phase.RESTING
        self._loop.drop(one.key)
        self._resting.add(one, seconds)

    def _rested(self, one: PartitionFetchState) -> None:
        if one.phase is not Phase.RESTING or not one.is_current:
            return
        if one.is_settled and not one.is_lost:
            self._go_on(one)
        else:
            self._unsettle(one)

    # Settling

    def _unsettle(self, one: PartitionFetchState) -> None:
        one.phase = Phase.UNSETTLED
        self._loop.drop(one.key)
        self._unsettled.append(one)
        self._settle_soon()

    def _settled(self, one: PartitionFetchState) -> None:
        one.is_settled = True
        self._go_on(one)

    def _settle_soon(self) -> None:
        if self._is_started and self._unsettled:
            asyncio.get_running_loop().call_soon(self._settle_all)

    def _settle_all(self) -> None:
        """All that came in this turn of the event loop, at once."""
        unsettled, self._unsettled = self._unsettled, []
        for one in unsettled:
            if not _is_waiting(one):
                continue
            if one.replica.is_being_cut:  # what is about to go is nothing to tell this leader of
                self._rest(one, 0.0)
            elif one.is_lost and not self._refetching.may_begin(one):
                one.is_failing = True
                self._rest(one, _LOOK_AGAIN_S)
            elif not one.needs_leader:
                self._settled(one)
        waiting = [one for one in unsettled if _is_waiting(one)]
        if waiting and self._is_started:
            self._spawn(self._settle(waiting))

    async def _settle(self, waiting: list[PartitionFetchState]) -> None:
        """On a connection of its own: the other one may be held by a fetch that waits."""
        try:
            async with self._peers.connect(self._leader_id) as connection:
                await self._settling.settle(connection, waiting)
        except PeerFailed as error:
            _log.debug("cannot be settled with broker %d: %s", self._leader_id, error)
        except Exception:  # noqa: BLE001 - it is tried again
            _log.exception("settling with broker %d failed", self._leader_id)
        for one in waiting:
            if _is_waiting(one):
                self._rest(one, one.backoff.failed())

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("copying from broker %d failed", self._leader_id, exc_info=error)


def _is_waiting(one: PartitionFetchState) -> bool:
    return one.phase is Phase.UNSETTLED and one.is_current
