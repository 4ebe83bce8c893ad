"""Whether this broker still leads the partitions of ``__consumer_offsets`` that it takes for its.

A broker hears late that another one was elected, and not at all while it is paused. Meanwhile it
cannot store anything, for its replicas follow the other one; but what it tells from memory may be
older than what the other one has acknowledged. The node of a partition's state changes with each
election. So where it still has this broker, in the epoch in which the partition was loaded, nobody
else has acknowledged anything since then.
"""

import math
from typing import Any, Final

from qbus.errors import ApiError, ErrorCode
from qbus.metadata import Check, MetadataStore, NodeError, Op
from qbus.metadata.znodes import PartitionStateNode
from qbus.names import OFFSETS_TOPIC

from ..internal_logs import InternalLog, Shard
from ..partition.partition import Partition
from .offset_machine import OffsetsMachine

_ATTEMPTS: Final = 5  # while the replicas in sync change
_ANY: Final = -1


class Leadership:
    """Asks the store who leads the partitions of ``__consumer_offsets``."""

    def __init__(
        self, store: MetadataStore, log: InternalLog[OffsetsMachine], node_id: int
    ) -> None:
        """``node_id``: this broker."""
        self._store = store
        self._log = log
        self._node_id = node_id

    async def checks(self, index: int, epoch: int = _ANY) -> list[Op]:
        """What a transaction checks that depends on this broker's leading a partition.

        Empty: by the store it does not lead it, or not in this ``epoch``.

        Raises:
            StoreError: it cannot be read.
        """
        path = PartitionStateNode.path(OFFSETS_TOPIC, index)
        node = await self._store.get(path)
        if node is None:
            return []
        state = PartitionStateNode.decode(node.data)
        if state.leader != self._node_id or epoch not in {_ANY, state.leader_epoch}:
            return []
        return [Check(path, node.version)]

    def is_certain(self, group_id: str) -> bool:
        """Whether nobody else can have been elected for a group's partition.

        Raises:
            ApiError: the partition is not led here, as is known already, or not loaded.
        """
        return not _may_be_led_elsewhere(self._log.shard(group_id).partition)

    async def confirm(self, group_id: str) -> None:
        """Have the store confirm that this broker leads a group's partition.

        Until the next ``await``, what the log has in memory was current when it was asked.

        Raises:
            ApiError: NOT_COORDINATOR, another broker leads it; COORDINATOR_LOAD_IN_PROGRESS.
            StoreError: it cannot be asked.
        """
        shard = self._log.shard(group_id)
        await self._confirm(shard)
        if self._log.shard(group_id) is not shard:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    async def _confirm(self, shard: Shard[Any]) -> None:
        for _ in range(_ATTEMPTS):
            checks = await self.checks(shard.partition.index, shard.epoch)
            if not checks:
                raise ApiError(ErrorCode.NOT_COORDINATOR, f"another broker leads {shard}")
            try:
                await self._store.transaction(checks)
            except NodeError:
                continue  # it was read from a server that lags behind, or has just changed
            return
        raise ApiError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"the state of {shard} changes too often"
        )


def _may_be_led_elsewhere(partition: Partition) -> bool:
    """Whether replicas on other brokers are in sync or eligible, or may have become so."""
    followers = partition.followers
    if followers is None or followers.proposed is not None:
        return True
    return partition.may_be_deposed(math.inf)  # since whenever they have not fetched
