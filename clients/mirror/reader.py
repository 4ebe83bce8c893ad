"""The source's side of a link: fetches for all partitions that are copied, many at a time.

Partitions that have more to give are fetched in turn, several requests to each broker under way at
once, so that a long way costs little. Those that have not are asked for together, by requests that
wait at the broker.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple, Protocol

from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.service.token_bucket import RateLimit

from ..batches import FetchedBatches, FetchLimits, fetch_batches
from ..net.cluster import Cluster
from ..net.pool import Lane
from ..types import TopicPartition
from .chunks import Chunk
from .config import LinkConfig
from .identity import check_same_topic, ids_of
from .partitions import Copy, Phase
from .shares import Shares, poll_bytes, shares

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class Sink(Protocol):
    """Takes what is fetched, and learns of what fails."""

    @property
    def held_bytes(self) -> int:
        """What was taken and is still in memory."""

    def arrived(self, copy: Copy, chunk: Chunk) -> None:
        """There is something to send."""

    def failed(self, copy: Copy, error: QbusError) -> None:
        """A partition cannot be fetched."""

    def out_of_range(self, copy: Copy) -> None:
        """The source does not have what was asked for."""


class _Fetch(NamedTuple):
    """What is asked of one broker over one of its lanes."""

    node: int
    lane: int
    copies: dict[Copy, int]
    """With the run that each was in."""
    limits: FetchLimits
    is_poll: bool


class Reader:
    """Fetches from ``cluster`` for every copy that was given to :meth:`start`."""

    def __init__(self, cluster: Cluster, config: LinkConfig, sink: Sink, spawn: Spawn) -> None:
        self._cluster = cluster
        self._config = config
        self._transfer = config.transfer
        self._sink = sink
        self._spawn = spawn
        self._rate_limit = RateLimit(config.rate_limit_bytes, time.monotonic())
        self._ready: dict[Copy, int] = {}
        self._busy: set[Copy] = set()
        self._lanes: dict[tuple[int, int], _Fetch] = {}
        self._is_learning = False
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self, copy: Copy) -> None:
        """Fetch for a copy, now that it is known where to begin."""
        if any(fetch.copies.get(copy) == copy.run for fetch in self._lanes.values()):
            return
        self._ready[copy] = copy.run
        self._look_soon()

    def stop(self, copy: Copy) -> None:
        """Fetch no more for a copy; an answer that is on its way is ignored."""
        self._ready.pop(copy, None)
        self._busy.discard(copy)

    def wake(self) -> None:
        """There may be room again for more."""
        self._look_soon()

    def close(self) -> None:
        """Fetch nothing more; answers that are on their way are ignored."""
        self._is_closed = True
        self._ready.clear()
        self._busy.clear()
        if self._timer is not None:
            self._timer.cancel()

    # Whom to ask for what.

    def _look_soon(self, delay: float = 0.0) -> None:
        if self._is_closed:
            return
        if self._timer is not None and self._timer.when() <= time.monotonic() + delay:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay, self._look)

    def _look(self) -> None:
        """Ask for as much as may be asked for now."""
        self._timer = None
        delay = self._rate_limit.wait(time.monotonic())
        if delay:
            self._look_soon(delay)
            return
        busy: dict[int, list[Copy]] = {}
        idle: dict[int, list[Copy]] = {}
        for copy, node in self._led():
            if copy.is_current:
                idle.setdefault(node, []).append(copy)
            else:
                busy.setdefault(node, []).append(copy)
                self._busy.add(copy)
        brokers = busy.keys() | {fetch.node for fetch in self._lanes.values()}
        rate = self._config.rate_limit_bytes
        share = shares(self._transfer, len(self._busy), len(brokers), rate)
        for node, copies in busy.items():
            room = [copy for copy in copies if copy.held_bytes < share.held]
            self._fetch_busy(node, room, share)
        for node, copies in idle.items():
            self._poll(node, copies)

    def _led(self) -> list[tuple[Copy, int]]:
        """Copies that are ready, and the brokers to ask; who leads the others is found out."""
        metadata = self._cluster.metadata
        missing = set(metadata.missing({copy.source.topic for copy in self._ready}))
        if missing and not self._is_learning:
            self._is_learning = True
            self._spawn(self._learn(missing))
        found = []
        for copy, run in list(self._ready.items()):
            if copy.run != run or copy.phase is not Phase.COPYING:
                del self._ready[copy]
            elif copy.source.topic not in missing:
                try:
                    check_same_topic(self._cluster, copy)
                    found.append((copy, metadata.leader(*copy.source)))
                except ApiError as error:
                    self._fail(copy, error)
        return found

    def _fetch_busy(self, node: int, copies: list[Copy], share: Shares) -> None:
        """Share the copies out among the lanes that are free, while there is memory."""
        under_way = sum(
            len(fetch.copies)
            for fetch in self._lanes.values()
            if fetch.node == node and not fetch.is_poll
        )
        together = -(-(len(copies) + under_way) // self._transfer.in_flight)
        for lane in self._free_lanes(node, 0):
            asked = sum(f.limits.max_bytes for f in self._lanes.values() if not f.is_poll)
            used = asked + self._sink.held_bytes
            if not copies or (used and used + share.fetch > self._transfer.memory_bytes):
                return
            chosen, copies = copies[:together], copies[together:]
            limits = FetchLimits(share.fetch, share.partition)
            self._ask(node, lane, chosen, limits, is_poll=False)

    def _poll(self, node: int, copies: list[Copy]) -> None:
        for lane in self._free_lanes(node, self._transfer.in_flight)[:1]:
            size = poll_bytes(self._transfer)
            wait = self._transfer.fetch_wait_ms / 1000
            self._ask(node, lane, copies, FetchLimits(size, size, wait), is_poll=True)

    def _free_lanes(self, node: int, first: int) -> list[int]:
        lanes = range(first, first + self._transfer.in_flight)
        return [lane for lane in lanes if (node, lane) not in self._lanes]

    def _ask(
        self, node: int, lane: int, copies: list[Copy], limits: FetchLimits, *, is_poll: bool
    ) -> None:
        fetch = _Fetch(node, lane, {copy: copy.run for copy in copies}, limits, is_poll)
        self._lanes[node, lane] = fetch
        for copy in copies:
            del self._ready[copy]
        self._spawn(self._run(fetch))

    # What comes of it.

    async def _run(self, fetch: _Fetch) -> None:
        copies = fetch.copies
        offsets = {copy.source: copy.position for copy in copies}
        size = 0
        try:
            found = await fetch_batches(
                self._cluster,
                fetch.node,
                offsets,
                fetch.limits,
                lane=(Lane.FETCH, fetch.lane),
                topic_ids=ids_of(copies),
                leader_epochs={copy.source: copy.source_epoch for copy in copies},
            )
        except QbusError as error:
            self._cluster.metadata.forget({source.topic for source in offsets})
            for copy in self._still_wanted(fetch):
                self._fail(copy, error)
        else:
            for copy in self._still_wanted(fetch):
                outcome = found.get(copy.source) or _unanswered(copy)
                if isinstance(outcome, ApiError):
                    self._refused(copy, outcome)
                else:
                    size += len(outcome.records)
                    self._take(copy, outcome)
        finally:
            del self._lanes[fetch.node, fetch.lane]
        self._rate_limit.spend(size)
        self._look_soon()

    def _still_wanted(self, fetch: _Fetch) -> Iterable[Copy]:
        if self._is_closed:
            return []
        return [
            copy
            for copy, run in fetch.copies.items()
            if copy.run == run and copy.phase is Phase.COPYING
        ]

    def _take(self, copy: Copy, found: FetchedBatches) -> None:
        try:
            check_same_topic(self._cluster, copy)
            chunk = copy.fetched(found)
        except ApiError as error:  # it is damaged, or another topic's
            self._fail(copy, error)
            return
        self._ready[copy] = copy.run
        if copy.is_current:
            self._busy.discard(copy)
        else:
            self._busy.add(copy)
        if chunk is not None:
            self._sink.arrived(copy, chunk)

    def _refused(self, copy: Copy, error: ApiError) -> None:
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.stop(copy)
            self._sink.out_of_range(copy)
        else:
            self._fail(copy, error)

    def _fail(self, copy: Copy, error: QbusError) -> None:
        self.stop(copy)
        self._sink.failed(copy, error)

    async def _learn(self, topics: set[str]) -> None:
        """Find out who leads these topics' partitions."""
        try:
            with contextlib.suppress(QbusError):
                await self._cluster.need(topics)
        finally:
            self._is_learning = False
        unknown = set(self._cluster.metadata.missing(topics))
        for copy in [copy for copy in self._ready if copy.source.topic in unknown]:
            self._fail(copy, leaderless(self._cluster, copy.source))
        self._look_soon()


def leaderless(cluster: Cluster, partition: TopicPartition) -> ApiError:
    """What is wrong with a partition whose topic's leaders could not be found out."""
    topic, index = partition
    known = cluster.metadata.errors.get(topic)
    return known or ApiError(
        ErrorCode.LEADER_NOT_AVAILABLE, f"nobody tells who leads {topic}-{index}"
    )


def _unanswered(copy: Copy) -> ApiError:
    topic, index = copy.source
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no answer for {topic}-{index}")
