"""Replicas here that cannot keep up what they claim: said in the store, so others go on without.

A log that is corrupt, or whose disk failed, may lack what was acknowledged. So its replica is taken
out of those in sync and those eligible, and leads no more; the controller then has another one lead
it, if there is one. A corrupt log is fetched anew from there; a disk that failed stays as it is
until the broker is started again.

A follower whose disk is full has what it ever had, but takes nothing more. So it is in sync no
more, before everybody waits for it in vain; as soon as it can follow again, it comes back.
"""

import logging
from collections.abc import Callable, Iterable

from qbus.errors import ApiError, ErrorCode
from qbus.metadata import MetadataStore, NodeError, Set, StoreError
from qbus.metadata.feed import announce
from qbus.metadata.znodes import ChangeNode, PartitionStateNode

from ..metadata.image import Topic
from ..metadata.partition_states import forgetting, policy, without
from .metadata import Metadata
from .partition import Partition

_log = logging.getLogger(__name__)


class Disqualification:
    """Looks for such replicas, and writes it by compare-and-set."""

    def __init__(
        self,
        node_id: int,
        store: MetadataStore,
        metadata: Metadata,
        partitions: Iterable[Partition],
        is_stuck: Callable[[Partition], bool],
    ) -> None:
        """``partitions`` is iterated anew each time. ``is_stuck``: for want of space, following."""
        self._node_id = node_id
        self._store = store
        self._metadata = metadata
        self._partitions = partitions
        self._is_stuck = is_stuck

    async def look(self) -> None:
        """Write what is due; what another write was faster than is looked at again next time."""
        for partition in self._partitions:
            topic = self._due(partition)
            if topic is None:
                continue
            try:
                await self._write(partition, topic)
            except NodeError:
                continue
            except (StoreError, ApiError) as error:
                _log.info(
                    "that %s is lost or stuck here could not be written: %s", partition, error
                )
                return

    def _due(self, partition: Partition) -> Topic | None:
        """Its topic, if that says more of this replica than is true.

        One that nobody shares keeps what it has: there is nothing better.
        """
        if not self._is_lost(partition) and not self._is_stuck(partition):
            return None
        topic = self._metadata.topics.get(partition.topic)
        if topic is None or partition.index >= len(topic.partitions):
            return None
        info = topic.partitions[partition.index]
        is_shared = len(info.replicas) > 1
        claims = self._node_id in (
            {info.leader, *info.isr, *info.elr} if self._is_lost(partition) else info.isr
        )
        is_of_it = partition.log.topic_id in {None, topic.id}
        return topic if is_shared and claims and is_of_it else None

    @staticmethod
    def _is_lost(partition: Partition) -> bool:
        return not partition.log.is_usable or partition.error is ErrorCode.KAFKA_STORAGE_ERROR

    async def _write(self, partition: Partition, topic: Topic) -> None:
        info = topic.partitions[partition.index]
        wanted = policy(
            partition.min_insync_replicas, len(info.target), is_durable=partition.durable
        )
        is_lost = self._is_lost(partition)
        before = info.state(self._metadata.cluster.controller_epoch)
        state = (forgetting if is_lost else without)(before, self._node_id, wanted)
        path = PartitionStateNode.path(partition.topic, partition.index)
        change = ChangeNode(states={partition.topic: (partition.index,)})
        await self._store.transaction(
            [
                self._metadata.fence(),
                *topic.guards,
                Set(path, state.encode(), info.version),
                announce(change.encode()),
            ]
        )
        why = "is lost here" if is_lost else "has no room here"
        _log.warning("%s %s: others go on without this replica", partition, why)
