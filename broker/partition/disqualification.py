"""Replicas of this broker that cannot keep what they claim, taken out of the in-sync replicas.

A log that is corrupt, or whose disk failed, may lack acknowledged records. So the replica is
removed from those in sync and those eligible, and leads no longer; the controller then elects
another one, if there is one. A corrupt log is fetched anew from there; a failed disk stays as it
is until the broker is restarted.

A follower whose disk is full keeps its records, but takes no more. It leaves the in-sync replicas
before ``acks=all`` waits for it in vain, and comes back as soon as it can follow again.
"""

import logging
from collections.abc import Callable, Iterable

from qbus.errors import ApiError
from qbus.metadata import MetadataStore, NodeError, Set, StoreError
from qbus.metadata.feed import decide
from qbus.metadata.znodes import ChangeNode, PartitionStateNode

from ..metadata.image import Topic
from ..metadata.partition_states import forgetting, policy, without
from .metadata import Metadata
from .partition import Partition
from .roles import has_only_copy

_log = logging.getLogger(__name__)


class Disqualification:
    """Finds such replicas, and removes them by compare-and-set."""

    def __init__(
        self,
        node_id: int,
        store: MetadataStore,
        metadata: Metadata,
        partitions: Iterable[Partition],
        is_stuck: Callable[[Partition], bool],
    ) -> None:
        """``partitions`` is iterated anew each time. ``is_stuck``: a follower without space."""
        self._node_id = node_id
        self._store = store
        self._metadata = metadata
        self._partitions = partitions
        self._is_stuck = is_stuck

    async def check(self) -> None:
        """Write what is due; where another write came first, check again next time."""
        for partition in self._partitions:
            topic = self._due(partition)
            if topic is None:
                continue
            try:
                await self._write(partition, topic)
            except NodeError:
                continue
            except (StoreError, ApiError) as error:
                _log.info("cannot remove the replica of %s here from the ISR: %s", partition, error)
                return

    def _due(self, partition: Partition) -> Topic | None:
        """Its topic, if that claims more of this replica than is true.

        The only replica that is in sync or eligible keeps its claims: there is no better one.
        """
        if not partition.is_lost and not self._is_stuck(partition):
            return None
        topic = self._metadata.topics.get(partition.topic)
        if topic is None or partition.index >= len(topic.partitions):
            return None
        info = topic.partitions[partition.index]
        is_lost = partition.is_lost
        if len(info.replicas) == 1 or (is_lost and has_only_copy(info, self._node_id)):
            return None
        claims = self._node_id in ({info.leader, *info.isr, *info.elr} if is_lost else info.isr)
        is_of_it = partition.log.topic_id in {None, topic.id}
        return topic if claims and is_of_it else None

    async def _write(self, partition: Partition, topic: Topic) -> None:
        info = topic.partitions[partition.index]
        wanted = policy(
            partition.min_insync_replicas, len(info.target), is_durable=partition.durable
        )
        is_lost = partition.is_lost
        before = info.state(self._metadata.cluster.controller_epoch)
        state = (forgetting if is_lost else without)(before, self._node_id, wanted)
        path = PartitionStateNode.path(partition.topic, partition.index)
        change = ChangeNode(states={partition.topic: (partition.index,)})
        guards = [self._metadata.fence(), *topic.guards]
        await decide(self._store, guards, [Set(path, state.encode(), info.version)], change)
        why = "is corrupt or offline" if is_lost else "has no space"
        _log.warning("the replica of %s here %s: removed from the ISR", partition, why)
