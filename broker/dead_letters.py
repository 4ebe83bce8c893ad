"""Dead letter topics: where the broker itself puts records that nobody is to get any more."""

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, Final

from qbus.config import BrokerConfig
from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

from .metadata.cache import MetadataCache
from .partition.acknowledgement import Acknowledgement
from .partition.partition import ACKS_ALL
from .partition.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from .peers.client import PeerClient

_TIMEOUT_S: Final = 30.0
_REQUEST_BYTES: Final = 1024  # what a request takes besides its batch, at most
_VERSION: Final = 9  # of Produce: the last one that is needed, and names topics


class DeadLetters:
    """Stores batches in topics, wherever their partitions are led: each at least once."""

    def __init__(
        self, config: BrokerConfig, metadata: MetadataCache, replicas: ReplicaManager[Any]
    ) -> None:
        self._config = config
        self._node_id = config.node_id
        self._metadata = metadata
        self._replicas = replicas
        self._peers: PeerClient | None = None
        self._turns = itertools.count()

    def close(self) -> None:
        """Close the connections to other brokers."""
        if self._peers is not None:
            self._peers.close()

    async def write(self, topic: str, batch: bytearray) -> None:
        """Store a batch on all in-sync replicas of one of the topic's partitions.

        One that is led here, if there is one. Raises QbusError: it may be stored or not.
        """
        index, leader = self._choose(topic)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                if leader == self._node_id:
                    await self._append(topic, index, batch)
                else:
                    await self._send(leader, topic, index, batch)
        except TimeoutError:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT, f"{topic}-{index} took no dead letters in time"
            ) from None

    def _choose(self, topic: str) -> tuple[int, int]:
        """A partition and the broker that leads it."""
        known = self._metadata.topics.get(topic)
        if known is None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the dead letter topic {topic} is missing"
            )
        led = [(index, info.leader) for index, info in enumerate(known.partitions)]
        here = [one for one in led if one[1] == self._node_id]
        candidates = here or [one for one in led if one[1] in self._metadata.brokers]
        if not candidates:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"no partition of {topic} has a leader")
        return candidates[next(self._turns) % len(candidates)]

    async def _append(self, topic: str, index: int, batch: bytearray) -> None:
        partition = self._replicas.partitions_of(topic).get(index)
        if partition is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} is not here yet")
        end = partition.append(memoryview(batch), ACKS_ALL).last_offset + 1
        if partition.high_watermark >= end:
            return
        acknowledgement = Acknowledgement()
        partition.when_acknowledged(end, acknowledgement, None)
        code = await acknowledgement.wait()
        if code:
            raise ApiError(code)

    async def _send(self, leader: int, topic: str, index: int, batch: bytearray) -> None:
        if len(batch) > self._config.socket_request_max_bytes - _REQUEST_BYTES:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE, f"no request takes a batch of {len(batch)} bytes"
            )
        data = PartitionProduceData(index=index, records=memoryview(batch))
        request = ProduceRequest(
            acks=ACKS_ALL,
            timeout_ms=int(_TIMEOUT_S * 1000),
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        if self._peers is None:
            self._peers = self._connect()
        response: ProduceResponse = await self._peers.send(
            leader, ApiKey.PRODUCE, _VERSION, request, _TIMEOUT_S
        )
        for answered in response.responses:
            for answer in answered.partition_responses:
                if answer.error_code:
                    raise ApiError(ErrorCode(answer.error_code), answer.error_message)
                return
        raise ApiError(
            ErrorCode.REQUEST_TIMED_OUT, f"broker {leader} did not answer for {topic}-{index}"
        )

    def _connect(self) -> "PeerClient":
        from .peers.client import PeerClient, PeerSettings  # noqa: PLC0415 - rarely needed

        config = self._config
        return PeerClient(
            self._metadata,
            PeerSettings.of(config, f"broker-{self._node_id}"),
        )
