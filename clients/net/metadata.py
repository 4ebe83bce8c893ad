"""What a client knows of its cluster: brokers, topics and the leaders of their partitions.

Other threads may read ``nodes`` and ``topics`` while the loop's thread updates them: updates
replace these mappings and never change them in place.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol
from uuid import UUID

from qbus.errors import ApiError, ErrorCode
from qbus.names import OWN_TOPICS_PREFIX, check_topic_name
from qbus.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

from ..errors import api_error
from ..types import Node, PartitionDescription, TopicDescription

NO_NODE = -1
NO_EPOCH = -1


class Endpoint(Protocol):
    """The address of a broker, as responses name it."""

    host: str
    port: int
    rack: str | None


class ClusterMetadata:
    """The latest known state of the cluster."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.controller_id = NO_NODE
        self.nodes: Mapping[int, Node] = {}
        self.topics: Mapping[str, TopicDescription] = {}
        self.errors: Mapping[str, ApiError] = {}
        self._trusted: frozenset[str] = frozenset()  # topics with trusted leaders

    def update(self, response: MetadataResponse, *, is_whole: bool = False) -> None:
        """Keep a response: about some topics, or about all (``is_whole``)."""
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
        self._trusted = frozenset((self._trusted | told_of) & topics.keys())

    def _latest(self, found: TopicDescription) -> TopicDescription:
        """Return ``found``, with the known leaders where the response is older than them (KIP-320).

        The epochs of a topic that was deleted and created again start anew; its id differs.
        """
        known = self.topics.get(found.name)
        if known is None or known.topic_id != found.topic_id or found.name not in self._trusted:
            return found
        partitions = [
            before if before.leader_epoch > now.leader_epoch >= 0 else now
            for before, now in zip(known.partitions, found.partitions, strict=False)
        ]
        return replace(found, partitions=(*partitions, *found.partitions[len(partitions) :]))

    def topic(self, name: str) -> TopicDescription:
        """Return a topic; raise the broker's :class:`~qbus.errors.ApiError` for it."""
        found = self.topics.get(name)
        if found is not None:
            return found
        raise self.errors.get(name) or unknown_topic(name)

    def leader(self, topic: str, partition: int) -> int:
        """Return the id of the leader of a partition.

        Raises :class:`~qbus.errors.ApiError`: the topic's, UNKNOWN_TOPIC_OR_PARTITION, or
        LEADER_NOT_AVAILABLE, also after :meth:`forget`.
        """
        partitions = self.topic(topic).partitions
        if not 0 <= partition < len(partitions):
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has no partition {partition}"
            )
        found = partitions[partition]
        if found.leader not in self.nodes or topic not in self._trusted:
            reason = f"{topic}-{partition} has no leader now{_offline(found)}"
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, reason)
        return found.leader

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return the leader epoch of a partition; -1: not known."""
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return NO_EPOCH
        return known.partitions[partition].leader_epoch

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the number of partitions of the known ones among ``topics``."""
        return {name: len(self.topics[name].partitions) for name in topics if name in self.topics}

    def missing(self, topics: Iterable[str]) -> list[str]:
        """Return those of ``topics`` that are unknown or forgotten."""
        return [name for name in topics if name not in self._trusted]

    def forget(self, topics: Iterable[str]) -> None:
        """Stop trusting the leaders of ``topics``, because one proved wrong.

        Everything else stays known: partition counts are seldom wrong.
        """
        self._trusted = self._trusted.difference(topics)

    def forget_nodes(self) -> None:
        """Forget the brokers and their addresses."""
        self.nodes = {}
        self.forget_controller()

    def forget_controller(self) -> None:
        """Forget which broker is the controller."""
        self.controller_id = NO_NODE

    def apply_leader_hint(
        self,
        topic: str,
        partition: int,
        leader_id: int,
        epoch: int,
        endpoint: Endpoint | None = None,
    ) -> bool:
        """Keep the leader of a partition that an error response named (KIP-951).

        Returns whether it is new: the partition is known, the epoch is later, and the broker's
        address is known or came with it.
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


def _offline(partition: PartitionDescription) -> str:
    """Where its replicas are offline, as a clause of a message."""
    if not partition.offline_replicas:
        return ""
    nodes = ", ".join(map(str, partition.offline_replicas))
    return f": offline on broker{'s' * (len(partition.offline_replicas) > 1)} {nodes}"


def unknown_topic(name: str) -> ApiError:
    """Return the error for a topic that no broker has described."""
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")


def describe(topic: MetadataResponseTopic) -> TopicDescription:
    """Return a topic as users see it.

    Raises :class:`~qbus.errors.ApiError`: the broker's error for the topic, LEADER_NOT_AVAILABLE
    when the response names no partitions, or UNKNOWN_SERVER_ERROR when it leaves some out.
    """
    if topic.error_code != ErrorCode.NONE:
        if topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION and topic.name is not None:
            check_topic_name(topic.name)  # says more than the code
        name = UUID(bytes=topic.topic_id) if topic.name is None else topic.name
        raise api_error(topic.error_code, of=f"topic {name}")
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
        is_internal=topic.is_internal or (topic.name or "").startswith(OWN_TOPICS_PREFIX),
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
