"""The target's side of a link: sends what was fetched, many partitions in one request.

Several requests to a broker are under way at once, over one connection, so that a partition's
batches come in order. Each says what it follows: should one be refused, so are those behind it.
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
from ..net.pool import Lane
from ..net.retry import Outcomes
from ..types import TopicPartition
from .chunks import Chunk
from .config import LinkConfig
from .partitions import Copy
from .reader import Spawn, leaderless

_LANE = (Lane.MAIN, 1)
"""One of its own: what is asked about topics does not wait for disks."""


class Receipts(Protocol):
    """Learns what has become of what was sent."""

    def acknowledged(self, copy: Copy, chunk: Chunk) -> None:
        """The target has it."""

    def refused(self, copy: Copy, error: QbusError) -> None:
        """The target does not take it, or it is unknown whether it has."""

    def settled(self, copy: Copy) -> None:
        """A request with something of the copy is over."""


class _Parcel(NamedTuple):
    copy: Copy
    run: int
    chunk: Chunk

    @property
    def is_void(self) -> bool:
        return self.copy.run != self.run


class Writer:
    """Sends chunks to ``cluster``.

    ``held_bytes`` is what they take in memory; ``repeated`` counts the batches that were sent again
    because it was not known whether they had arrived.
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
        self._inbox: deque[_Parcel] = deque()
        self._queues: dict[int, deque[_Parcel]] = {}
        self._in_flight: dict[int, int] = {}
        self._is_learning = False
        self._idle = asyncio.Event()
        self._idle.set()

    def send(self, copy: Copy, chunk: Chunk) -> None:
        """Send what follows on what was sent of a copy before."""
        self.held_bytes += len(chunk.records)
        self._inbox.append(_Parcel(copy, copy.run, chunk))
        self._idle.clear()
        self._sort()

    async def drain(self, timeout: float) -> None:
        """Return when nothing is left to be acknowledged, or ``timeout`` seconds are over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._idle.wait()

    # Who gets what.

    def _sort(self) -> None:
        """Put parcels into the queues of those who lead their partitions, in order."""
        metadata = self._cluster.metadata
        missing = set(metadata.missing({parcel.copy.target.topic for parcel in self._inbox}))
        if missing and not self._is_learning:
            self._is_learning = True
            self._spawn(self._learn(missing))
        waiting: deque[_Parcel] = deque()
        while self._inbox:
            parcel = self._inbox.popleft()
            if parcel.is_void:
                self._drop(parcel)
            elif parcel.copy.target.topic in missing:
                waiting.append(parcel)
            else:
                try:
                    node = metadata.leader(*parcel.copy.target)
                except ApiError as error:
                    self._drop(parcel)
                    self._receipts.refused(parcel.copy, error)
                else:
                    self._queues.setdefault(node, deque()).append(parcel)
        self._inbox = waiting
        for node in list(self._queues):
            self._flush(node)
        self._settle()

    def _flush(self, node: int) -> None:
        """Send what is queued for a broker, as far as it may have more at a time."""
        while self._in_flight.get(node, 0) < self._transfer.in_flight:
            parcels = self._next(self._queues[node])
            if not parcels:
                del self._queues[node]
                return
            self._in_flight[node] = self._in_flight.get(node, 0) + 1
            self._spawn(self._run(node, parcels))

    def _next(self, queue: deque[_Parcel]) -> dict[TopicPartition, _Parcel]:
        """What goes into one request: of each partition one chunk, the oldest, while there is room.

        A request is no larger than a fetch, which brokers take whatever their limits.
        """
        chosen: dict[TopicPartition, _Parcel] = {}
        later: list[_Parcel] = []
        size = 0
        while queue:
            parcel = queue.popleft()
            bulk = len(parcel.chunk.records)
            if parcel.is_void:
                self._drop(parcel)
            elif chosen and size + bulk > self._transfer.fetch_bytes:
                later.append(parcel)
                break
            elif parcel.copy.target in chosen:
                later.append(parcel)
            else:
                chosen[parcel.copy.target] = parcel
                size += bulk
                if parcel.copy.sending(parcel.chunk):
                    self.repeated += parcel.chunk.batches
        queue.extendleft(reversed(later))
        return chosen

    # What comes of it.

    async def _run(self, node: int, parcels: Mapping[TopicPartition, _Parcel]) -> None:
        outcomes: Outcomes[TopicPartition, StoredBatch]
        try:
            outcomes = await produce_topics(self._cluster, node, _topics(parcels), lane=_LANE)
        except QbusError as error:
            self._cluster.metadata.forget({partition.topic for partition in parcels})
            failure = error if isinstance(error, ApiError) else _unanswered(str(error))
            outcomes = dict.fromkeys(parcels, failure)
        finally:
            for parcel in parcels.values():
                parcel.copy.sent -= 1
                self._drop(parcel)
        self._in_flight[node] -= 1
        for partition, parcel in parcels.items():
            if not parcel.is_void:
                self._tell(parcel, outcomes.get(partition) or _unanswered(f"of {partition}"))
            self._receipts.settled(parcel.copy)
        self._sort()

    def _tell(self, parcel: _Parcel, outcome: StoredBatch | ApiError) -> None:
        if isinstance(outcome, ApiError):
            self._receipts.refused(parcel.copy, outcome)
        else:
            self._receipts.acknowledged(parcel.copy, parcel.chunk)

    def _drop(self, parcel: _Parcel) -> None:
        self.held_bytes -= len(parcel.chunk.records)

    def _settle(self) -> None:
        if not self._inbox and not self._queues and not any(self._in_flight.values()):
            self._idle.set()

    async def _learn(self, topics: set[str]) -> None:
        """Find out who leads these topics' partitions."""
        try:
            with contextlib.suppress(QbusError):
                await self._cluster.need(topics)
        finally:
            self._is_learning = False
        unknown = set(self._cluster.metadata.missing(topics))
        for parcel in self._inbox:
            if parcel.copy.target.topic in unknown and not parcel.is_void:
                error = leaderless(self._cluster, parcel.copy.target)
                self._receipts.refused(parcel.copy, error)
        self._sort()


def _topics(parcels: Mapping[TopicPartition, _Parcel]) -> list[TopicProduceData]:
    topics: dict[str, TopicProduceData] = {}
    for (name, index), parcel in parcels.items():
        provenance = parcel.copy.provenance
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
                records=parcel.chunk.records,
                mirror_follows=parcel.chunk.follows,
                mirror_log_start_offset=parcel.copy.source_start,
            )
        )
    return list(topics.values())


def _unanswered(what: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no answer: {what}")
