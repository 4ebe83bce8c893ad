"""Repairs corrupt logs with what other replicas have.

:class:`LogRepair` replaces corrupt batches. Below the high watermark all in-sync replicas have the
same bytes, so any of them serves: a follower asks its leader, a leader an in-sync follower. The
request is a consumer's, outside of any fetch session, so that it acknowledges nothing. See
:mod:`qbus.broker.log.repair` for why this is safe in any role: good batches are never touched.

:class:`RebuildGuard` tells when a log that is corrupt as a whole may be dropped and fetched again.
Batches that were stable once are missing or corrupt in such a log, so its content is unknown and of
no use. But as long as the replica is in the ISR or the ELR, it may be elected for what it has lost,
and an empty log could not be told from a complete one. So the replica must first be out of both,
which this broker itself writes to the store. The leader must also have no reason to add it to the
ISR again: it adds a replica that fetched within ``replica.lag.time.max.ms``, so nothing is fetched
for that long. Only then is the log dropped, and the replica gets in sync like a new one.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Protocol

from qbus.clock import Clock
from qbus.errors import ApiError
from qbus.wire import ApiKey
from qbus.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

from ..log import Corruption, Log
from ..log.repair import Damage
from ..metadata.image import Topic
from ..peers.client import PeerClient
from ..peers.connection import PeerError
from .fetch_loop import FETCH_VERSION
from .partition_fetch_state import PartitionFetchState

_log = logging.getLogger(__name__)

_NO_SESSION = -1
_TIMEOUT_S = 10.0
# A request with a rack may be answered by a follower (KIP-392); no broker is in this one.
_NO_RACK, _SOME_RACK = "", "-"


class Topics(Protocol):
    """The part of the cluster's metadata that repairs read."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics, by name."""


class Repairable(Protocol):
    """The part of a partition that a repair uses."""

    topic: str
    index: int
    log: Log
    leader_id: int
    leader_epoch: int
    high_watermark: int

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""

    @property
    def isr(self) -> tuple[int, ...]:
        """The in-sync replicas, if this broker leads the partition."""


class LogRepair:
    """Replaces corrupt batches in the logs of a broker."""

    def __init__(self, node_id: int, metadata: Topics, peers: PeerClient) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._peers = peers
        self._silent: set[int] = set()

    async def run(self, partitions: Iterable[Repairable]) -> int:
        """Repair the known corruptions; return how many ranges of batches were replaced.

        A source that does not answer is not asked again in this round: repairs from others go on.
        """
        self._silent.clear()
        repaired = 0
        for partition in partitions:
            for corruption in partition.log.corruptions if partition.log.is_usable else ():
                repaired += await self._repair(partition, corruption)
        return repaired

    async def _repair(self, partition: Repairable, corruption: Corruption) -> bool:
        log = partition.log
        sources = [source for source in self._sources(partition) if source not in self._silent]
        if not sources:
            return False
        try:
            damage = await asyncio.to_thread(log.find_damage, corruption)
            if damage is None or damage.end.offset > partition.high_watermark:
                return False
            for source in sources:
                records = await self._fetch(source, partition, damage)
                if records and await self._replace(partition, damage, records, source):
                    return True
        except ApiError as error:  # the log is closed, or its disk failed
            _log.info("%s cannot be repaired: %s", partition, error)
        return False

    async def _replace(
        self, partition: Repairable, damage: Damage, records: bytes, source: int
    ) -> bool:
        try:
            await asyncio.to_thread(partition.log.repair, damage, records)
        except ApiError as error:
            _log.warning("%s: the batches of broker %d do not fit: %s", partition, source, error)
            return False
        _log.warning(
            "%s: offsets %d to %d were corrupt on disk and are repaired from broker %d",
            partition,
            damage.start.offset,
            damage.end.offset - 1,
            source,
        )
        return True

    def _sources(self, partition: Repairable) -> list[int]:
        if not partition.is_leader:
            return [partition.leader_id]
        return [replica for replica in partition.isr if replica != self._node_id]

    async def _fetch(self, source: int, partition: Repairable, damage: Damage) -> bytes:
        """Return a broker's records from the damage on; none if it cannot give any."""
        topic = self._metadata.topics.get(partition.topic)
        if topic is None:
            return b""
        wanted = FetchPartition(
            partition=partition.index,
            current_leader_epoch=partition.leader_epoch,
            fetch_offset=damage.start.offset,
            partition_max_bytes=damage.size,
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=damage.size,
            session_epoch=_NO_SESSION,
            rack_id=_NO_RACK if source == partition.leader_id else _SOME_RACK,
            topics=[FetchTopic(topic_id=topic.id, partitions=[wanted])],
            forgotten_topics_data=[],
        )
        try:
            records: bytes = await self._peers.send(
                source, ApiKey.FETCH, FETCH_VERSION, request, _TIMEOUT_S, _copied_records
            )
        except PeerError as error:
            self._silent.add(source)
            _log.info("%s cannot be repaired from broker %d: %s", partition, source, error)
            return b""
        return records


class RebuildGuard:
    """Tells whether a replica whose log is corrupt as a whole may drop it."""

    def __init__(self, node_id: int, metadata: Topics, clock: Clock, max_lag_s: float) -> None:
        """``max_lag_s`` is ``replica.lag.time.max.ms``, in seconds."""
        self._node_id = node_id
        self._metadata = metadata
        self._clock = clock
        self._max_lag_s = max_lag_s

    def may_rebuild(self, state: PartitionFetchState) -> bool:
        """Whether no other broker counts on the records that the log had."""
        fetched_at = state.fetched_at
        if fetched_at is not None and self._clock.monotonic() - fetched_at <= self._max_lag_s:
            return False
        topic = self._metadata.topics.get(state.replica.topic)
        if topic is None or state.replica.index >= len(topic.partitions):
            return False
        info = topic.partitions[state.replica.index]
        counted = {info.leader, *info.isr, *info.elr}
        return info.leader_epoch == state.leader_epoch and self._node_id not in counted


def _copied_records(response: FetchResponse) -> bytes:
    found = [data for topic in response.responses for data in topic.partitions]
    return b"".join(bytes(data.records or b"") for data in found if not data.error_code)
