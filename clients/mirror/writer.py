"""The target's side of a link: sends the fetched chunks, many partitions in one request.

Several requests to a broker are in flight at once, over one connection, which keeps the batches of
a partition in order. Each says what it follows: if one is refused, so are those behind it.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from qbus.errors import ApiError, ErrorCode, QbusError
from qbus.wire.messages.produce import PartitionProduceData, TopicProduceData

from ..batches.produce import StoredBatch, produce_topics
from ..net.cluster import Cluster
from ..net.pool import ConnectionGroup
from ..net.retry import Outcomes
from ..types import TopicPartition
from .chunks import Chunk
from .config import LinkConfig
from .partitions import MirroredPartition
from .reader import Spawn, leaderless

_LANE = (ConnectionGroup.MAIN, 1)
"""A connection of its own: requests about topics do not wait for disks."""


class Receipts(Protocol):
    """Learns the outcome of what was sent."""

    def acknowledged(self, mirrored: MirroredPartition, chunk: Chunk) -> None:
        """The target has stored the chunk."""

    def refused(self, mirrored: MirroredPartition, error: QbusError) -> None:
        """The target refuses the partition, or it is unknown whether it stored a chunk."""

    def completed(self, mirrored: MirroredPartition) -> None:
        """A request with a chunk of the partition is completed."""


class _PendingChunk(NamedTuple):
    mirrored: MirroredPartition
    run: int
    chunk: Chunk

    @property
    def is_void(self) -> bool:
        return self.mirrored.run != self.run


class Writer:
    """Sends chunks to ``cluster``.

    ``held_bytes`` is their size in memory; ``repeated`` counts the batches that were sent again
    because it was unknown whether the target had stored them.
    """

    def __init__(
        self, cluster: Cluster, config: LinkConfig, receipts: Receipts, spawn: Spawn
    ) -> None:
        self.held_bytes = 0
        self.repeated = 0
        self._cluster = cluster
        self._transfer = config.transfer
        self._receipts = receipts
        self._spawn = spawn
        self._inbox: deque[_PendingChunk] = deque()
        self._queues: dict[int, deque[_PendingChunk]] = {}
        self._in_flight: dict[int, int] = {}
        self._is_learning = False
        self._idle = asyncio.Event()
        self._idle.set()

    def send(self, mirrored: MirroredPartition, chunk: Chunk) -> None:
        """Send the next chunk of a partition."""
        self.held_bytes += len(chunk.records)
        self._inbox.append(_PendingChunk(mirrored, mirrored.run, chunk))
        self._idle.clear()
        self._sort()

    async def drain(self, timeout: float) -> None:
        """Return when everything is acknowledged, or after ``timeout`` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._idle.wait()

    # Requests.

    def _sort(self) -> None:
        """Queue the chunks for the leaders of their partitions, in order."""
        metadata = self._cluster.metadata
        missing = set(metadata.missing({pending.mirrored.target.topic for pending in self._inbox}))
        if missing and not self._is_learning:
            self._is_learning = True
            self._spawn(self._learn(missing))
        waiting: deque[_PendingChunk] = deque()
        while self._inbox:
            pending = self._inbox.popleft()
            if pending.is_void:
                self._drop(pending)
            elif pending.mirrored.target.topic in missing:
                waiting.append(pending)
            else:
                try:
                    node = metadata.leader(*pending.mirrored.target)
                except ApiError as error:
                    self._drop(pending)
                    self._receipts.refused(pending.mirrored, error)
                else:
                    self._queues.setdefault(node, deque()).append(pending)
        self._inbox = waiting
        for node in list(self._queues):
            self._flush(node)
        self._note_if_idle()

    def _flush(self, node: int) -> None:
        """Send what is queued for a broker, as far as its requests in flight allow."""
        while self._in_flight.get(node, 0) < self._transfer.in_flight:
            request = self._next(self._queues[node])
            if not request:
                del self._queues[node]
                return
            self._in_flight[node] = self._in_flight.get(node, 0) + 1
            self._spawn(self._run(node, request))

    def _next(self, queue: deque[_PendingChunk]) -> dict[TopicPartition, _PendingChunk]:
        """Return the chunks of one request: the oldest of each partition, while there is room.

        A request is no larger than a fetch, which brokers accept whatever their limits.
        """
        chosen: dict[TopicPartition, _PendingChunk] = {}
        later: list[_PendingChunk] = []
        size = 0
        while queue:
            pending = queue.popleft()
            chunk_bytes = len(pending.chunk.records)
            if pending.is_void:
                self._drop(pending)
            elif chosen and size + chunk_bytes > self._transfer.fetch_bytes:
                later.append(pending)
                break
            elif pending.mirrored.target in chosen:
                later.append(pending)
            else:
                chosen[pending.mirrored.target] = pending
                size += chunk_bytes
                if pending.mirrored.sending(pending.chunk):
                    self.repeated += pending.chunk.batches
        queue.extendleft(reversed(later))
        return chosen

    # Responses.

    async def _run(self, node: int, request: Mapping[TopicPartition, _PendingChunk]) -> None:
        outcomes: Outcomes[TopicPartition, StoredBatch]
        try:
            outcomes = await produce_topics(
                self._cluster, node, _topics(request), connection_group=_LANE
            )
        except QbusError as error:
            self._cluster.metadata.forget({partition.topic for partition in request})
            failure = error if isinstance(error, ApiError) else _unanswered(str(error))
            outcomes = dict.fromkeys(request, failure)
        finally:
            for pending in request.values():
                pending.mirrored.sent -= 1
                self._drop(pending)
        self._in_flight[node] -= 1
        for partition, pending in request.items():
            if not pending.is_void:
                self._report(pending, outcomes.get(partition) or _unanswered(f"of {partition}"))
            self._receipts.completed(pending.mirrored)
        self._sort()

    def _report(self, pending: _PendingChunk, outcome: StoredBatch | ApiError) -> None:
        if isinstance(outcome, ApiError):
            self._receipts.refused(pending.mirrored, outcome)
        else:
            self._receipts.acknowledged(pending.mirrored, pending.chunk)

    def _drop(self, pending: _PendingChunk) -> None:
        self.held_bytes -= len(pending.chunk.records)

    def _note_if_idle(self) -> None:
        if not self._inbox and not self._queues and not any(self._in_flight.values()):
            self._idle.set()

    async def _learn(self, topics: set[str]) -> None:
        """Find the leaders of these topics' partitions."""
        try:
            with contextlib.suppress(QbusError):
                await self._cluster.need(topics)
        finally:
            self._is_learning = False
        unknown = set(self._cluster.metadata.missing(topics))
        for pending in self._inbox:
            if pending.mirrored.target.topic in unknown and not pending.is_void:
                error = leaderless(self._cluster, pending.mirrored.target)
                self._receipts.refused(pending.mirrored, error)
        self._sort()


def _topics(request: Mapping[TopicPartition, _PendingChunk]) -> list[TopicProduceData]:
    topics: dict[str, TopicProduceData] = {}
    for (name, index), pending in request.items():
        provenance = pending.mirrored.provenance
        topic = topics.setdefault(
            name,
            TopicProduceData(
                name=name,
                mirror_source=provenance.source,
                mirror_topic_id=provenance.topic_id,
                partition_data=[],
            ),
        )
        topic.partition_data.append(
            PartitionProduceData(
                index=index,
                records=pending.chunk.records,
                mirror_follows=pending.chunk.follows,
                mirror_log_start_offset=pending.chunk.source_start,
            )
        )
    return list(topics.values())


def _unanswered(what: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no answer: {what}")
