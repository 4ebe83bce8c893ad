"""What a client knows of its cluster: brokers, topics and who leads their partitions."""

from collections.abc import Iterable
from uuid import UUID

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

from .errors import api_error
from .types import Node, PartitionDescription, TopicDescription

NO_NODE = -1


class ClusterMetadata:
    """The last that was heard of the cluster. Topics are kept until they are asked about again."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.controller_id = NO_NODE
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, TopicDescription] = {}
        self.errors: dict[str, ApiError] = {}

    def update(self, response: MetadataResponse) -> None:
        """Take in an answer: about some topics, or about all."""
        self.cluster_id = response.cluster_id or ""
        self.controller_id = response.controller_id
        self.nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        for topic in response.topics:
            self._update_topic(topic)

    def _update_topic(self, topic: MetadataResponseTopic) -> None:
        name = topic.name or ""
        self.topics.pop(name, None)
        self.errors.pop(name, None)
        if topic.error_code == ErrorCode.NONE:
            self.topics[name] = describe(topic)
        else:
            self.errors[name] = api_error(topic.error_code, of=f"topic {name}")

    def topic(self, name: str) -> TopicDescription:
        """A topic; raises :class:`~qbus.errors.ApiError` with what the broker said of it."""
        found = self.topics.get(name)
        if found is not None:
            return found
        raise self.errors.get(name) or unknown_topic(name)

    def leader(self, topic: str, partition: int) -> int:
        """The id of the leader of a partition.

        Raises :class:`~qbus.errors.ApiError`: the topic's, UNKNOWN_TOPIC_OR_PARTITION, or
        LEADER_NOT_AVAILABLE.
        """
        partitions = self.topic(topic).partitions
        if not 0 <= partition < len(partitions):
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has no partition {partition}"
            )
        leader = partitions[partition].leader
        if leader not in self.nodes:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader now")
        return leader

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions those of ``topics`` have that are known."""
        return {name: len(self.topics[name].partitions) for name in topics if name in self.topics}

    def forget(self, topics: Iterable[str]) -> None:
        """Drop what is known of ``topics``, for it has proved wrong."""
        for topic in topics:
            self.topics.pop(topic, None)
            self.errors.pop(topic, None)


def unknown_topic(name: str) -> ApiError:
    """The error for a topic that no broker has told of."""
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")


def describe(topic: MetadataResponseTopic) -> TopicDescription:
    """A topic as users see it."""
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    return TopicDescription(
        name=topic.name or "",
        topic_id=UUID(bytes=bytes(topic.topic_id)),
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
