"""Batches that went bad here are replaced by what another replica has of them.

Below the high watermark replicas in sync have the same bytes, so any of them will do: for a
follower its leader, for a leader one that is in sync. It is asked as a consumer asks, outside of
any session, so that nothing is taken for acknowledged. See :mod:`qbus.broker.log.mending` for why
this is safe whatever role a replica has: nothing that is good is ever touched.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Protocol

from qbus.errors import ApiError
from qbus.wire import ApiKey
from qbus.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

from ..log import Corruption, Log
from ..log.mending import Damage
from .fetch_loop import FETCH_VERSION
from .peer_connection import PeerConnection, PeerFailed
from .peers import Peers
from .refetching import Topics

_log = logging.getLogger(__name__)

_NO_SESSION = -1
_TIMEOUT_S = 10.0
# Who names a rack reads from followers, too (KIP-392); nobody is in one of this name.
_NO_RACK, _SOME_RACK = "", "-"


class Repairable(Protocol):
    """What a repair needs of a partition."""

    topic: str
    index: int
    log: Log
    leader_id: int
    leader_epoch: int
    high_watermark: int

    @property
    def is_leader(self) -> bool:
        """Whether it is led here."""

    @property
    def isr(self) -> tuple[int, ...]:
        """The replicas in sync, if it is led here."""


class Repairs:
    """Repairs the partitions of a broker, one damage after the other."""

    def __init__(self, node_id: int, metadata: Topics, peers: Peers) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._peers = peers

    async def repair(self, partitions: Iterable[Repairable]) -> int:
        """Repair what is known to be bad; how many damages were mended."""
        mended = 0
        for partition in partitions:
            for corruption in partition.log.corruptions if partition.log.is_usable else ():
                mended += await self._repair(partition, corruption)
        return mended

    async def _repair(self, partition: Repairable, corruption: Corruption) -> bool:
        log = partition.log
        sources = self._sources(partition)
        if not sources:
            return False
        try:
            damage = await asyncio.to_thread(log.mender.find, corruption)
            if damage is None or damage.end.offset > partition.high_watermark:
                return False
            for source in sources:
                records = await self._ask(source, partition, damage)
                if records and await self._mend(partition, damage, records, source):
                    return True
        except ApiError as error:  # the log is closed, or its disk failed
            _log.info("%s cannot be repaired: %s", partition, error)
        return False

    async def _mend(
        self, partition: Repairable, damage: Damage, records: bytes, source: int
    ) -> bool:
        try:
            await asyncio.to_thread(partition.log.mender.mend, damage, records)
        except ApiError as error:
            _log.warning("%s: what broker %d has does not fit: %s", partition, source, error)
            return False
        _log.warning(
            "%s: offsets %d to %d were bad on disk and are repaired, from broker %d",
            partition,
            damage.start.offset,
            damage.end.offset - 1,
            source,
        )
        return True

    def _sources(self, partition: Repairable) -> list[int]:
        if not partition.is_leader:
            return [partition.leader_id]
        return [one for one in partition.isr if one != self._node_id]

    async def _ask(self, source: int, partition: Repairable, damage: Damage) -> bytes:
        """The records from the damage on that a broker has, none when it does not give any."""
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
            async with self._peers.connect(source) as connection:
                return await _records(connection, request)
        except PeerFailed as error:
            _log.info("%s cannot be repaired from broker %d: %s", partition, source, error)
            return b""


async def _records(connection: PeerConnection, request: FetchRequest) -> bytes:
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def answered(answer: Any) -> None:
        if future.done():
            return
        if isinstance(answer, PeerFailed):
            future.set_exception(answer)
        else:
            future.set_result(_only(answer))

    connection.send(ApiKey.FETCH, FETCH_VERSION, request, _TIMEOUT_S, answered)
    return await future


def _only(response: FetchResponse) -> bytes:
    """A copy: what was received is void when the answer was handed over."""
    found = [data for topic in response.responses for data in topic.partitions]
    return b"".join(bytes(data.records or b"") for data in found if not data.error_code)
