"""The source's side of a link: fetches all partitions that are copied, many at a time.

Partitions with more records are fetched in turn, with several requests to each broker in flight, so
that a long round trip costs little. Partitions without are polled together, by one request that
waits at the broker. A Qbus also sends the batches that it hides from consumers: what it holds back.
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
from ..net.pool import ConnectionGroup
from ..types import TopicPartition
from .checks import check_same_topic, ids_of
from .chunks import Chunk
from .config import LinkConfig
from .fetch_sizes import FetchSizes, fetch_sizes, poll_bytes
from .partitions import MirroredPartition, Phase

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class Sink(Protocol):
    """Receives what is fetched, and learns of failures."""

    @property
    def held_bytes(self) -> int:
        """Bytes that were received and are still in memory."""

    def arrived(self, mirrored: MirroredPartition, chunk: Chunk) -> None:
        """A chunk was fetched: send it."""

    def failed(self, mirrored: MirroredPartition, error: QbusError) -> None:
        """A partition cannot be fetched."""

    def out_of_range(self, mirrored: MirroredPartition) -> None:
        """The source does not have the offset that was asked for."""


class _Fetch(NamedTuple):
    """A fetch in flight to one broker, in one of its slots: each slot has its connection."""

    node: int
    slot: int
    partitions: dict[MirroredPartition, int]
    """With the run of each at that time."""
    limits: FetchLimits
    is_poll: bool


class Reader:
    """Fetches from ``cluster`` every partition that was given to :meth:`start`."""

    def __init__(self, cluster: Cluster, config: LinkConfig, sink: Sink, spawn: Spawn) -> None:
        self._cluster = cluster
        self._config = config
        self._transfer = config.transfer
        self._sink = sink
        self._spawn = spawn
        self._rate_limit = RateLimit(config.rate_limit_bytes, time.monotonic())
        self._ready: dict[MirroredPartition, int] = {}
        self._busy: set[MirroredPartition] = set()
        self._fetches: dict[tuple[int, int], _Fetch] = {}
        self._is_learning = False
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self, mirrored: MirroredPartition) -> None:
        """Fetch a partition, from its position on."""
        if any(fetch.partitions.get(mirrored) == mirrored.run for fetch in self._fetches.values()):
            return
        self._ready[mirrored] = mirrored.run
        self._schedule()

    def stop(self, mirrored: MirroredPartition) -> None:
        """Stop fetching a partition; the answer to a fetch in flight is ignored."""
        self._ready.pop(mirrored, None)
        self._busy.discard(mirrored)

    def wake(self) -> None:
        """Fetch more, if there is room in memory again."""
        self._schedule()

    def close(self) -> None:
        """Stop fetching; answers to fetches in flight are ignored."""
        self._is_closed = True
        self._ready.clear()
        self._busy.clear()
        if self._timer is not None:
            self._timer.cancel()

    # Requests.

    def _schedule(self, delay: float = 0.0) -> None:
        if self._is_closed:
            return
        if self._timer is not None and self._timer.when() <= time.monotonic() + delay:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay, self._fetch)

    def _fetch(self) -> None:
        """Send as many fetches as there is room for."""
        self._timer = None
        delay = self._rate_limit.wait(time.monotonic())
        if delay:
            self._schedule(delay)
            return
        busy: dict[int, list[MirroredPartition]] = {}
        idle: dict[int, list[MirroredPartition]] = {}
        for mirrored, node in self._led():
            if mirrored.is_current:
                idle.setdefault(node, []).append(mirrored)
            else:
                busy.setdefault(node, []).append(mirrored)
                self._busy.add(mirrored)
        brokers = busy.keys() | {fetch.node for fetch in self._fetches.values()}
        rate = self._config.rate_limit_bytes
        sizes = fetch_sizes(self._transfer, len(self._busy), len(brokers), rate)
        for node, partitions in busy.items():
            room = [mirrored for mirrored in partitions if mirrored.held_bytes < sizes.held]
            self._fetch_busy(node, room, sizes)
        for node, partitions in idle.items():
            self._poll(node, partitions)

    def _led(self) -> list[tuple[MirroredPartition, int]]:
        """Return the ready partitions with their leaders; look up the leaders of the others."""
        metadata = self._cluster.metadata
        missing = set(metadata.missing({mirrored.source.topic for mirrored in self._ready}))
        if missing and not self._is_learning:
            self._is_learning = True
            self._spawn(self._learn(missing))
        found = []
        for mirrored, run in list(self._ready.items()):
            if mirrored.run != run or mirrored.phase is not Phase.COPYING:
                del self._ready[mirrored]
            elif mirrored.source.topic not in missing:
                try:
                    check_same_topic(self._cluster, mirrored)
                    found.append((mirrored, metadata.leader(*mirrored.source)))
                except ApiError as error:
                    self._fail(mirrored, error)
        return found

    def _fetch_busy(
        self, node: int, partitions: list[MirroredPartition], sizes: FetchSizes
    ) -> None:
        """Distribute the partitions over the free slots, while there is memory."""
        under_way = sum(
            len(fetch.partitions)
            for fetch in self._fetches.values()
            if fetch.node == node and not fetch.is_poll
        )
        together = -(-(len(partitions) + under_way) // self._transfer.in_flight)
        for slot in self._free_slots(node, 0):
            asked = sum(
                fetch.limits.max_bytes for fetch in self._fetches.values() if not fetch.is_poll
            )
            used = asked + self._sink.held_bytes
            if not partitions or (used and used + sizes.fetch > self._transfer.memory_bytes):
                return
            chosen, partitions = partitions[:together], partitions[together:]
            limits = FetchLimits(sizes.fetch, sizes.partition)
            self._send(node, slot, chosen, limits, is_poll=False)

    def _poll(self, node: int, partitions: list[MirroredPartition]) -> None:
        for slot in self._free_slots(node, self._transfer.in_flight)[:1]:
            size = poll_bytes(self._transfer)
            wait = self._transfer.fetch_wait_ms / 1000
            self._send(node, slot, partitions, FetchLimits(size, size, wait), is_poll=True)

    def _free_slots(self, node: int, first: int) -> list[int]:
        slots = range(first, first + self._transfer.in_flight)
        return [slot for slot in slots if (node, slot) not in self._fetches]

    def _send(
        self,
        node: int,
        slot: int,
        partitions: list[MirroredPartition],
        limits: FetchLimits,
        *,
        is_poll: bool,
    ) -> None:
        fetch = _Fetch(
            node, slot, {mirrored: mirrored.run for mirrored in partitions}, limits, is_poll
        )
        self._fetches[node, slot] = fetch
        for mirrored in partitions:
            del self._ready[mirrored]
        self._spawn(self._run(fetch))

    # Responses.

    async def _run(self, fetch: _Fetch) -> None:
        partitions = fetch.partitions
        offsets = {mirrored.source: mirrored.position for mirrored in partitions}
        size = 0
        try:
            found = await fetch_batches(
                self._cluster,
                fetch.node,
                offsets,
                fetch.limits,
                connection_group=(ConnectionGroup.FETCH, fetch.slot),
                topic_ids=ids_of(partitions),
                leader_epochs={mirrored.source: mirrored.source_epoch for mirrored in partitions},
                hidden=True,
            )
        except QbusError as error:
            self._cluster.metadata.forget({source.topic for source in offsets})
            for mirrored in self._still_wanted(fetch):
                self._fail(mirrored, error)
        else:
            for mirrored in self._still_wanted(fetch):
                outcome = found.get(mirrored.source) or _unanswered(mirrored)
                if isinstance(outcome, ApiError):
                    self._refused(mirrored, outcome)
                else:
                    size += len(outcome.records)
                    self._received(mirrored, outcome)
        finally:
            del self._fetches[fetch.node, fetch.slot]
        self._rate_limit.spend(size)
        self._schedule()

    def _still_wanted(self, fetch: _Fetch) -> Iterable[MirroredPartition]:
        if self._is_closed:
            return []
        return [
            mirrored
            for mirrored, run in fetch.partitions.items()
            if mirrored.run == run and mirrored.phase is Phase.COPYING
        ]

    def _received(self, mirrored: MirroredPartition, found: FetchedBatches) -> None:
        try:
            check_same_topic(self._cluster, mirrored)
            chunk = mirrored.fetched(found)
        except ApiError as error:  # a damaged batch, or another topic
            self._fail(mirrored, error)
            return
        self._ready[mirrored] = mirrored.run
        if mirrored.is_current:
            self._busy.discard(mirrored)
        else:
            self._busy.add(mirrored)
        if chunk is not None:
            self._sink.arrived(mirrored, chunk)

    def _refused(self, mirrored: MirroredPartition, error: ApiError) -> None:
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.stop(mirrored)
            self._sink.out_of_range(mirrored)
        else:
            self._fail(mirrored, error)

    def _fail(self, mirrored: MirroredPartition, error: QbusError) -> None:
        self.stop(mirrored)
        self._sink.failed(mirrored, error)

    async def _learn(self, topics: set[str]) -> None:
        """Find the leaders of these topics' partitions."""
        try:
            with contextlib.suppress(QbusError):
                await self._cluster.need(topics)
        finally:
            self._is_learning = False
        unknown = set(self._cluster.metadata.missing(topics))
        for mirrored in [mirrored for mirrored in self._ready if mirrored.source.topic in unknown]:
            self._fail(mirrored, leaderless(self._cluster, mirrored.source))
        self._schedule()


def leaderless(cluster: Cluster, partition: TopicPartition) -> ApiError:
    """Return the error of a partition whose leader could not be found."""
    topic, index = partition
    known = cluster.metadata.errors.get(topic)
    return known or ApiError(
        ErrorCode.LEADER_NOT_AVAILABLE, f"no leader is known for {topic}-{index}"
    )


def _unanswered(mirrored: MirroredPartition) -> ApiError:
    topic, index = mirrored.source
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no answer for {topic}-{index}")
