"""What share groups did in partitions, asked of the partitions' leaders (API QueueOffsets)."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from qbus.config import BrokerConfig
from qbus.errors import ApiError, ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.queue_offsets import (
    PartitionRequest,
    PartitionResponse,
    QueueOffsetsRequest,
    QueueOffsetsResponse,
    TopicRequest,
)

from ..metadata.cache import MetadataCache
from ..peers.client import PeerClient, PeerSettings
from ..peers.connection import PeerError
from ..share import group_settings
from .share_requests import failure

if TYPE_CHECKING:
    from ..partition.partition import Partition
    from ..partition.replica_manager import ReplicaManager
    from ..queues.service import QueueService
    from .replica_sessions import ReplicaSessions

_TIMEOUT_S: Final = 10.0
NONE: Final = -1

Place = tuple[str, int]
"""A topic's name and a partition's index."""


class Action(IntEnum):
    """What is to be done to a group's state in a partition."""

    DESCRIBE = 0
    SET_START = 1
    DELETE = 2


class QueueLeaders:
    """Asks the leaders of partitions, this broker among them, about share groups."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataCache,
        replicas: "ReplicaManager[ReplicaSessions]",
        queues: "QueueService",
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._replicas = replicas
        self._queues = queues
        self._peers: PeerClient | None = None

    async def close(self) -> None:
        """Ask nobody any more."""
        if self._peers is not None:
            self._peers.close()

    async def ask(
        self, action: Action, group: str, wanted: Mapping[Place, int]
    ) -> dict[Place, PartitionResponse]:
        """Do something to a group's state in partitions; the answers by partition.

        ``wanted``: the offsets to start at, which only SET_START minds.
        """
        answers: dict[Place, PartitionResponse] = {}
        by_leader: dict[int, dict[Place, int]] = {}
        for place, start in wanted.items():
            topic = self._metadata.topics.get(place[0])
            if topic is None or not 0 <= place[1] < len(topic.partitions):
                answers[place] = _failed(place[1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            leader = topic.partitions[place[1]].leader
            if leader not in self._metadata.brokers:
                answers[place] = _failed(place[1], ErrorCode.LEADER_NOT_AVAILABLE)
                continue
            by_leader.setdefault(leader, {})[place] = start
        asked = by_leader.items()
        answered = await asyncio.gather(
            *(self._ask(leader, action, group, some) for leader, some in asked),
            return_exceptions=True,
        )
        for (_, some), outcome in zip(asked, answered, strict=True):
            if isinstance(outcome, BaseException):
                error = _unreachable(outcome)
                answers |= {place: _failed(place[1], error.code, error.message) for place in some}
            else:
                answers |= outcome
        return answers

    async def ask_all(self, action: Action, group: str) -> dict[Place, PartitionResponse]:
        """The same in all partitions that the group has a state in.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE, a broker cannot be asked.
        """
        brokers = list(self._metadata.brokers)
        answered = await asyncio.gather(
            *(self._ask(broker, action, group, None) for broker in brokers),
            return_exceptions=True,
        )
        answers: dict[Place, PartitionResponse] = {}
        for broker, outcome in zip(brokers, answered, strict=True):
            if isinstance(outcome, BaseException):
                error = _unreachable(outcome)
                raise ApiError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    f"broker {broker} does not tell of its partitions: {error}",
                )
            answers |= outcome
        return answers

    async def local(
        self, action: Action, group: str, wanted: Mapping[Place, int] | None
    ) -> dict[Place, PartitionResponse]:
        """Do it in partitions that this broker leads; None: in all that know the group."""
        if wanted is None:
            wanted = dict.fromkeys(self._places_of(group), NONE)
        answers = await asyncio.gather(
            *(self._carry_out(action, group, place, start) for place, start in wanted.items())
        )
        return dict(zip(wanted, answers, strict=True))

    async def _ask(
        self, broker: int, action: Action, group: str, wanted: Mapping[Place, int] | None
    ) -> dict[Place, PartitionResponse]:
        if broker == self._config.node_id:
            return await self.local(action, group, wanted)
        topics: dict[str, TopicRequest] = {}
        for (name, index), start in (wanted or {}).items():
            topics.setdefault(name, TopicRequest(name=name)).partitions.append(
                PartitionRequest(partition_index=index, start_offset=start)
            )
        request = QueueOffsetsRequest(
            action=action, group_id=group, topics=None if wanted is None else list(topics.values())
        )
        if self._peers is None:
            self._peers = self._connect()
        response: QueueOffsetsResponse = await self._peers.send(
            broker, ApiKey.QUEUE_OFFSETS, 0, request, _TIMEOUT_S
        )
        if response.error_code:
            raise ApiError(ErrorCode(response.error_code))
        answers = {
            (topic.name, one.partition_index): one
            for topic in response.topics
            for one in topic.partitions
        }
        for place in wanted or ():
            if place not in answers:
                answers[place] = _failed(place[1], ErrorCode.UNKNOWN_SERVER_ERROR)
        return answers

    async def _carry_out(
        self, action: Action, group: str, place: Place, start: int
    ) -> PartitionResponse:
        try:
            partition = self._replicas.leader_of(*place)
            if action is Action.SET_START:
                await self._queues.set_start(partition, group, start)
            elif action is Action.DELETE:
                await self._queues.delete(partition, group)
            else:
                return self._describe(partition, group)
        except Exception as error:  # noqa: BLE001 - of this partition alone
            known = failure(error)
            return _failed(place[1], known.code, known.message)
        return PartitionResponse(partition_index=place[1])

    def _describe(self, partition: "Partition", group: str) -> PartitionResponse:
        self._begin(partition, group)
        found = self._queues.describe(partition, group)
        answer = PartitionResponse(
            partition_index=partition.index, leader_epoch=partition.leader_epoch
        )
        if found is None:
            settings = group_settings(self._metadata.group_config(group))
            unused = self._queues.describe_unused(partition, settings)
            answer.length, answer.delayed = unused.length, unused.delayed
        else:
            # Hidden batches behind the last record are done, but nothing that tools know of.
            answer.start_offset = min(found.start_offset, partition.visible_end)
            answer.length = found.length
            answer.in_flight = found.in_flight
            answer.delayed = found.delayed
            answer.oldest_ms = found.oldest_ms
            answer.given_up = found.given_up
            for name, count in found.counts._asdict().items():
                setattr(answer, name, count)
        return answer

    def _begin(self, partition: "Partition", group: str) -> None:
        """Have what came back known, too: since a restart nobody may have asked for it yet."""
        is_copy = bool(partition.log.config.qbus_mirror_source)
        if not is_copy and group in self._queues.groups(partition):
            settings = group_settings(self._metadata.group_config(group))
            self._queues.queue(partition, group, settings)

    def _places_of(self, group: str) -> Iterator[Place]:
        for topic in list(self._metadata.topics.values()):
            for index, info in enumerate(topic.partitions):
                if info.leader != self._config.node_id:
                    continue
                partition = self._replicas.get_partition(topic.name, index)
                if partition is not None and group in self._queues.groups(partition):
                    yield topic.name, index

    def _connect(self) -> PeerClient:
        config = self._config
        return PeerClient(
            self._metadata,
            PeerSettings.of(config, f"broker-{config.node_id}"),
        )


def by_topic(answers: Mapping[Place, PartitionResponse]) -> dict[str, list[PartitionResponse]]:
    """The answers of each topic's partitions, by index."""
    topics: dict[str, list[PartitionResponse]] = {}
    for (name, _), answer in sorted(answers.items(), key=lambda item: item[0]):
        topics.setdefault(name, []).append(answer)
    return topics


def first_error(answers: Sequence[PartitionResponse]) -> tuple[int, str | None]:
    """The code and the message of the first error, or 0 and None."""
    for answer in answers:
        if answer.error_code:
            return answer.error_code, answer.error_message
    return 0, None


def _failed(index: int, code: ErrorCode, message: str | None = None) -> PartitionResponse:
    return PartitionResponse(partition_index=index, error_code=code, error_message=message)


def _unreachable(error: BaseException) -> ApiError:
    if isinstance(error, PeerError):
        return ApiError(ErrorCode.LEADER_NOT_AVAILABLE, str(error))
    if isinstance(error, ApiError):
        return error
    raise error
