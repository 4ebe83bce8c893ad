"""Topics that were deleted and created again under their name (KIP-516)."""

import logging
from uuid import UUID

from ..net.cluster import Cluster
from ..types import NO_ID, TopicPartition
from .assignment import PartitionState
from .options import ConsumerOptions

_log = logging.getLogger(__name__)


class RecreatedTopics:
    """Compares the topic that a position is in with the one that has its name now.

    Offsets of the former topic say nothing about the new one: its partitions start over, at the
    group's committed offset or as ``offset_reset`` says.
    """

    def __init__(self, cluster: Cluster, options: ConsumerOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._logged: dict[str, UUID] = {}

    def check(self, partition: TopicPartition, state: PartitionState) -> None:
        """Have a partition start over whose topic is another one now."""
        topic = self._cluster.metadata.topics.get(partition.topic)
        if topic is None:
            return
        topic_id = topic.topic_id
        if state.topic_id in {None, NO_ID}:
            state.topic_id = topic_id
        if topic_id in {state.topic_id, NO_ID}:
            return
        state.restart(topic_id)
        if self._logged.get(partition.topic) != topic_id:
            self._logged[partition.topic] = topic_id
            _log.warning(
                "topic %s was deleted and created again: reading starts over (offset_reset=%s)",
                partition.topic,
                self._options.offset_reset,
            )
