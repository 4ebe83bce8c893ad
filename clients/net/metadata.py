"""What a client knows of its cluster: brokers, topics and who leads their partitions.

Other threads may read ``nodes`` and ``topics`` while the loop's thread updates them: what they hold
is replaced whole, never changed in place.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol
from uuid import UUID

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

from ..errors import api_error
from ..types import Node, PartitionDescription, TopicDescription

NO_NODE = -1
NO_EPOCH = -1


class Endpoint(Protocol):
    """Where a broker is, as answers name it."""

    host: str
    port: int
    rack: str | None


class ClusterMetadata:
    """The last that was heard of the cluster."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.controller_id = NO_NODE
        self.nodes: Mapping[int, Node] = {}
        self.topics: Mapping[str, TopicDescription] = {}
        self.errors: Mapping[str, ApiError] = {}
        self._believed: frozenset[str] = frozenset()  # the topics whose leaders are

    def update(self, response: MetadataResponse, *, is_whole: bool = False) -> None:
        """Take in an answer: about some topics, or about all (``is_whole``)."""
        self.cluster_id = response.cluster_id or ""
        self.controller_id = response.controller_id
        self.nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        topics: dict[str, TopicDescription] = {} if is_whole else dict(self.topics)
        errors: dict[str, ApiError] = {} if is_whole else dict(self.errors)
        for answer in response.topics:
            name = answer.name or ""
            topics.pop(name, None)
            errors.pop(name, None)
            try:
                topics[name] = self._latest(describe(answer))
            except ApiError as error:
                errors[name] = error
        told_of = {topic.name or "" for topic in response.topics}
        self.topics, self.errors = topics, errors
        self._believed = frozenset((self._believed | told_of) & topics.keys())

    def _latest(self, found: TopicDescription) -> TopicDescription:
        """``found``, but for partitions of which a broker that lags behind told (KIP-320).

        Epochs of a topic that was deleted and created again begin anew, and it has another id.
        """
        known = self.topics.get(found.name)
        if known is None or known.topic_id != found.topic_id or found.name not in self._believed:
            return found
        partitions = [
            before if before.leader_epoch > now.leader_epoch >= 0 else now
            for before, now in zip(known.partitions, found.partitions, strict=False)
        ]
        return replace(found, partitions=(*partitions, *found.partitions[len(partitions) :]))

    def topic(self, name: str) -> TopicDescription:
        """A topic; raises :class:`~qbus.errors.ApiError` with what the broker said of it."""
        found = self.topics.get(name)
        if found is not None:
            return found
        raise self.errors.get(name) or unknown_topic(name)

    def leader(self, topic: str, partition: int) -> int:
        """The id of the leader of a partition.

        Raises :class:`~qbus.errors.ApiError`: the topic's, UNKNOWN_TOPIC_OR_PARTITION, or
        LEADER_NOT_AVAILABLE, also when the last that was heard of it has proved wrong.
        """
        partitions = self.topic(topic).partitions
        if not 0 <= partition < len(partitions):
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has no partition {partition}"
            )
        leader = partitions[partition].leader
        if leader not in self.nodes or topic not in self._believed:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader now")
        return leader

    def leader_epoch(self, topic: str, partition: int) -> int:
        """The epoch of the leader of a partition; -1: not known."""
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return NO_EPOCH
        return known.partitions[partition].leader_epoch

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions those of ``topics`` have that are known."""
        return {name: len(self.topics[name].partitions) for name in topics if name in self.topics}

    def missing(self, topics: Iterable[str]) -> list[str]:
        """Those of ``topics`` to ask about: unknown, or forgotten."""
        return [name for name in topics if name not in self._believed]

    def forget(self, topics: Iterable[str]) -> None:
        """Believe no longer who leads the partitions of ``topics``, for it has proved wrong.

        What else is known of them stays: how many partitions there are is seldom wrong.
        """
        self._believed = self._believed.difference(topics)

    def forget_nodes(self) -> None:
        """Believe no longer that the brokers are where they were."""
        self.nodes = {}
        self.forget_controller()

    def forget_controller(self) -> None:
        """Believe no longer that the controller is the controller."""
        self.controller_id = NO_NODE

    def apply_leader_hint(
        self,
        topic: str,
        partition: int,
        leader_id: int,
        epoch: int,
        endpoint: Endpoint | None = None,
    ) -> bool:
        """Take in who leads a partition, as an error response told (KIP-951).

        Whether that is news: of a known partition, a later epoch, and a broker whose address is
        known or came with it.
        """
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions) or leader_id < 0:
            return False
        if epoch <= known.partitions[partition].leader_epoch:
            return False
        if endpoint is not None:
            node = Node(leader_id, endpoint.host, endpoint.port, endpoint.rack)
            self.nodes = {**self.nodes, leader_id: node}
        elif leader_id not in self.nodes:
            return False
        changed = replace(known.partitions[partition], leader=leader_id, leader_epoch=epoch)
        partitions = (*known.partitions[:partition], changed, *known.partitions[partition + 1 :])
        self.topics = {**self.topics, topic: replace(known, partitions=partitions)}
        return True


def unknown_topic(name: str) -> ApiError:
    """The error for a topic that no broker has told of."""
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")


def describe(topic: MetadataResponseTopic) -> TopicDescription:
    """A topic as users see it.

    Raises :class:`~qbus.errors.ApiError`: what the broker says of the topic, LEADER_NOT_AVAILABLE
    when it names no partitions, or UNKNOWN_SERVER_ERROR for others than a topic can have.
    """
    if topic.error_code != ErrorCode.NONE:
        raise api_error(topic.error_code, of=f"topic {topic.name or UUID(bytes=topic.topic_id)}")
    if not topic.partitions:
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic.name} has no partitions yet")
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    if [partition.partition_index for partition in partitions] != list(range(len(partitions))):
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the broker does not name all partitions of {topic.name}",
        )
    return TopicDescription(
        name=topic.name or "",
        topic_id=UUID(bytes=topic.topic_id),
        is_internal=topic.is_internal,
        partitions=tuple(
            PartitionDescription(
                index=partition.partition_index,
                leader=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                replicas=tuple(partition.replica_nodes),
                isr=tuple(partition.isr_nodes),
                offline_replicas=tuple(partition.offline_replicas),
            )
            for partition in partitions
        ),
    )
